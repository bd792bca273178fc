"""Measures of an evaluation, against values by hand."""

import pytest

from phasepoint.learn.tasks import (
    EvaluationRow,
    choice_regret,
    error_rows,
    kendall_tau,
    mean_absolute_relative_error,
    share_best,
)


def test_error_is_relative_to_the_measured_time():
    assert mean_absolute_relative_error([11.0, 18.0], [10.0, 20.0]) == pytest.approx(0.1)
    assert mean_absolute_relative_error([], []) is None
    with pytest.raises(ValueError, match="above 0"):
        mean_absolute_relative_error([1.0], [0.0])


def test_tau_counts_pairs():
    assert kendall_tau([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx((5 - 1) / 6)
    assert kendall_tau([1, 1], [1, 2]) is None
    assert kendall_tau([1], [1]) is None


def test_choices_are_held_against_the_best():
    assert choice_regret([1.1, 2.0], [1.0, 2.0]) == pytest.approx(0.05)
    assert share_best([1.1, 2.0], [1.0, 2.0]) == 0.5


def test_rows_come_in_order_of_appearance():
    rows = error_rows(["b", "a", "b"], [1.0, 3.0, 2.2], [1.0, 2.0, 2.0])
    assert [(row.group, row.n) for row in rows] == [("b", 2), ("a", 1)]
    assert rows[0].mape == pytest.approx(0.05)
    assert rows[1] == EvaluationRow("a", 1, mape=0.5)
