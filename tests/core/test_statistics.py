"""Order statistics, apportioning and the formulas of estimates, against values worked out by hand or by brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.statistics import (
    apportion,
    median,
    median_absolute_deviation_ps,
    median_ps,
    quantile_ps,
    row_medians,
    satterthwaite_freedom,
    t_quantile,
)


@pytest.mark.parametrize(
    ("q", "expected"), [(0.0, 10), (0.05, 10), (0.25, 10), (0.26, 20), (0.5, 20), (0.95, 40), (1, 40)]
)
def test_quantile_is_one_of_the_values_by_nearest_rank(q, expected):
    assert quantile_ps(np.array([40, 10, 30, 20]), q) == expected


def test_lower_median_and_deviation():
    assert median_ps(np.array([4, 1, 3, 2])) == 2
    assert median_absolute_deviation_ps(np.array([1, 2, 3, 100])) == 1


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=50), st.floats(0, 1))
def test_quantile_agrees_with_sorting(values, q):
    rank = max(int(np.ceil(q * len(values) - 1e-9)) - 1, 0)
    assert quantile_ps(np.array(values), q) == sorted(values)[rank]


def test_quantiles_refuse_nothing_and_nonsense():
    with pytest.raises(ValueError, match="at least one value"):
        quantile_ps(np.array([], np.int64), 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_ps(np.array([1]), 1.5)


def test_t_quantiles_are_those_of_the_tables():
    assert t_quantile(0.975, 9) == pytest.approx(2.2622, abs=1e-4)
    assert t_quantile(0.975, 1e9) == pytest.approx(1.95996, abs=1e-4)


def test_apportion_by_largest_remainder():
    assert apportion(10, np.array([1.0, 1.0, 1.0])).tolist() == [4, 3, 3]
    assert apportion(0, np.array([0.0])).tolist() == [0]
    with pytest.raises(ValueError, match="cannot split 5"):
        apportion(5, np.array([0.0]))


@given(st.integers(0, 2**62), st.lists(st.floats(0, 1e15), min_size=1, max_size=9))
def test_apportion_adds_up_and_stays_near_the_exact_share(total, weights):
    weights = np.array(weights)
    if weights.sum() <= 0:
        return
    parts = apportion(total, weights)
    assert sum(map(int, parts)) == total
    assert parts.min() >= 0
    exact = weights / weights.sum() * total
    assert np.all(np.abs(parts - exact) <= 1 + 1e-9 * total)


def test_satterthwaite():
    freedom = satterthwaite_freedom(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([4.0, 4.0]))
    assert freedom[0] == pytest.approx(8)
    assert np.isinf(freedom[1])


def test_apportion_takes_the_least_weight_there_is():
    assert apportion(1, np.array([0.0, 5e-324])).tolist() == [0, 1]
    assert apportion(10, np.array([2.2e-309, 2.2e-309])).tolist() == [5, 5]


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=60), st.integers(1, 4))
def test_medians_are_numpys_to_the_last_bit(values, n_rows):
    rows = np.array([np.roll(values, i) * 0.1 * (i + 1) for i in range(n_rows)])
    assert row_medians(rows).tolist() == np.median(rows, axis=1).tolist()
    assert median(rows[0]) == np.median(rows[0])


def test_the_median_of_integers():
    assert median(np.array([7, 2, 4, 3])) == 3.5
