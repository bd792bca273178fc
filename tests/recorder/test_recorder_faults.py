"""Faults at every hook: the job's result stays bit-identical, the recorder is off, and the run says why."""

import hashlib
import os

import numpy as np
import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record, run_script

from phasepoint.core.errors import StoreError
from phasepoint.recorder import output
from phasepoint.recorder.clock.step_clock import StepClock
from phasepoint.recorder.seam.guard import Guard, guarded, guarded_even_off
from phasepoint.store import ShardWriter, open_run

pytestmark = pytest.mark.usefixtures("still")


def train(run, clock, steps=300):
    """A little gradient descent; returns a hash of every loss and of the final parameters."""
    rng = np.random.default_rng(0)
    weights, digest = rng.normal(size=8), hashlib.sha256()
    batches = (rng.normal(size=(4, 8)) for _ in range(steps))
    for index, batch in enumerate(run.steps(batches)):
        error = batch @ weights - 1.0
        weights -= 0.01 * batch.T @ error
        digest.update(np.float64(error @ error).tobytes())
        clock.tick(10)
        if index % 50 == 20:
            with run.phase("eval"):
                for _ in run.steps(range(3)):
                    clock.tick(5)
            run.checkpoint(f"ckpt/{index}")
        if StillFlusher.made is not None:  # a recorder that failed before has none
            StillFlusher.made.round()
    digest.update(weights.tobytes())
    return digest.hexdigest()


class Unrecorded:
    def steps(self, loader):
        return loader

    def phase(self, name):
        return open(os.devnull)  # noqa: PTH123 - any context manager

    def checkpoint(self, path):
        pass


def expected(tmp_path):
    with fake_record(tmp_path / "plain", FakeClock(), FakeSession(), budget=0):
        return train(Unrecorded(), FakeClock())


def record_with_fault(tmp_path, capsys, *, session=None, clock=None, **options):
    clock = clock or FakeClock()
    session = session or FakeSession(clock)
    with fake_record(tmp_path / "run", clock, session, **{"budget": 0.2} | options) as run:
        result = train(run, clock)
    assert not session.is_on
    return result, run, capsys.readouterr().err


SESSION_HOOKS = ["probe", "busy", "drain", "start", "stop", "capture", "enter", "leave", "devices", "memory"]


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), AssertionError("ours")], ids=repr)
@pytest.mark.parametrize("hook", [*SESSION_HOOKS, "watch_compiles", "watch_user_profiler", "remove"])
def test_a_session_that_fails_anywhere(tmp_path, capsys, hook, error):
    clock = FakeClock()
    session = FakeSession(clock)
    session.fail_at[hook] = error
    result, run, err = record_with_fault(tmp_path, capsys, session=session, clock=clock)
    assert result == expected(tmp_path)
    assert type(error).__name__ in run.off_reason
    assert err.count("\n") == 1
    assert err.startswith("phasepoint: the recorder switched itself off: ")
    if hook not in {"probe", "devices", "watch_compiles", "watch_user_profiler"}:  # these come before there is a run
        assert "recorder-off" in open_run(tmp_path / "run").table("gaps").column("why").to_pylist()


@pytest.mark.parametrize("method", ["ask", "got", "end_loop", "enter_kind", "leave_kind", "finish", "take_rows"])
def test_a_step_clock_that_fails(tmp_path, capsys, monkeypatch, method):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(StepClock, method, broken)
    monkeypatch.setattr("phasepoint.recorder.assembly.calibrate", lambda _clock: 0)
    result, run, err = record_with_fault(tmp_path, capsys)
    assert result == expected_with_clock(tmp_path, monkeypatch)
    assert "ZeroDivisionError" in run.off_reason
    assert err.count("\n") == 1


def expected_with_clock(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("phasepoint.recorder.assembly.Flusher", StillFlusher)
    return expected(tmp_path)


def test_a_clock_that_breaks_in_the_middle(tmp_path, capsys):
    clock = FakeClock()

    class Breaking(FakeSession):
        def stop(self):
            clock.fails = True
            return super().stop()

    result, run, err = record_with_fault(tmp_path, capsys, session=Breaking(), clock=clock)
    assert result == expected(tmp_path)
    assert "the clock is broken" in run.off_reason
    assert err.count("\n") == 1


def test_the_run_says_that_the_recorder_went_off_and_keeps_what_was_before(tmp_path, capsys):
    clock = FakeClock()
    session = FakeSession(clock)
    session.fail_at["stop"] = RuntimeError("boom")
    session.can_interrupt = False
    record_with_fault(tmp_path, capsys, session=session, clock=clock)
    run = open_run(tmp_path / "run")
    gaps = run.table("gaps").to_pylist()
    off = [gap for gap in gaps if gap["why"] == "recorder-off"]
    assert len(off) == 1
    assert "RuntimeError in Recorder.ask: boom" in off[0]["unknown"]
    assert [row["step"] for row in run.table("steps").to_pylist()] == list(range(6))
    assert run.shards[0].session.status == "failed"
    assert {r["name"]: r["value"] for r in run.table("counters").to_pylist()}["recorder.faults"] >= 1


class FullDisk:
    """Refuses the writes that it is told to."""

    def __init__(self, monkeypatch, *names):
        self.is_full = False
        self.refused = 0
        for name in names:
            monkeypatch.setattr(ShardWriter, name, self._wrap(getattr(ShardWriter, name)))

    def _wrap(self, method):
        def call(writer, *args, **kwargs):
            if self.is_full:
                self.refused += 1
                raise StoreError("/run: the disk is full: free space there")
            return method(writer, *args, **kwargs)

        return call


def test_a_full_disk_costs_captures_but_no_steps(tmp_path, capsys, monkeypatch):
    disk = FullDisk(monkeypatch, "flush", "write_raw")
    clock = FakeClock()
    session = FakeSession(clock)
    with fake_record(tmp_path / "run", clock, session, budget=None, window_steps=10) as run:
        for index, _ in enumerate(run.steps(range(2000))):
            disk.is_full = 500 <= index < 1500
            clock.tick(10)
            if StillFlusher.made is not None:  # a recorder that failed before has none
                StillFlusher.made.round()
    assert disk.refused > 2
    assert run.off_reason is None
    opened = open_run(tmp_path / "run")
    assert opened.table("steps").num_rows == 2000
    lost = [gap for gap in opened.table("gaps").to_pylist() if gap["why"] == "lost-window"]
    assert len(lost) == pytest.approx(100, abs=2)
    assert len(lost) + opened.table("windows").num_rows == 200
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"{len(lost)} captures could not be written; all 2000 steps were kept" in err


def test_a_disk_that_stays_full_ends_with_one_line(tmp_path, capsys, monkeypatch):
    disk = FullDisk(monkeypatch, "flush", "write_raw", "close")
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0.1) as run:
        for index, _ in enumerate(run.steps(range(2000))):
            disk.is_full = index > 1000
            clock.tick(10)
            if StillFlusher.made is not None:  # a recorder that failed before has none
                StillFlusher.made.round()
    assert "the disk is full: free space there" in capsys.readouterr().err
    assert open_run(tmp_path / "run").table("steps").num_rows >= 700


@pytest.mark.parametrize("path_is", ["a file", "not writable"])
def test_a_path_that_cannot_hold_a_run(tmp_path, capsys, monkeypatch, path_is):
    path = tmp_path / "run"
    if path_is == "a file":
        path.write_text("not a directory")
    else:

        def refuse(*_args, **_kwargs):
            raise StoreError(f"{path}: permission denied: give this user access to it")

        monkeypatch.setattr("phasepoint.store.create_run", refuse)
    result, run, err = record_with_fault(tmp_path, capsys)
    assert result == expected(tmp_path)
    assert str(path) in run.off_reason
    assert err.count("\n") == 1
    assert str(path) in err


def test_two_writers_of_one_shard(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock)) as first:
        for index, _ in enumerate(first.steps(range(10))):
            clock.tick(10)
            if StillFlusher.made is not None:  # a recorder that failed before has none
                StillFlusher.made.round()
            if index == 5:
                mine = StillFlusher.made
                with fake_record(tmp_path / "run", clock, FakeSession(clock)) as second:
                    assert list(second.steps(range(3))) == [0, 1, 2]
                StillFlusher.made = mine
                assert "ShardBusyError" in second.off_reason
    assert first.off_reason is None
    assert open_run(tmp_path / "run").table("steps").num_rows == 10
    assert "writing rank 0" in capsys.readouterr().err


class Thing:
    def __init__(self):
        self.guard = Guard()
        self.calls = []

    @guarded
    def hook(self, what):
        self.calls.append(what)
        if isinstance(what, BaseException):
            raise what
        return what

    @guarded_even_off
    def always(self, what):
        self.calls.append(what)
        if isinstance(what, BaseException):
            raise what
        return what


def test_guard_switches_off_at_the_first_fault_and_counts_all():
    thing = Thing()
    cleaned = []
    thing.guard.when_off(lambda: cleaned.append(1))
    assert thing.hook(1) == 1
    assert thing.hook(ValueError("no")) is None
    assert thing.hook(2) is None
    assert thing.always(ValueError("again")) is None
    assert thing.always(3) == 3
    assert cleaned == [1]
    assert (thing.guard.off, thing.guard.faults) == (True, 2)
    assert thing.guard.reason == "ValueError in Thing.hook: no"
    assert len(thing.calls) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_guard_lets_pass_what_is_the_users(error):
    thing = Thing()
    with pytest.raises(type(error)):
        thing.hook(error)
    assert not thing.guard.off


FORKING_JOB = """
import os, sys
from recorder_fakes import FakeClock, FakeSession, fake_record

clock = FakeClock()
with fake_record(sys.argv[1], clock, FakeSession(clock), budget=0) as run:
    for index in run.steps(range(4)):
        clock.tick(10)
        if index == 1:
            pid = os.fork()
            if pid == 0:
                list(run.steps(range(50)))
                run.__exit__(None, None, None)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_forked_child_leaves_the_parents_run_alone(tmp_path):
    """In a process of its own: one that other tests filled with a framework's threads should not be forked."""
    assert run_script(FORKING_JOB, str(tmp_path / "run")).returncode == 0
    opened = open_run(tmp_path / "run")
    assert opened.table("steps").num_rows == 4
    assert [shard.state for shard in opened.shards] == ["closed"]
    assert sorted(path.name for path in (tmp_path / "run").glob("host=*")) == ["host=00000"]


def test_output_tells_a_failed_flush_from_a_good_one(monkeypatch):
    class Writer:
        fails = True

        def flush(self, *, is_awaited=False):
            if self.fails:
                raise StoreError("full")

    writer = Writer()
    out = output.RunOutput(lambda: writer)
    out.open()
    assert not out.flush()
    assert (out.backlog, out.failures, out.problem) == (True, 1, "full")
    writer.fails = False
    assert out.flush()
    assert (out.backlog, out.failures, out.problem) == (False, 1, None)
