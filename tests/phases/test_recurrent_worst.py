"""Runs on which the default method once failed: short, noisy, with trouble that looks like a pattern."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import hypergeom, norm
from sklearn.metrics import adjusted_rand_score

from phasepoint.phases import detect_phases
from phasepoint.phases.folding import _normal_tail
from phasepoint.phases.noise import estimate_noise
from phasepoint.phases.schedule import _log_draw_tail, find_schedule

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
