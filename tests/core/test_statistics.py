"""Order statistics, apportioning and the formulas of estimates, against values worked out by hand or by brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.statistics import (
    apportion,
    cluster_ratio,
    median_absolute_deviation_ps,
    median_ps,
    quantile_ps,
    satterthwaite_freedom,
    t_quantile,
    weighted_quantile_ps,
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
    with pytest.raises(ValueError, match="some weight"):
        weighted_quantile_ps(np.array([1]), np.array([0.0]), 0.5)


def test_weighted_quantile_follows_the_weight():
    values, weights = np.array([30, 10, 20]), np.array([1.0, 8.0, 1.0])
    assert [weighted_quantile_ps(values, weights, q) for q in (0.5, 0.8, 0.85, 0.95)] == [10, 10, 20, 30]


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


def test_cluster_ratio_is_the_delete_one_jackknife():
    """The oracle leaves out one cluster at a time and looks how the ratio moves."""
    rng = np.random.default_rng(1)
    x = rng.uniform(5, 15, 12)
    y = x * rng.normal(0.3, 0.05, 12)
    found = cluster_ratio(y[:, None], x)
    left_out = np.array([np.delete(y, i).sum() / np.delete(x, i).sum() for i in range(12)])
    jackknife = 11 / 12 * ((left_out - y.sum() / x.sum()) ** 2).sum()
    assert found.ratio[0] == pytest.approx(y.sum() / x.sum())
    assert found.variance[0] == pytest.approx(jackknife, rel=1e-9)
    assert found.freedom == 11


def test_cluster_ratio_weights_by_inverse_probability():
    y, x = np.array([[1.0], [9.0]]), np.array([10.0, 10.0])
    assert cluster_ratio(y, x, np.array([3.0, 1.0])).ratio[0] == pytest.approx(12 / 40)
    with pytest.raises(ValueError, match="two clusters"):
        cluster_ratio(y[:1], x[:1])


def test_satterthwaite():
    freedom = satterthwaite_freedom(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([4.0, 4.0]))
    assert freedom[0] == pytest.approx(8)
    assert np.isinf(freedom[1])
