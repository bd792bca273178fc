from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.measure.levels import trimmed_count, trimmed_interval_ps, trimmed_mean_ps

TIMES = st.lists(st.integers(0, 10**15), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("n_repeats", "dropped"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 2), (10, 2), (20, 4)]
)
def test_a_fifth_is_dropped_from_each_side(n_repeats, dropped):
    assert trimmed_count(n_repeats) == dropped


def test_three_repeats_give_their_median():
    assert trimmed_mean_ps([900, 10, 20]) == 20


def test_four_repeats_give_the_mean_of_the_middle_two():
    assert trimmed_mean_ps([1, 1000, 30, 20]) == 25


def test_ten_repeats_by_hand():
    assert (
        trimmed_mean_ps([100, 1, 2, 10, 11, 12, 13, 14, 15, 999]) == (10 + 11 + 12 + 13 + 14 + 15) // 6 + 1
    )  # 12.5 up


def test_no_repeats_are_refused():
    with pytest.raises(ValueError, match="at least one repeat"):
        trimmed_mean_ps([])


@given(TIMES)
def test_agrees_with_fractions_and_is_symmetric(values):
    dropped = trimmed_count(len(values))
    kept = sorted(values)[dropped : len(values) - dropped]
    exact = Fraction(sum(kept), len(kept))
    assert abs(trimmed_mean_ps(values) - exact) <= Fraction(1, 2)
    mirrored = [10**15 - value for value in values]
    assert abs(trimmed_mean_ps(mirrored) - (10**15 - exact)) <= Fraction(1, 2)


@given(TIMES)
def test_the_interval_holds_the_mean_and_is_there_from_five_repeats_on(values):
    interval = trimmed_interval_ps(values)
    if len(values) < 5:
        assert interval is None
    else:
        low_ps, high_ps = interval
        assert low_ps <= trimmed_mean_ps(values) <= high_ps


def test_the_interval_by_hand():
    # Kept 2, 3, 4; replaced to 2, 2, 3, 4, 4: s² = 1; t(0.975, 2) = 4.3027; 4.3027 / (0.6 · √5) = 3.207, rounded out.
    assert trimmed_interval_ps([1, 2, 3, 4, 500]) == (3 - 4, 3 + 4)
