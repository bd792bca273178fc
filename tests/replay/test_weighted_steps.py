"""Totals of a stratified sample, against a slow oracle and by hand."""

from fractions import Fraction

import numpy as np
import pytest
from compact_runs import oracle
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from phasepoint.estimates.stratified import (
    ChosenSteps,
    estimate_from_steps,
    half_widths,
    round_closing,
    welch_freedom,
)


@st.composite
def samples(draw, most_ps=10**15):
    """Stratum and value of each chosen step, and the strata's sizes; two steps of each at least, or all of it."""
    stratum, values, size = [], [], []
    for index in range(draw(st.integers(1, 5))):
        mine = draw(st.lists(st.integers(0, most_ps), min_size=2, max_size=6))
        stratum += [index] * len(mine)
        values += mine
        size.append(len(mine) + draw(st.integers(0, 50)))
    return stratum, values, size


def estimate(stratum, values, size):
    columns = np.array(values, np.int64).reshape(len(values), -1)
    return estimate_from_steps(ChosenSteps(np.array(stratum), columns, np.array(size)))


@given(samples())
def test_total_and_variance_are_those_of_the_book(sample):
    total, variance, freedom = oracle(*sample)
    found = estimate(*sample)
    assert found.totals == (total,)
    assert found.variances.sum() == pytest.approx(variance, rel=1e-9, abs=1e-9 * float(total) ** 2 + 1e-9)
    half = half_widths(found.variances, found.freedom, 0.95)[0]
    if variance > 1e-9 * float(total) ** 2:
        assert half == pytest.approx(variance**0.5 * stats.t.ppf(0.975, max(freedom, 1)), rel=1e-6, abs=1)


def test_the_degrees_of_freedom_are_right_on_average():
    """Ten estimates of one variance, of one degree each, have ten together; Satterthwaite's formula says four."""
    variances = np.random.default_rng(0).chisquare(1, (4000, 10))
    found = [welch_freedom(row, np.ones(10)) for row in variances]
    assert np.median(found) == pytest.approx(10, rel=0.15)
    assert welch_freedom(np.array([3.0]), np.array([4.0])) == pytest.approx(4)


def test_by_hand():
    found = estimate([0, 0, 1], [10, 20, 7], [10, 1])
    assert found.totals == (Fraction(10 * 15 + 7),)
    assert found.variances[:, 0].tolist() == [100 * (1 - 2 / 10) * 50 / 2, 0]
    assert half_widths(found.variances, found.freedom, 0.95) == [int(np.ceil(2000**0.5 * 12.7062047361747))]


@given(samples(), st.randoms())
def test_the_order_of_the_steps_is_nothing(sample, random):
    stratum, values, size = sample
    order = list(range(len(values)))
    random.shuffle(order)
    mixed = estimate([stratum[i] for i in order], [values[i] for i in order], size)
    assert mixed.totals == estimate(*sample).totals


@given(samples())
def test_all_steps_chosen_leave_nothing_to_estimate(sample):
    stratum, values, _ = sample
    found = estimate(stratum, values, np.bincount(stratum).tolist())
    assert found.totals == (sum(values),)
    assert half_widths(found.variances, found.freedom, 0.95) == [0]


def test_one_step_for_several_has_no_interval():
    found = estimate([0], [10], [3])
    assert found.totals == (30,)
    assert half_widths(found.variances, found.freedom, 0.95) == [None]


@pytest.mark.parametrize("size", [[1, 5], [2]])
def test_a_sample_that_does_not_fit_its_strata_is_refused(size):
    with pytest.raises(ValueError, match="expected 1 to all of each"):
        estimate([0, 0, 0] if len(size) == 1 else [0], [1, 2, 3][: 3 if len(size) == 1 else 1], size)


@given(st.lists(st.fractions(0, 10**12), min_size=1, max_size=9))
def test_rounding_closes_and_moves_nothing_by_more_than_one(parts):
    total = round(sum(parts))
    whole = round_closing(parts, total)
    assert sum(whole) == total
    assert all(abs(a - b) <= 1 for a, b in zip(whole, parts, strict=True))
