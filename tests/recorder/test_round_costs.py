"""Rounds and parts of the recorder's thread are fewer where they are dear, and nothing is lost by it."""

import errno
import itertools
import os
import shutil

import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record

from phasepoint.core.units import PS_PER_S
from phasepoint.findings.evidence.ranks.rank_clocks import STRETCH_PS
from phasepoint.recorder.background import LONGEST_POLL_S, POLL_S, Flusher
from phasepoint.store import open_run


@pytest.mark.parametrize(
    ("cost_s", "wanted_s"),
    [(0.0001, POLL_S), (0.0015, 0.75), (1.0, LONGEST_POLL_S)],
)
def test_rounds_that_are_dear_are_further_apart(monkeypatch, cost_s, wanted_s):
    flusher, waits = Flusher(lambda final: None), []
    readings = itertools.count()  # two a round: as it begins, and as it ends
    monkeypatch.setattr("phasepoint.recorder.background.time.thread_time", lambda: (next(readings) + 1) // 2 * cost_s)

    def wait(timeout):
        waits.append(timeout)
        flusher._finished = len(waits) == 9

    monkeypatch.setattr(flusher._wake, "wait", wait)
    flusher._run()
    assert waits[0] == POLL_S
    assert waits[-1] == pytest.approx(wanted_s)


def test_each_stretch_in_which_ranks_are_compared_has_a_look():
    assert LONGEST_POLL_S * PS_PER_S <= STRETCH_PS


def test_one_dear_round_of_many_changes_nothing(monkeypatch):
    flusher, waits = Flusher(lambda final: None), []
    costs = itertools.cycle([0.0, 0.0001, 0.0, 0.0001, 0.0, 0.1])  # as each round begins and ends: every third writes
    readings = itertools.accumulate(costs)
    monkeypatch.setattr("phasepoint.recorder.background.time.thread_time", lambda: next(readings))

    def wait(timeout):
        waits.append(timeout)
        flusher._finished = len(waits) == 30

    monkeypatch.setattr(flusher._wake, "wait", wait)
    flusher._run()
    assert set(waits[3:]) == {POLL_S}


@pytest.mark.usefixtures("still")
def test_values_are_written_with_every_third_flush_and_all_at_the_end(tmp_path):
    clock, seen = FakeClock(), []
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0, flush_s=1) as run:
        for batch in run.steps(range(9)):
            clock.tick(1000)
            run.log(loss=batch)
            StillFlusher.made.round()
            there = open_run(tmp_path / "run")
            seen.append((there.table("steps").num_rows, there.table("scalars").num_rows))
    steps, values = zip(*seen, strict=True)
    assert steps == tuple(range(9))
    assert all(step - value <= 4 for step, value in seen)
    assert 3 <= len(set(values)) <= 6
    assert open_run(tmp_path / "run").table("scalars")["value"].to_pylist() == [float(n) for n in range(9)]


@pytest.mark.usefixtures("still")
def test_many_values_are_not_kept_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("phasepoint.recorder.background.MOST_ROWS", 8)
    monkeypatch.setattr("phasepoint.recorder.clock.scalars.MOST_HELD", 16)
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0, flush_s=60) as run:
        for batch in run.steps(range(12)):
            clock.tick(10)
            run.log(loss=batch, rate=0.5)
            StillFlusher.made.round()
        assert open_run(tmp_path / "run").table("scalars").num_rows >= 8


@pytest.mark.usefixtures("still")
def test_rows_are_tails_until_there_are_enough_for_a_part(tmp_path, monkeypatch):
    monkeypatch.setattr("phasepoint.store.writer.MOST_TAIL_ROWS", 4)
    clock, path = FakeClock(), tmp_path / "run"
    files, others = [], []
    with fake_record(path, clock, FakeSession(clock), budget=0, flush_s=1) as run:
        for batch in run.steps(range(14)):
            clock.tick(1000)
            StillFlusher.made.round()
            found = open_run(path).table("steps")["step"].to_pylist()
            assert found == list(range(len(found)))
            assert len(found) >= batch - 1
            files.append(sorted(file.name for file in path.glob("host=00000/steps/part-*")))
            others.append(open_run(path).table("counters").num_rows)
    assert len([now for now in files if now and now[-1].endswith(".tail")]) >= 7
    assert all(name.endswith(".parquet") for now in files for name in now[:-1])  # one tail, the newest
    assert 3 <= len(files[-1]) <= 5
    assert others == sorted(others)
    assert others[4]
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(14))
    assert not list(path.glob("host=00000/*/*.tail"))


@pytest.mark.usefixtures("still")
def test_a_killed_job_leaves_its_tails_alone(tmp_path):
    clock, path = FakeClock(), tmp_path / "run"
    with fake_record(path, clock, FakeSession(clock), budget=0.5, flush_s=1) as run:
        for _ in run.steps(range(40)):
            clock.tick(500)
            run.log(loss=1.0)
            StillFlusher.made.round()
        assert not list(path.glob("host=00000/*/*.parquet"))
        shutil.copytree(path, tmp_path / "killed")
    killed, whole = open_run(tmp_path / "killed"), open_run(path)
    assert killed.problems == ()
    assert killed.table("windows").num_rows >= 3
    for name in ("steps", "windows", "counters", "scalars"):
        rows = killed.table(name).to_pylist()
        assert [row for row in whole.table(name).to_pylist() if row in rows] == rows
        assert rows


@pytest.mark.usefixtures("still")
def test_a_windows_row_waits_nine_seconds_at_most(tmp_path):
    clock, path, captured = FakeClock(), tmp_path / "run", []
    with fake_record(path, clock, FakeSession(clock), budget=0.5) as run:
        for _ in run.steps(range(400)):
            clock.tick(100)
            StillFlusher.made.round()
            there = open_run(path)
            captured.append(len(list(path.glob("host=00000/raw/*"))))
            assert there.table("windows").num_rows >= captured[-95:][0]
        assert captured[-1] >= 3


@pytest.mark.usefixtures("still")
def test_a_disk_that_takes_no_tail_gets_a_part_later(tmp_path):
    clock, path, disk = FakeClock(), tmp_path / "run", pytest.MonkeyPatch()
    with fake_record(path, clock, FakeSession(clock), budget=0, flush_s=1) as run:
        for batch in run.steps(range(30)):
            clock.tick(1000)
            if batch == 5:
                disk.setattr("phasepoint.store.filesystem._write_local", no_space)
            if batch == 9:
                disk.undo()
            StillFlusher.made.round()
    assert run.off_reason is None
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(30))
    assert open_run(path).problems == ()


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
