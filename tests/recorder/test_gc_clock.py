"""Pauses of the garbage collector: timed to the nanosecond, written with each flush, and never the job's problem."""

import gc
import sys

import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record

from phasepoint.core.units import PS_PER_MS
from phasepoint.recorder.clock.epoch import Epoch
from phasepoint.recorder.clock.gc_clock import LONG_PAUSE, PAUSE, GcClock
from phasepoint.store import open_run

EPOCH = Epoch(now_ns=5_000_000_000, unix_ns=0)


@pytest.fixture(autouse=True)
def quiet_collector():
    """No collection but those the test asks for, and these look only at what the test makes: other tests' are many."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


class Slow:
    """A collector's callback that takes time on the fake clock, between ours."""

    def __init__(self, clock, ms):
        self.clock, self.ms = clock, list(ms)

    def __call__(self, phase, info):
        if phase == "stop" and self.ms:
            self.clock.tick(self.ms.pop(0))


def collect(gc_clock, clock, *pauses_ms):
    slow = Slow(clock, pauses_ms)
    gc.callbacks.append(slow)  # before ours at each end, so that its time is the collection's
    remove = gc_clock.watch()
    for _ in pauses_ms:
        gc.collect()
    remove()
    gc.callbacks.remove(slow)


def test_short_pauses_are_summed_and_long_ones_told():
    clock = FakeClock()
    gc_clock = GcClock(clock.now_ns)
    clock.tick(100)
    collect(gc_clock, clock, 2, 3, 25, 4)
    rows = gc_clock.take_rows(EPOCH, 140 * PS_PER_MS)
    told = [(row["name"], row["time_ps"] // PS_PER_MS, row["value"] / PS_PER_MS) for row in rows]
    assert told == [(LONG_PAUSE, 105, 25.0), (PAUSE, 140, 34.0)]
    assert {(row["unit"], row["device"]) for row in rows} == {("ps", "host")}


def test_a_sample_counts_from_the_one_before():
    clock = FakeClock()
    gc_clock = GcClock(clock.now_ns)
    collect(gc_clock, clock, 2)
    gc_clock.take_rows(EPOCH, 0)
    collect(gc_clock, clock, 3, 1)
    assert [row["value"] for row in gc_clock.take_rows(EPOCH, 1)] == [4.0 * PS_PER_MS]
    assert [row["value"] for row in gc_clock.take_rows(EPOCH, 2)] == [0.0]


def test_cost_is_charged_once():
    gc_clock = GcClock()
    collect(gc_clock, FakeClock(), 1, 1, 1)
    assert gc_clock.collections == 3
    assert gc_clock.take_cost_ps() == 3 * 1_300_000
    assert gc_clock.take_cost_ps() == 0


def test_a_collection_that_began_before_we_listened_is_not_timed():
    gc_clock = GcClock()
    gc_clock._on_collection("stop", {})
    assert gc_clock.collections == 0


def test_removing_leaves_the_others_and_the_settings():
    before, settings = list(gc.callbacks), (gc.isenabled(), gc.get_threshold(), gc.get_debug())
    remove = GcClock().watch()
    assert len(gc.callbacks) == len(before) + 1
    remove()
    remove()
    assert gc.callbacks == before
    assert (gc.isenabled(), gc.get_threshold(), gc.get_debug()) == settings


def test_a_fault_reaches_neither_the_job_nor_its_stderr(monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    clock = FakeClock()
    gc_clock = GcClock(clock.now_ns)
    clock.fails = True
    collect(gc_clock, clock, 1, 1)
    assert unraisable == []
    assert isinstance(gc_clock.fault, OSError)
    assert gc_clock.take_rows(EPOCH, 0) == []


@pytest.mark.usefixtures("still")
def test_a_recording_writes_its_pauses_and_takes_its_callback_out(tmp_path):
    clock, before = FakeClock(), list(gc.callbacks)
    slow = Slow(clock, [30, 2])
    gc.callbacks.append(slow)
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0) as run:
        for step in run.steps(range(20)):
            if step in {3, 12}:
                gc.collect()
            clock.tick(400)
            StillFlusher.made.round()
    gc.callbacks.remove(slow)
    assert gc.callbacks == before
    opened = open_run(tmp_path / "run")
    rows = opened.table("counters").to_pylist()
    pauses = [row for row in rows if row["name"] == PAUSE]
    long = [row for row in rows if row["name"] == LONG_PAUSE]
    assert sum(row["value"] for row in pauses) == 32.0 * PS_PER_MS
    assert [(row["time_ps"], row["value"]) for row in long] == [(1_200 * PS_PER_MS, 30.0 * PS_PER_MS)]
    assert len(pauses) <= 8_000 // 3_000 + 2  # one a flush, of three seconds each
    steps = opened.table("steps").to_pylist()
    assert steps[3]["dur_ps"] == 430 * PS_PER_MS
    assert [row["value"] > 1e8 for row in rows if row["name"] == "memory.limit"] == [True]


@pytest.mark.usefixtures("still")
def test_a_fault_switches_the_recorder_off_and_is_told(tmp_path, capsys, monkeypatch):
    def fail(self, began_ns):
        raise RuntimeError("boom")

    monkeypatch.setattr(GcClock, "_end", fail)
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0, flush_s=0.1) as run:
        seen = []
        for step in run.steps(range(20)):
            gc.collect()
            clock.tick(400)
            StillFlusher.made.round()
            seen.append(step)
    assert seen == list(range(20))
    assert "RuntimeError in GcClock: boom" in capsys.readouterr().err
