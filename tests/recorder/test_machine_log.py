"""Looks at the machine: what is read, what a system without it gives, and what it may cost."""

import os
import time

import pytest
from recorder_fakes import MS, FakeClock, FakeSession, fake_record

from phasepoint.core.tables import table_from_rows
from phasepoint.recorder.clock import machine
from phasepoint.recorder.clock.epoch import Epoch
from phasepoint.recorder.clock.machine import MachineLog
from phasepoint.store import open_run

EPOCH = Epoch(now_ns=0, unix_ns=0)


def look_twice(log):
    """Of a process that works for 50 ms of CPU time on this thread in between."""
    log.tend()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        sum(range(1000))
    log.tend(final=True)
    return list(log.take_rows(EPOCH))


def test_a_row_is_what_was_added_between_two_looks():
    began_ns = time.perf_counter_ns()
    log = MachineLog()
    (row,) = look_twice(log)
    assert began_ns * 1000 <= row["start_ps"]
    assert row["start_ps"] + row["dur_ps"] <= time.perf_counter_ns() * 1000
    assert row["run_ps"] is None or 40 * 10**9 <= row["run_ps"] <= 50 * row["dur_ps"]
    assert all(value is None or value >= 0 for value in row.values())
    assert row["probe_ps"] > 0
    assert not log.waiting
    assert table_from_rows("machine", [row]).num_rows == 1


def test_a_system_without_these_counters_gives_what_it_has(monkeypatch):
    def refuse(path):
        raise OSError(path)

    monkeypatch.setattr(machine, "_read", lambda path: None)
    monkeypatch.setattr(machine, "_read_again", lambda path, most_bytes=0: None)
    monkeypatch.setattr(machine.os, "listdir", refuse)
    (row,) = look_twice(MachineLog())
    unknown = ("wait_ps", "others_ps", "steal_ps", "throttled_ps", "cpu_pressure_ps", "memory_pressure_ps")
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert row["run_ps"] >= 40 * 10**9
    assert table_from_rows("machine", [row]).num_rows == 1


def test_a_file_that_stays_open_is_read_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_kept", {})
    counters = tmp_path / "counters"
    assert machine._read_again(str(counters)) is None
    for content in (b"cpu 1", b"cpu 2 and more"):
        counters.write_bytes(content)
        assert machine._read_again(str(counters)) == content
    os.close(machine._kept.pop(str(counters)))


def test_what_runs_on_cores_that_the_job_may_not_use_is_no_other_program(monkeypatch):
    """In a container with a set of cores /proc/stat still tells of the whole machine."""
    stat = b"cpu  90 0 0 5 0 0 0 9 0 0\n" + b"".join(b"cpu%d %d 0 0 5 0 1 0 3 0 0\n" % (i, 10 * i) for i in range(12))
    monkeypatch.setattr(machine, "_read_again", lambda path, most_bytes=0: stat)
    for cores, busy, stolen in (({1, 3}, 42, 6), ({1}, 11, 3), (set(range(12)), 90, 9)):
        monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid, cores=cores: cores)
        monkeypatch.setattr(machine.os, "cpu_count", lambda: 12)
        machine._cores.cache_clear()
        assert machine._machine() == (busy * machine._TICK_PS, stolen * machine._TICK_PS)
    machine._cores.cache_clear()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"some avg10=0.00 total=x\n", b"cpu 1 2 3\n"])
def test_counters_that_cannot_be_read_are_null(monkeypatch, content):
    monkeypatch.setattr(machine, "_read_again", lambda path, most_bytes=0: content)
    (row,) = look_twice(MachineLog())
    assert row["cpu_pressure_ps"] is row["others_ps"] is row["throttled_ps"] is None


def test_a_machine_that_takes_long_to_look_at_is_looked_at_less_often(monkeypatch):
    looks = []
    monkeypatch.setattr(machine.time, "monotonic", lambda: looks[-1] if looks else 0.0)
    monkeypatch.setattr(machine.time, "thread_time", lambda: len(taken) * 0.01)
    taken = []
    monkeypatch.setattr(machine, "read_totals", lambda: taken.append(0) or {"run": 0})
    log = MachineLog()
    for second in range(60):
        looks.append(float(second))
        log.tend()
    assert 6 <= len(taken) <= 7  # 10 ms each, a thousandth of the time


def test_a_recording_holds_looks_up_to_its_end(tmp_path):
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock)) as run:
        for _ in run.steps(range(50)):
            clock.tick(100)
            run.recorder._background.round(False)
    looks = open_run(tmp_path / "run").table("machine")
    end_ps = looks.column("start_ps")[-1].as_py() + looks.column("dur_ps")[-1].as_py()
    assert end_ps == pytest.approx(50 * 100 * MS * 1000, rel=0.01)
