import os
from contextlib import nullcontext

import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record

from phasepoint.core.units import PS_PER_MS
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.recording import record
from phasepoint.recorder.windows.planner import Opening
from phasepoint.recorder.windows.runner import WindowRunner
from phasepoint.store import open_run

pytestmark = pytest.mark.usefixtures("still")


class Job:
    """A job on a fake clock: `loader` waits 1 ms for each batch, `work` takes 9 ms."""

    def __init__(self, path, **options):
        self.clock = FakeClock()
        self.session = FakeSession(self.clock)
        self.path = path / "run"
        self.recording = fake_record(self.path, self.clock, self.session, **options)

    def loader(self, n, wait_ms=1):
        for index in range(n):
            self.clock.tick(wait_ms)
            yield index

    def work(self, ms=9):
        self.clock.tick(ms)

    def table(self, name):
        return open_run(self.path).table(name).to_pylist()

    def shard(self):
        return open_run(self.path).shards[-1]


@pytest.fixture
def job(tmp_path):
    """The step clock alone: no window gets in the way of the arithmetic."""
    return Job(tmp_path, budget=0)


def test_steps_become_rows(job):
    with job.recording as run:
        job.clock.tick(20)
        for _ in run.steps(job.loader(4)):
            job.work()
        job.clock.tick(5)
    rows = job.table("steps")
    assert [(row["step"], row["start_ps"] // PS_PER_MS, row["dur_ps"]) for row in rows] == [
        (i, 20 + 10 * i, 10 * PS_PER_MS) for i in range(4)
    ]
    assert {(row["input_ps"], row["dispatch_ps"], row["kind"]) for row in rows} == {
        (1 * PS_PER_MS, 9 * PS_PER_MS, None)
    }
    gaps = [(gap["why"], gap["start_ps"] // PS_PER_MS, gap["dur_ps"] // PS_PER_MS) for gap in job.table("gaps")]
    assert gaps == [("outside-steps", 0, 20), ("outside-steps", 60, 5)]


def test_steps_and_gaps_close_to_the_picosecond_with_windows(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=3)
    begin = job.clock.ns
    with job.recording as run:
        for _ in range(2):
            for _ in run.steps(job.loader(7)):
                job.work(3)
            job.clock.tick(4)
    end = job.clock.ns
    total = sum(row["dur_ps"] for row in job.table("steps")) + sum(row["dur_ps"] for row in job.table("gaps"))
    assert total == (end - begin) * 1000
    assert [(w["first_step"], w["last_step"]) for w in job.table("windows")] == [
        *((0, 2), (3, 5), (6, 6)),
        *((7, 9), (10, 12), (13, 13)),
    ]


def test_windows_back_to_back_annotate_every_step(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=2)
    with job.recording as run:
        for _ in run.steps(job.loader(4)):
            job.work()
    assert [entry[1] for entry in job.session.log if entry[0] == "enter"] == [0, 1, 2, 3, 4]
    assert job.session.names().count("enter") == job.session.names().count("leave")
    windows = job.table("windows")
    assert {(w["reason"], w["probability"], w["format"], w["bytes"]) for w in windows} == {
        ("continuous", 1.0, "xplane", 7)
    }
    assert [w["raw"] for w in windows[:2]] == [f"raw/window-{i:06d}.xplane.pb.zst" for i in range(2)]
    run = open_run(job.path)
    assert run.read_raw("host=00000", windows[0]["raw"]) == b"capture"


def test_steps_are_written_while_windows_end_faster_than_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(StillFlusher, "wake", lambda self: None)
    job = Job(tmp_path, budget=None, window_steps=1)
    with job.recording as run:
        loop = iter(run.steps(job.loader(1000)))

        def step():
            next(loop)
            job.work()

        def capture():
            step()
            step()
            return b"capture"

        monkeypatch.setattr(job.session, "_capture", capture)
        for _ in range(200):
            step()
        StillFlusher.made.round()
        assert 200 <= len(job.table("steps")) < 300


def test_window_costs_add_up(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=2)
    with job.recording as run:
        for _ in run.steps(job.loader(4)):
            job.work()
    for window in job.table("windows"):
        parts = ("start_cost_ps", "slowdown_cost_ps", "stop_cost_ps", "write_cost_ps")
        assert window["capture_cost_ps"] == sum(window[part] or 0 for part in parts)
        assert window["stop_cost_ps"] == 2 * PS_PER_MS
    assert [w["first_step"] for w in job.table("windows")] == [0, 2]
    # The third window opened when the loader was asked in vain: it holds no step, but its cost counts.
    assert job.recording.cost.stop_ps == 6 * PS_PER_MS
    assert job.recording.cost.windows == 2


def test_slow_captured_steps_are_a_cost(tmp_path):
    job = Job(tmp_path, budget=0.5, window_steps=5)
    with job.recording as run:
        for _ in run.steps(job.loader(1000)):
            job.work(14 if job.session.is_on else 9)
    windows = job.table("windows")
    assert len(windows) > 1
    assert windows[1]["slowdown_cost_ps"] == 5 * 5 * PS_PER_MS


def test_a_budget_of_nothing_runs_the_step_clock_alone(tmp_path):
    job = Job(tmp_path, budget=0)
    with job.recording as run:
        for _ in run.steps(job.loader(3000)):
            job.work()
    assert len(job.table("steps")) == 3000
    assert job.table("windows") == []
    assert "start" not in job.session.names()


def test_default_budget_opens_windows_and_keeps_to_it(tmp_path):
    job = Job(tmp_path)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(9000))):
            job.work()
            if index % 100 == 0:
                StillFlusher.made.round()
    windows = job.table("windows")
    cost = job.recording.cost
    assert len(windows) >= 20
    assert {w["reason"] for w in windows} == {"unseen", "sample"}
    assert cost.ratio < 0.01
    assert cost.windows == len(windows)
    assert all((w["probability"] is None) == (w["reason"] != "sample") for w in windows)


def test_compile_in_a_step_asks_for_a_window_with_programs(tmp_path):
    job = Job(tmp_path, budget=0.2)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(400))):
            if index == 200:
                job.clock.tick(30)
                job.session.on_compile(30_000_000, True)
            job.work()
            StillFlusher.made.round()
    assert job.table("steps")[200]["compile_ps"] == 30 * PS_PER_MS
    window = next(w for w in job.table("windows") if w["reason"] == "new-program")
    assert 200 < window["first_step"] < 210
    starts = [entry[1] for entry in job.session.log if entry[0] == "start"]
    assert starts[0] is True
    assert starts.count(True) == 2


def test_a_compilation_that_cannot_be_described_keeps_its_times(tmp_path):
    job = Job(tmp_path, budget=0.2)

    def describe():
        raise AttributeError("renamed")

    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(20))):
            if index in (7, 8):
                job.clock.tick(30)
                job.session.on_compile(30_000_000 if index == 7 else 999_999, True, describe)
            job.work()
    assert run.off_reason is None
    (row,) = job.table("compilations")  # the other one took less than a millisecond
    assert (row["step"], row["dur_ps"]) == (7, 30 * PS_PER_MS)
    assert row["start_ps"] == job.table("steps")[7]["start_ps"] + job.table("steps")[7]["input_ps"]
    assert (row["name"], row["again"], row["why"]) == (None, None, None)


def test_a_changed_step_time_is_captured(tmp_path):
    job = Job(tmp_path, budget=0.03, seed=6)  # of which no random window sees the new step time first
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(1000))):
            job.work(9 if index < 500 else 29)
            StillFlusher.made.round()
    changed = [w["first_step"] for w in job.table("windows") if w["reason"] == "changed"]
    assert len(changed) == 1
    assert 500 < changed[0] < 600


def test_steps_that_take_no_time_at_first_do_not_put_the_first_looks_off(tmp_path):
    """A job that runs ahead of its device makes its first steps in no time, and waits in all others."""
    job = Job(tmp_path, budget=0.1)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(200, wait_ms=0))):
            job.work(0.5 if index < 3 else 50)
            StillFlusher.made.round()
    assert len([w for w in job.table("windows") if w["first_step"] < 100]) >= 3


def test_steps_that_become_long_are_looked_at_within_a_second(tmp_path):
    job = Job(tmp_path, budget=0.1)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(900, wait_ms=0))):
            job.work(0.5 if index < 800 else 100)
            StillFlusher.made.round()
    assert [w for w in job.table("windows") if 800 <= w["first_step"] < 830]


def test_a_new_kind_is_captured_after_its_first_step(tmp_path):
    job = Job(tmp_path, budget=0.1, seed=3)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(300))):
            job.work()
            StillFlusher.made.round()
            if index == 200:
                with run.phase("eval"):
                    for _ in run.steps(job.loader(20)):
                        job.work(4)
    unseen = [w["first_step"] for w in job.table("windows") if w["reason"] == "unseen"]
    assert unseen == [1, 202]
    assert [row["kind"] for row in job.table("steps")[200:222]] == [None, *["eval"] * 20, None]
    assert job.table("hints") == [
        {
            "host": 0,
            "attempt": 0,
            "name": "eval",
            "start_ps": job.table("steps")[201]["start_ps"],
            "dur_ps": sum(r["dur_ps"] for r in job.table("steps")[201:221]) + _boundaries_between(job, 201, 221),
            "first_step": 200,
            "last_step": 220,
        }
    ]


def _boundaries_between(job, first, last):
    start, end = (job.table("steps")[step]["start_ps"] for step in (first, last))
    gaps = [g for g in job.table("gaps") if g["why"] == "window-boundary"]
    return sum(g["dur_ps"] for g in gaps if start <= g["start_ps"] < end)


def test_break_ends_the_last_step_at_once(job):
    with job.recording as run:
        for index in run.steps(job.loader(100)):
            job.work()
            if index == 2:
                break
        job.clock.tick(50)
    assert [row["dur_ps"] // PS_PER_MS for row in job.table("steps")] == [10, 10, 10]
    assert job.table("gaps")[-1]["dur_ps"] == 50 * PS_PER_MS


def test_zero_steps_and_one_step(tmp_path):
    for n in (0, 1):
        job = Job(tmp_path / str(n), budget=None)
        with job.recording as run:
            for _ in run.steps(job.loader(n)):
                job.work()
        assert len(job.table("steps")) == n
        assert job.shard().state == "closed"
        assert job.shard().session.status == "ok"


def test_no_loop_at_all_still_leaves_a_run(job):
    with job.recording:
        job.clock.tick(3)
    assert job.table("steps") == []
    assert [(gap["why"], gap["dur_ps"]) for gap in job.table("gaps")] == [("outside-steps", 3 * PS_PER_MS)]


def test_the_run_is_there_before_the_first_step(job):
    with job.recording as run:
        assert not job.path.exists()
        for _ in run.steps(job.loader(1)):
            assert job.shard().state == "live"
            assert job.table("steps") == []


def test_loops_one_after_another_count_on(job):
    with job.recording as run:
        steps = run.steps([1, 2, 3])
        for _ in range(2):  # epochs over one wrapped loader
            for _ in steps:
                job.work()
        assert len(steps) == 3
    assert [row["step"] for row in job.table("steps")] == list(range(6))


def test_two_loops_in_step(job):
    with job.recording as run:
        for _ in zip(run.steps([1, 2]), run.steps([3, 4]), strict=True):
            job.work()
    assert len(job.table("steps")) == 4


def test_length_of_a_loader_without_one_is_its_own_error(job):
    with job.recording as run, pytest.raises(TypeError, match="generator"):
        len(run.steps(job.loader(3)))


class UsersError(Exception):
    pass


@pytest.mark.parametrize("error", [UsersError("mine"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_the_body_raises_passes_and_marks_the_run_failed(job, error):
    def train():
        with job.recording as run:
            for index in run.steps(job.loader(10)):
                job.work()
                if index == 3:
                    raise error

    with pytest.raises(type(error)) as caught:
        train()
    assert caught.value is error
    assert len(job.table("steps")) == 4
    assert job.shard().session.status == "failed"
    assert job.shard().state == "closed"


def test_what_the_loader_raises_passes(job):
    def broken():
        yield 1
        raise UsersError("loader")

    def train():
        with job.recording as run:
            for _ in run.steps(broken()):
                job.work()

    with pytest.raises(UsersError, match="loader"):
        train()
    assert len(job.table("steps")) == 1


def test_a_loader_that_is_no_iterable_is_the_users_error(job):
    with job.recording as run, pytest.raises(TypeError, match="not iterable"):
        for _ in run.steps(3):
            pass


def test_mark_step_makes_steps_without_a_loop(job):
    with job.recording as run:
        for _ in range(3):
            run.mark_step()
            job.work()
    rows = job.table("steps")
    assert [(row["dur_ps"] // PS_PER_MS, row["input_ps"], row["dispatch_ps"] // PS_PER_MS) for row in rows] == [
        (9, None, 9)
    ] * 3


def test_a_checkpoint_is_noted_with_its_step(job):
    with job.recording as run:
        for index in run.steps(job.loader(3)):
            job.work()
            if index == 1:
                run.checkpoint("ckpt/1")
                run.checkpoint("ckpt/other", step=77)
    rows = job.table("checkpoints")
    assert [(row["path"], row["step"], row["framework"]) for row in rows] == [
        ("ckpt/1", 1, "user"),
        ("ckpt/other", 77, "user"),
    ]


@pytest.mark.parametrize("way", ["mark", "block", "phase"])
def test_what_the_job_says_between_looks_leaves_the_steps_as_they_are(job, way):
    """Boundaries that only left their times (`StepClock.marks`) are earlier than what is said after them."""
    with job.recording as run:
        for index in run.steps(job.loader(200)):
            job.work()
            if index % 50 == 30:
                said = run.phase("other") if way == "phase" else run.checkpoint("ckpt")
                with nullcontext() if way == "mark" else said:
                    pass
    dur_ms = {row["dur_ps"] // PS_PER_MS for row in job.table("steps")}
    assert dur_ms <= {10, 11}, sorted(dur_ms)
    assert [row["why"] for row in job.table("gaps")].count("clock-step") == 0


def test_a_checkpoint_that_is_a_block_lasts_as_long_as_the_block(job):
    with job.recording as run:
        for index in run.steps(job.loader(3)):
            job.work()
            if index == 1:
                with run.checkpoint("ckpt/1"):
                    job.work()
    (row,) = job.table("checkpoints")
    step = job.table("steps")[1]
    assert (row["path"], row["step"], row["framework"], row["dur_ps"] // PS_PER_MS) == ("ckpt/1", 1, "user", 9)
    assert row["start_ps"] + row["dur_ps"] <= step["start_ps"] + step["dur_ps"]


def test_a_checkpoint_whose_block_fails_is_none_and_the_error_is_the_jobs(job):
    with job.recording as run:
        for _ in run.steps(job.loader(3)):
            with pytest.raises(OSError, match="disk full"), run.checkpoint("ckpt/1"):
                raise OSError("disk full")
            run.checkpoint("ckpt/2")
    assert [row["path"] for row in job.table("checkpoints")] == ["ckpt/2"] * 3


def test_off_by_environment_writes_nothing(job, monkeypatch):
    monkeypatch.setenv("PHASEPOINT_OFF", "1")
    loader = [1, 2]
    with job.recording as run:
        with run.phase("eval"):
            assert list(run.steps(loader)) == loader
        run.checkpoint("x")
        with run.checkpoint("y"):
            pass
        run.mark_step()
        assert run.cost is None
    assert not job.path.exists()
    assert job.session.log == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"budget": -0.1}, "budget is -0.1; expected"),
        ({"budget": 1.5}, "budget is 1.5; expected"),
        ({"budget": float("nan")}, "budget is nan; expected"),
        ({"window_steps": 0}, "window_steps is 0; expected"),
        ({"flush_s": 0}, "flush_s is 0; expected"),
        ({"framework": "tf"}, "framework is 'tf'; expected"),
    ],
)
def test_arguments_out_of_range(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        record(tmp_path, **options)


def test_busy_profiler_is_one_gap_and_windows_come_back(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=2)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(12))):
            job.session.is_busy = 3 <= index < 8
            job.work()
    busy = [gap for gap in job.table("gaps") if gap["why"] == "profiler-busy"]
    assert len(busy) == 1
    assert busy[0]["first_step"] == 4
    assert [w["first_step"] for w in job.table("windows")] == [0, 2, 9, 11]
    assert job.recording.off_reason is None


def test_the_users_profiler_ends_our_window_first(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=10)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(6))):
            job.work()
            if index == 3:
                assert job.session.is_on
                job.session.before_start()
                assert not job.session.is_on
                job.session.is_busy = True
    windows = job.table("windows")
    assert [(w["first_step"], w["last_step"]) for w in windows] == [(0, 2)]


def test_a_window_ends_inside_a_step_that_does_not_end(tmp_path):
    """At 100 MB/s, of the first window that nothing is known of, 256 MiB are 2.7 s; then bytes are known."""
    job = Job(tmp_path, budget=None, window_steps=2)
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(5))):
            job.work()
            if index == 1:
                StillFlusher.made.round()
                assert job.session.is_on
                job.clock.tick(11_000)
                StillFlusher.made.round()  # the watchdog
                assert not job.session.is_on
                job.clock.tick(1_000)
    assert [gap for gap in job.table("gaps") if gap["why"] == "lost-window"] == []
    assert job.recording.off_reason is None
    windows = [(w["first_step"], w["last_step"], w["cut_step"], w["ended_by"]) for w in job.table("windows")]
    assert windows == [(0, 0, 1, "seconds"), (2, 3, None, "steps"), (4, 4, None, "loop")]


def test_a_long_step_closes_its_window_at_the_next_boundary(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=5)
    with job.recording as run:
        for _ in run.steps(job.loader(4)):
            job.work(3_000)
    assert [(w["first_step"], w["last_step"]) for w in job.table("windows")] == [(i, i) for i in range(4)]


@pytest.mark.parametrize("work_ms", [9, 2_500], ids=["many steps a flush", "many flushes a step"])
def test_a_sample_of_the_step_in_progress_outlives_the_flush(tmp_path, work_ms):
    job = Job(tmp_path, budget=0, flush_s=0.1)
    with job.recording as run:
        for _ in run.steps(job.loader(4)):
            for _ in range(3):
                job.work(work_ms)
                job.work(1_100)
                StillFlusher.made.round()
    assert [row["device_memory_bytes"] for row in job.table("steps")] == [4096] * 4


def test_memory_is_sampled_into_the_step_in_progress(job):
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(300))):
            job.work(6)
            if index % 150 == 100:
                StillFlusher.made.round()
            job.work(3)
    rows = job.table("steps")
    sampled = [row["step"] for row in rows if row["device_memory_bytes"] is not None]
    assert sampled == [0, 100, 250]
    assert rows[100]["device_memory_bytes"] == 4096
    assert rows[100]["host_rss_bytes"] > 1 << 20


def test_a_machine_clock_that_is_set_is_a_gap(job):
    with job.recording as run:
        for index, _ in enumerate(run.steps(job.loader(3))):
            StillFlusher.made.round()
            job.work()
            if index == 1:
                job.clock.unix_offset_ns -= 3_600_000_000_000
    steps = [gap for gap in job.table("gaps") if gap["why"] == "clock-step"]
    assert len(steps) == 1
    assert "-1.00 h" in steps[0]["unknown"]


def test_manifest_and_session_say_whose_run_it_is(job):
    with job.recording as run:
        for _ in run.steps(job.loader(1)):
            job.work()
    opened = open_run(job.path)
    assert opened.manifest.devices == ("fake:0",)
    assert len(opened.manifest.command) > 0
    session = job.shard().session
    assert session.framework == "fake"
    assert session.profiler_clock == "the fake clock"
    assert session.epoch_unix_ns == job.clock.unix_offset_ns + 5_000_000_000
    assert session.notes["pid"] == str(os.getpid())
    day_ps = 86_400 * 10**12
    assert 0 < int(session.notes["process_age_ps"]) < day_ps


def test_cost_ends_up_in_the_counters(tmp_path):
    job = Job(tmp_path, budget=None, window_steps=2)
    with job.recording as run:
        for _ in run.steps(job.loader(4)):
            job.work()
    counters = {row["name"]: row["value"] for row in job.table("counters")}
    cost = job.recording.cost
    assert counters["recorder.cost.stop"] == cost.stop_ps
    assert counters["recorder.cost.total"] == cost.total_ps
    assert counters["recorder.faults"] == 0
    assert counters["recorder.elapsed"] == cost.elapsed_ps


def test_the_same_path_again_is_another_attempt(tmp_path):
    for _ in range(2):
        job = Job(tmp_path)
        with job.recording as run:
            for _ in run.steps(job.loader(2)):
                job.work()
    assert sorted(path.name for path in job.path.glob("host=*")) == ["host=00000", "host=00000.1"]
    assert job.shard().session.restart_of == "host=00000"


def test_chance_differences_of_captured_steps_cancel():
    clock = FakeClock()
    windows = WindowRunner(FakeSession(), clock.as_clock(), CostAccount(), max_steps=1)
    charged = []
    for step, excess_ns in enumerate([5_000, -8_000, 6_000, 4_000, -1_000]):
        windows.open(step, Opening("sample", 0.5, False))
        charged.append(windows.close(step + 1, excess_ns).slowdown_ps)
    assert charged == [5_000_000, 0, 0, 2_000_000, 0]
