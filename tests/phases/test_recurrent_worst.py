"""Runs on which the default method once failed: short, noisy, with trouble that looks like a pattern."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import hypergeom, norm
from sklearn.metrics import adjusted_rand_score

from phasepoint.phases import detect_phases
from phasepoint.phases.detection.signals.changepoints import estimate_noise
from phasepoint.phases.detection.signals.periodicity import (
    _log_draw_tail,
    _normal_tail,
    find_folded_blocks,
    find_schedule,
)

STEP_PS = 10**11


def labels(mean, noise, seed, odd=()):
    """Labels of a run of log-normal noise whose steps `odd` take six times as long."""
    rng = np.random.default_rng(seed)
    dur = np.asarray(mean, float) * np.exp(noise * rng.standard_normal(len(mean)))
    dur[list(odd)] *= 6
    return detect_phases(pa.table({"step": np.arange(len(dur)), "dur_ps": (dur * STEP_PS).astype(np.int64)})).labels


@pytest.mark.parametrize("seed", range(8))
def test_five_checkpoints_in_a_hundred_noisy_steps_beside_an_outlier(seed):
    saves = np.arange(100) % 19 == 18
    assert np.array_equal(labels(np.where(saves, 8.0, 1.0), 0.2, seed, odd=[43]), saves.astype(int))


@pytest.mark.parametrize("seed", range(8))
def test_four_evenly_spaced_outliers_among_fifteen_are_no_schedule(seed):
    odd = [61, 100, 139, 207, 300, 333, 411, 500, 546, 588, 700, 731, 802, 877, 951]
    assert not labels(np.ones(1000), 0.1, seed, odd=odd).any()


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("begin", [35, 47])
def test_cycle_that_begins_late_beside_an_outlier(begin, noise):
    at = np.arange(100)
    turns = (at >= begin) & (at % 6 == 5)
    found = labels(np.where(turns, 2.3, 1.0), noise, 3, odd=[50])
    assert adjusted_rand_score(turns, found) > 0.9


@pytest.mark.parametrize("seed", range(6))
def test_a_recompiled_step_is_the_boundary_of_a_small_change(seed):
    truth = np.repeat([1, 2], [60, 40])
    mean = np.where(truth == 2, 1.4, 1.0)
    truth[[0, 60]], mean[[0, 60]] = 0, 50.0
    assert np.array_equal(labels(mean, 0.2, seed), truth)


@pytest.mark.parametrize("seed", range(4))
def test_short_returns_of_a_level_are_no_drift(seed):
    mean = np.repeat([1.0, 1.5, 1.0, 1.5, 1.0, 1.5], [2500, 2000, 2000, 500, 500, 2500])
    assert adjusted_rand_score(mean > 1, labels(mean, 0.2, seed)) > 0.97


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_drift_from_end_to_end_among_outliers_is_one_phase(seed, noise):
    odd = np.random.default_rng(100 + seed).choice(1000, 10, replace=False)
    assert not labels(np.linspace(1, 1.6, 1000), noise, seed, odd=odd).any()


@pytest.mark.parametrize("seed", range(6))
def test_blocks_that_fill_a_quarter_of_a_short_run(seed):
    blocks = np.arange(100) % 20 >= 15
    assert adjusted_rand_score(blocks, labels(np.where(blocks, 0.42, 1.0), 0.15, seed)) > 0.85


def test_noise_of_short_runs_is_not_taken_for_less():
    runs = np.random.default_rng(0).standard_normal((400, 100))
    found = np.array([estimate_noise(run) for run in runs])
    assert found.min() > 0.7
    assert 0.97 < np.median(found) < 1.07


def test_noise_of_an_alternation_is_that_within_its_members():
    turns = np.where(np.arange(1000) % 6 == 5, 8.0, 0.0)
    assert estimate_noise(turns + np.random.default_rng(1).standard_normal(1000)) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("count", "marked", "drawn", "n"), [(4, 5, 6, 100), (5, 5, 5, 100), (3, 20, 40, 1000)])
def test_chance_of_a_schedule_is_the_hypergeometric_tail(count, marked, drawn, n):
    assert _log_draw_tail(count, marked, drawn, n) == pytest.approx(hypergeom.logsf(count - 1, n, marked, drawn))


def test_as_many_sets_as_were_tried_raise_the_bar():
    events = np.array([10, 29, 48, 60, 67, 86])
    assert find_schedule(events, 100) is not None
    assert find_schedule(events, 100, tried=10_000) is None


@pytest.mark.parametrize("chance", [1e-4, 1e-7, 1e-10])
def test_normal_tail_is_a_little_on_the_safe_side(chance):
    assert norm.isf(chance) <= _normal_tail(chance) < norm.isf(chance) + 0.1


def labels_with_ops(dur, ops, captured, seed):
    """Labels of steps of these durations, of which the captured ones ran `ops[step]` in equal parts."""
    n, rng = len(dur), np.random.default_rng(seed)
    dur_ps = (np.asarray(dur) * np.exp(0.02 * rng.standard_normal(n)) * STEP_PS).astype(np.int64)
    rows = [
        {"step": step, "op": op, "count": 1, "self_ps": int(dur_ps[step]) // len(ops[step])}
        for step in captured
        for op in ops[step]
    ]
    steps = pa.table({"step": np.arange(n), "dur_ps": dur_ps})
    return detect_phases(steps, pa.Table.from_pylist(rows)).labels


EARLY = [*range(100, 110), *range(304, 319), *range(512, 522), *range(901, 911)]
"""Captured in both sorts of step."""


@pytest.mark.parametrize("seed", range(4))
def test_windows_that_chance_put_into_evaluations_are_no_change_for_good(seed):
    evals = np.arange(2000) % 20 >= 15
    ops = [("loss",) if one else ("loss", "gradient", "update") for one in evals]
    late = [at + i for at in (1215, 1336, 1455, 1635, 1875) for i in range(5)]
    found = labels_with_ops(np.where(evals, 0.4, 1.0), ops, EARLY + late, seed)
    assert adjusted_rand_score(evals, found) > 0.98


@pytest.mark.parametrize("after", [1.0, 0.6])
@pytest.mark.parametrize("seed", range(4))
def test_other_ops_for_good_are_a_change_whatever_the_clock_says(seed, after):
    changed = np.arange(2000) >= 1200
    ops = [("loss",) if one else ("loss", "gradient", "update") for one in changed]
    late = [at + i for at in (1200, 1215, 1336, 1455, 1635, 1875) for i in range(5)]
    found = labels_with_ops(np.where(changed, after, 1.0), ops, [*EARLY, *range(1194, 1199), *late], seed)
    assert adjusted_rand_score(changed, found) > 0.98


@pytest.mark.parametrize("seed", [18, 21, 22])
def test_steps_that_neighbours_slow_in_a_row_are_no_schedule(seed):
    """Noise of which each step takes over half from the one before; as if independent, it held a block that returns."""
    rng = np.random.default_rng(seed)
    own, noise = rng.normal(0, 1, 500), np.zeros(500)
    for at in range(1, 500):
        noise[at] = 0.5 * noise[at - 1] + own[at] * 0.75**0.5
    assert find_folded_blocks(0.1 * noise, estimate_noise(0.1 * noise), 17) == []
