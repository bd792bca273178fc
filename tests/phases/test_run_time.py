"""A time measured in captured steps, carried to the run: exact where it can be, bounded, and its interval holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tables import MS, captured_tables, noisy_run, steps_table

from phasepoint.estimates import estimate_totals
from phasepoint.estimates.run_time import _shown_by_all, estimate_time


def sampled_run(n, windows, rng, **noise):
    """The estimator's view of a run captured in these windows [(window, first step, steps)], and each step's parts."""
    dur, parts, labels = noisy_run(n, rng, **noise)
    tables = captured_tables(parts, windows)
    return estimate_totals(steps_table(dur), *tables, labels).sampled, parts


def windows_at(starts, steps=5):
    return [(number, int(first), steps) for number, first in enumerate(starts)]


@given(st.integers(0, 10**6), st.floats(0, 1), st.integers(1, 20))
@settings(max_examples=40)
def test_measured_steps_are_exact_and_no_step_gets_more_than_it_lasted(seed, share, count):
    rng = np.random.default_rng(seed)
    sampled, parts = sampled_run(400, windows_at(np.sort(rng.choice(79, count, replace=False)) * 5), rng)
    index = np.flatnonzero(rng.random(len(sampled.captured.row)) < 0.7)
    time_ps = (parts[sampled.captured.row[index], 0] * share).astype(np.int64)
    found = estimate_time(sampled.only(index), time_ps)
    assert found.by_step[sampled.captured.row[index]].tolist() == time_ps.tolist()
    assert (found.by_step >= 0).all()
    assert (found.by_step <= sampled.steps.dur_ps).all()
    assert int(time_ps.sum()) <= found.low_ps <= found.total_ps <= found.high_ps <= int(sampled.steps.dur_ps.sum())


def test_every_step_measured_is_exact_and_none_measured_is_nothing():
    rng = np.random.default_rng(1)
    sampled, parts = sampled_run(100, windows_at(range(0, 100, 5)), rng)
    found = estimate_time(sampled, parts[:, 0])
    assert found.low_ps == found.total_ps == found.high_ps == int(parts[:, 0].sum())
    nothing = estimate_time(sampled.only(np.zeros(0, np.int64)), np.zeros(0, np.int64))
    assert (nothing.total_ps, nothing.low_ps, nothing.high_ps) == (0, 0, 0)


def test_a_category_estimated_as_a_measured_time_is_the_category():
    """The same numbers by two ways: as a category of the breakdown, and as what a rule measured."""
    rng = np.random.default_rng(2)
    dur, parts, labels = noisy_run(2000, rng)
    estimates = estimate_totals(steps_table(dur), *captured_tables(parts, windows_at(range(0, 2000, 80))), labels)
    compute = next(part for part in estimates.categories.parts if part.name == "compute")
    seen = estimates.seen
    found = estimate_time(estimates.sampled, seen.parts_ps[:, 0])
    assert found.total_ps == pytest.approx(compute.total_ps, rel=1e-3)
    assert found.low_ps == pytest.approx(compute.low_ps, rel=1e-2)
    assert found.high_ps == pytest.approx(compute.high_ps, rel=1e-2)


def test_phases_that_are_not_wanted_are_left_at_nothing():
    rng = np.random.default_rng(3)
    sampled, parts = sampled_run(400, windows_at(range(0, 400, 20)), rng)
    seen = sampled.captured.row
    index = np.flatnonzero((seen // 100) % 4 != 3)
    found = estimate_time(sampled.only(index), parts[seen[index], 0], phases={0})
    assert not found.by_step[300:].any()
    assert found.by_step[:300].all()


def test_what_lasts_far_beyond_the_usual_can_be_left_out():
    dur, parts, labels = noisy_run(400, np.random.default_rng(4))
    dur[50] = 1000 * MS
    tables = captured_tables(parts, windows_at(range(0, 400, 20)))
    sampled = estimate_totals(steps_table(dur), *tables, labels).sampled
    index = np.arange(len(sampled.captured.row))
    time_ps = sampled.captured.parts_ps[:, 0]
    with_it = estimate_time(sampled.only(index), time_ps)
    without = estimate_time(sampled.only(index), time_ps, beyond_usual=False)
    assert with_it.by_step[50] > 100 * MS
    assert without.by_step[50] < 10 * MS
    assert without.high_ps - without.low_ps < with_it.high_ps - with_it.low_ps


def test_intervals_hold_the_truth():
    """Of 200 runs with other windows each, the 95 % interval holds the true sum in 90 % or more."""
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        starts = np.sort(rng.choice(398, 12, replace=False)) * 5
        sampled, parts = sampled_run(2000, windows_at(starts), rng)
        truth_ps = int(parts[:, 3].sum())
        found = estimate_time(sampled, parts[sampled.captured.row, 3])
        held += found.low_ps <= truth_ps <= found.high_ps
    assert held >= 180


@pytest.mark.parametrize("n_windows", [4, 6, 12])
def test_what_every_window_shows_is_there_at_least(n_windows):
    """Of 200 runs with other windows each, the bound alone holds in 95 % or more, whatever Student's interval says."""
    n, labels, held, tighter = 2000, np.zeros(2000, np.int64), 0, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        dur = np.asarray(10 * MS * np.exp(0.3 * rng.standard_normal(n)), np.int64)
        share = np.repeat(np.where(rng.random(n // 5) < 0.5, 0.15, 0.9), 5)  # of stretches of a window's length
        parts = np.zeros((n, 5), np.int64)
        parts[:, 0] = share * dur
        parts[:, 4] = dur - parts[:, 0]
        starts = np.sort(rng.choice(n // 5, n_windows, replace=False)) * 5
        sampled = estimate_totals(steps_table(dur), *captured_tables(parts, windows_at(starts)), labels).sampled
        rows = sampled.captured.row
        least_ps = _shown_by_all(sampled, parts[rows, 0], np.ones(n, bool), 0.95)
        held += least_ps <= parts[:, 0].sum()
        tighter += least_ps > parts[rows, 0].sum()
        assert estimate_time(sampled, parts[rows, 0]).low_ps >= least_ps
    assert held >= 190
    assert tighter == 200, "it says more than what was captured"


def test_few_windows_or_windows_by_choice_bound_nothing():
    rng = np.random.default_rng(3)
    dur, parts, labels = noisy_run(400, rng)
    for starts, chance in (((0, 100, 200), 0.01), (range(0, 400, 50), None)):
        tables = captured_tables(parts, windows_at(starts), probability=chance)
        sampled = estimate_totals(steps_table(dur), *tables, labels).sampled
        assert _shown_by_all(sampled, parts[sampled.captured.row, 0], np.ones(400, bool), 0.95) == 0


def test_what_an_unusually_long_step_did_is_no_more_of_the_others_than_of_itself():
    """One captured step, 20 times as long as the others: the same share of each, and nobody knows."""
    dur, parts, labels = noisy_run(400, np.random.default_rng(5))
    dur[50], parts[50] = 20 * dur[50], 20 * parts[50]
    sampled = estimate_totals(steps_table(dur), *captured_tables(parts, [(0, 50, 1)]), labels).sampled
    found = estimate_time(sampled, parts[[50], 0])
    assert found.total_ps == pytest.approx(int(parts[50, 0]) / int(dur[50]) * int(dur.sum()), rel=0.02)
    assert found.low_ps < found.total_ps / 3
    assert found.high_ps > 1.5 * found.total_ps
