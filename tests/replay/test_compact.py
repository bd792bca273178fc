"""`compact_run` on small runs: weights, notes, hosts, what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.core.tables import CATEGORIES, table_from_rows
from phasepoint.replay.compact.compact import compact_run
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run

MS = 10**9
N = 200
WINDOW_STEPS = 5
START_NS = 1_700_000_000_000_000_000


def write_run(path, *, hosts=(N,), captured=()):
    """A run with so many steps on each host, of 10 ms and, every tenth, 30 ms; windows on host 0."""
    create_run(path, command=("python", "train.py"), frameworks={"jax": "0.10.2"}, devices=("cpu",))
    for host, n in enumerate(hosts):
        writer = open_shard(path, host, epoch_unix_ns=START_NS, clock=lambda: START_NS + 10**10)
        dur = [30 * MS if step % 10 == 9 else 10 * MS + step * 1000 for step in range(n)]
        start = np.concatenate(([0], np.cumsum(dur)[:-1])).tolist() if n else []
        steps = [
            {"step": step, "start_ps": start[step], "dur_ps": dur[step], "input_ps": MS, "compile_ps": 0}
            for step in range(n)
        ]
        writer.append("steps", table_from_rows("steps", steps))
        if host == 0 and captured:
            _write_windows(writer, captured, start, dur)
        writer.close()
    return analyse_run(open_run(path))


def _write_windows(writer, captured, start, dur):
    windows, rows = [], []
    for number, first in enumerate(captured):
        last = first + WINDOW_STEPS - 1
        windows.append(
            {
                **{"window": number, "first_step": first, "last_step": last, "start_ps": start[first]},
                **{"dur_ps": start[last] + dur[last] - start[first], "reason": "sample", "probability": 0.1},
                **{"start_cost_ps": MS, "slowdown_cost_ps": 0, "stop_cost_ps": MS, "write_cost_ps": None},
                **{"capture_cost_ps": 2 * MS, "format": "xplane", "raw": None, "bytes": 1000},
            }
        )
        for step in range(first, last + 1):
            walls = dict.fromkeys(CATEGORIES, 0) | {"compute": 7 * MS, "idle": dur[step] - 7 * MS}
            base = {"window": number, "step": step, "device": "cpu:0"}
            rows += [{**base, "category": category, "wall_ps": wall} for category, wall in walls.items()]
    writer.append("windows", table_from_rows("windows", windows))
    writer.append("breakdowns", table_from_rows("breakdowns", rows))


def steps_of(found):
    return [step for one in found.windows for step in range(one.first_step, one.last_step + 1)]


def test_windows_say_all_that_the_estimate_is_made_of(tmp_path):
    found = compact_run(write_run(tmp_path / "run", captured=(20, 60, 110, 160)), budget=0.3)
    assert (found.steps_used, found.steps_total) == (60, N)
    assert len(steps_of(found)) == len(set(steps_of(found))) == 60
    assert sum(one.weight * one.n_steps for one in found.windows) == pytest.approx(N)
    assert sum(one.weight * one.dur_ps for one in found.windows) == pytest.approx(found.estimate_ps, rel=1e-9)
    captured = {step for one in found.windows if one.captured for step in range(one.first_step, one.last_step + 1)}
    assert captured == {first + i for first in (20, 60, 110, 160) for i in range(WINDOW_STEPS)}
    assert all(one.weight == 1 for one in found.windows if one.captured)
    parts = {part.name: part for part in found.by_category}
    assert sum(part.estimate_ps for part in found.by_category) == found.estimate_ps
    assert parts["input"].estimate_ps == pytest.approx(N * MS, rel=0.02)
    assert found.notes == ("categories rest on 20 captured steps in 4 windows, time on all 60",)


def test_a_run_captured_in_full_needs_no_other_steps(tmp_path):
    found = compact_run(write_run(tmp_path / "run", captured=range(0, N, WINDOW_STEPS)), budget=0.2)
    assert all(one.captured for one in found.windows)
    assert all(part.actual_ps is not None for part in found.by_category)
    assert {part.name: part.actual_ps for part in found.by_category}["compute"] == 7 * MS * N
    assert sum(part.actual_ps for part in found.by_category) == found.actual_ps
    assert found.notes == ()


def test_the_whole_budget_is_the_whole_run(tmp_path):
    found = compact_run(write_run(tmp_path / "run", captured=range(0, N, WINDOW_STEPS)), budget=1.0)
    assert found.low_ps == found.estimate_ps == found.high_ps == found.actual_ps
    for part in (*found.by_category, *found.by_phase):
        assert part.low_ps == part.estimate_ps == part.high_ps == part.actual_ps


def test_a_run_without_windows_is_estimated_in_time_alone(tmp_path):
    found = compact_run(write_run(tmp_path / "run"), budget=0.1)
    assert found.by_category == ()
    assert found.estimate_ps == pytest.approx(found.actual_ps, rel=0.01)
    assert found.notes[0].startswith("the run has no converted capture window")


def test_windows_that_do_not_fit_into_the_budget_are_chosen_among(tmp_path):
    analysis = write_run(tmp_path / "run", captured=(20, 60, 110, 160))
    found = compact_run(analysis, budget=0.1)
    assert sum(one.n_steps for one in found.windows if one.captured) in range(10, 13)
    chosen = {
        tuple(one.first_step for one in compact_run(analysis, budget=0.1, seed=s).windows if one.captured)
        for s in range(20)
    }
    assert len(chosen) > 3


def test_a_window_that_does_not_fit_into_the_budget_says_nothing(tmp_path):
    none = compact_run(write_run(tmp_path / "run", captured=(20,)), budget=0.03)
    assert none.by_category == ()
    assert "no capture window fits into the budget: nothing is said of what the time went into" in none.notes


def test_the_host_with_most_steps_is_meant(tmp_path):
    found = compact_run(write_run(tmp_path / "run", hosts=(50, 80)), budget=0.5)
    assert (found.host, found.steps_total) == (1, 80)
    assert {one.host for one in found.windows} == {1}
    assert "the steps of host 1 are meant, which has most; 1 more are left out" in found.notes


def test_one_step_gives_no_interval(tmp_path):
    found = compact_run(write_run(tmp_path / "run"), budget=0.005)
    assert found.steps_used == 1
    assert found.high_ps is None
    assert found.notes[-1].startswith("one step stands for several")


@pytest.mark.parametrize("budget", [0, -0.1, 1.01, float("nan")])
def test_a_budget_that_is_none_is_refused(tmp_path, budget):
    with pytest.raises(UsageError, match="above 0 and at most 1"):
        compact_run(write_run(tmp_path / "run", hosts=(20,)), budget=budget)


def test_less_than_one_step_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"1 % of 20 steps is less than one step; give at least 5.0 %"):
        compact_run(write_run(tmp_path / "run", hosts=(20,)), budget=0.01)


def test_a_run_without_steps_is_refused(tmp_path):
    with pytest.raises(NoDataError, match="no steps were recorded"):
        compact_run(write_run(tmp_path / "run", hosts=(0,)))


def test_nothing_of_the_run_is_changed(tmp_path):
    analysis = write_run(tmp_path / "run", captured=(20, 60))
    before = [analysis.clock.dur_ps.copy(), analysis.labels.copy(), analysis.estimates.seen.parts_ps.copy()]
    tables = dict(analysis.tables)
    compact_run(analysis, budget=0.2)
    after = [analysis.clock.dur_ps, analysis.labels, analysis.estimates.seen.parts_ps]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(isinstance(t, pa.Table) and t.equals(analysis.tables[name]) for name, t in tables.items())
