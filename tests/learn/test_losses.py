import numpy as np
import pytest

from phasepoint.learn.models.network_training import huber_log_error, rank_loss, relative_error, squared_log_error

ONE = np.ones(2)


def test_squared_error_is_weighted():
    guess, truth, weight = np.array([1.0, 3.0, 9.0]), np.array([1.5, 2.0, 0.0]), np.array([1.0, 3.0, 0.0])
    assert squared_log_error(np, guess, truth, weight) == pytest.approx((0.25 + 3 * 1.0) / 4)


def test_huber_is_square_within_and_linear_beyond():
    assert huber_log_error(np, np.array([0.05, 1.1]), np.zeros(2), ONE) == pytest.approx((0.0125 + 1.05) / 2)


def test_relative_error_is_the_reported_one_above_the_truth():
    truth = np.log(np.array([2.0, 10.0]))
    guess = np.log(np.array([3.0, 13.0]))
    assert relative_error(np, guess, truth, ONE) == pytest.approx((0.5 + 0.3) / 2, abs=1e-3)


def test_relative_error_goes_on_growing_below():
    low, lower = (relative_error(np, np.array([gap]), np.zeros(1), np.ones(1)) for gap in (-2.0, -3.0))
    assert (low, lower) == (pytest.approx(2.0, abs=1e-3), pytest.approx(3.0, abs=1e-3))


def slow_rank(scores, truth, groups, cost):
    costs = [
        cost(scores[i] - scores[j])
        for i in range(len(scores))
        for j in range(len(scores))
        if groups[i] == groups[j] >= 0 and truth[i] > truth[j]
    ]
    return sum(costs) / max(len(costs), 1)


@pytest.mark.parametrize(
    ("kind", "cost"), [("hinge", lambda gap: max(0.0, 1 - gap)), ("logistic", lambda gap: np.log1p(np.exp(-gap)))]
)
def test_rank_loss_is_the_mean_over_pairs(kind, cost):
    draw = np.random.default_rng(0)
    scores, truth, groups = draw.normal(size=12), draw.integers(0, 5, 12), draw.integers(-1, 3, 12)
    expected = slow_rank(scores, truth, groups, cost)
    assert rank_loss(np, scores, truth, groups, kind=kind) == pytest.approx(expected)


def test_no_pairs_cost_nothing():
    assert rank_loss(np, np.array([1.0, 2.0]), np.array([3.0, 3.0]), np.array([0, 0])) == 0.0
