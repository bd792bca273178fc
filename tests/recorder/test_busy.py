"""The stopwatch of the recorder's costs: CPU time and waiting count, other processes do not."""

import time

from phasepoint.recorder.clock import importing as busy


def test_waiting_for_a_free_core_is_taken_off(monkeypatch, tmp_path):
    schedstat = tmp_path / "schedstat"
    monkeypatch.setattr(busy, "_SCHEDSTAT", str(schedstat))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 5_000)
    schedstat.write_bytes(b"123456 1200 7\n")
    assert busy.busy_ns() == 3_800


def test_without_linux_it_is_the_wall_clock(monkeypatch, tmp_path):
    monkeypatch.setattr(busy, "_SCHEDSTAT", str(tmp_path / "missing"))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 5_000)
    assert busy.busy_ns() == 5_000
    (tmp_path / "missing").write_bytes(b"no numbers\n")
    assert busy.busy_ns() == 5_000
