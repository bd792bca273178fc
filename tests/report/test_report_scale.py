import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from phasepoint.report.scale import Scale, fit_scale, tick_values

_VALUES = st.floats(1e-3, 1e15)


def test_like_values_start_at_zero_and_unlike_ones_are_logarithmic():
    assert fit_scale(40.0, 50.0) == Scale(0.0, 50.0 * 1.15)
    assert fit_scale(1.0, 100.0) == Scale(0.8, 125.0, is_log=True)
    assert fit_scale(0.0, 0.0) == Scale(0.0, 1.0)


def test_positions():
    assert [Scale(0.0, 10.0).position(v) for v in (-1, 0, 5, 10, 11)] == [0, 0, 0.5, 1, 1]
    assert Scale(1.0, 100.0, is_log=True).position(10.0) == pytest.approx(0.5)


def test_ticks_are_round():
    assert tick_values(Scale(0.0, 57.5), 5) == [0, 20, 40]
    assert tick_values(Scale(0.8, 125.0, is_log=True), 8) == [1, 2, 5, 10, 20, 50, 100]
    assert tick_values(Scale(0.0, 1.2 * 2**30, is_binary=True), 2) == [0, 2**30]


@given(_VALUES, _VALUES, st.integers(2, 8), st.booleans())
def test_ticks_are_few_ordered_and_on_the_axis(a, b, at_most, is_binary):
    low, high = sorted((a, b))
    assume(high > 0)
    scale = fit_scale(low, high, is_binary=is_binary)
    ticks = tick_values(scale, at_most)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= at_most + 1
    assert all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in ticks)
