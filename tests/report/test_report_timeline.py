import numpy as np
import pyarrow as pa
import pytest
from made_run import STALL, step_rows

from phasepoint.core.units import PS_PER_MS
from phasepoint.summary import timeline as module
from phasepoint.summary.timeline import MAX_MARKS, TimelineMark, _merge_marks, build_timeline


def test_every_step_is_a_point_where_they_are_few(opened):
    _, summary, line = opened
    rows = step_rows()
    assert line.all_steps
    assert [(p.at_ps, p.step, p.dur_ps, p.input_ps) for p in line.points] == [
        (row["start_ps"], row["step"], row["dur_ps"], row["input_ps"]) for row in rows
    ]
    phase_of = {s.phase: s.name for s in summary.strip}
    stalled = {p.phase for p in line.points if p.step in STALL}
    assert len(stalled) == 1
    assert "stall" in phase_of[stalled.pop()]


def test_bins_hold_every_step_once(opened):
    line = opened[2]
    assert sum(one.n_steps for one in line.bins) == len(step_rows())
    stall = [one for one in line.bins if one.first_step in STALL]
    assert all(one.input_share == pytest.approx(150 / (one.median_ps / PS_PER_MS), rel=1e-6) for one in stall)


def test_a_long_run_keeps_the_slowest_step_of_every_bin(opened, monkeypatch):
    run, summary, _ = opened
    monkeypatch.setattr(module, "MAX_POINTS", 50)
    monkeypatch.setattr(module, "BINS", 20)
    line = build_timeline(run, summary)
    assert not line.all_steps
    assert len(line.points) == len(line.bins) <= 20
    assert [p.dur_ps for p in line.points] == [one.max_ps for one in line.bins]
    for one in line.bins:
        durations = sorted(r["dur_ps"] for r in step_rows() if one.first_step <= r["step"] <= one.last_step)
        assert len(durations) == one.n_steps
        assert one.median_ps == durations[-(-one.n_steps // 2) - 1]
        assert one.p05_ps <= one.median_ps <= one.p95_ps <= one.max_ps == durations[-1]


def test_memory_and_counters_are_the_samples(opened):
    series = {one.name: one for one in opened[2].series}
    assert set(series) == {"host memory", "power, cpu:0"}
    sampled = [(row["start_ps"], float(row["host_rss_bytes"])) for row in step_rows() if row["host_rss_bytes"]]
    assert list(zip(series["host memory"].at_ps, series["host memory"].values, strict=True)) == sampled
    assert series["power, cpu:0"].unit == "W"


def test_times_among_the_counters_are_shown_in_ms():
    columns = {
        "name": ["gc.pause"] * 3,
        "unit": ["ps"] * 3,
        "device": ["host"] * 3,
        "host": [0] * 3,
        "attempt": [0] * 3,
    }
    counters = pa.table({**columns, "time_ps": [0, 10**12, 2 * 10**12], "value": [0.0, 2.5e9, 4e7]})
    (series,) = module._counter_series(counters, 0, {0: 0}, np.arange(5) * 10**12)
    assert (series.name, series.unit, series.values) == ("gc.pause, host", "ms", (0.0, 2.5, 0.04))


def test_marks(opened):
    line = opened[2]
    assert [mark.text for mark in line.windows][:2] == [
        "window 0: steps 10 to 14 (sample)",
        "window 1: steps 40 to 44 (sample)",
    ]
    assert [mark.text for mark in line.hints] == ["eval"]
    assert len(line.checkpoints) == 2
    assert [(mark.start_ps, mark.dur_ps) for mark in line.gaps] == [(0, 100 * PS_PER_MS)]


def test_too_many_marks_are_drawn_together_and_none_is_lost():
    marks = [TimelineMark(i * 10, 4, f"window {i}") for i in range(5_000)]
    merged = _merge_marks(marks, "windows", 50_000)
    assert len(merged) <= MAX_MARKS
    assert sum(mark.count for mark in merged) == len(marks)
    assert merged[0] == TimelineMark(0, 94, "10 windows, the first: window 0", 10)


def test_the_run_is_not_changed(opened):
    run, summary, line = opened
    assert build_timeline(run, summary) == line
    assert isinstance(run.table("steps"), pa.Table)
    assert np.all(np.diff([p.at_ps for p in line.points]) >= 0)
