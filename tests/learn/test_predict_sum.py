"""The sum over kernels: its interval against the covariance written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.learn.predict.estimate import sum_times


def _by_covariance(weight, width, names, rho):
    """Half-width of a sum from the full matrix of covariances: equal names are one error, others share rho."""
    n = len(weight)
    total = 0.0
    for i in range(n):
        for j in range(n):
            shared = 1.0 if names[i] == names[j] else rho
            total += shared * weight[i] * width[i] * weight[j] * width[j]
    return total**0.5


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(1, 1e9), st.floats(0, 0.9), st.floats(0, 5), st.sampled_from("abcd")),
        min_size=1,
        max_size=8,
    ),
    st.floats(0, 1),
)
def test_interval_is_that_of_the_covariance_matrix(rows, rho):
    weight, time_ps, low, high = (np.array([row[k] for row in rows]) for k in range(4))
    names = [row[4] for row in rows]
    ends = time_ps, time_ps * (1 - low), time_ps * (1 + high)
    found = sum_times(weight, ends, same=names, shared=np.full(len(rows), rho))
    assert found.time_ps == pytest.approx(float((weight * time_ps).sum()))
    below = _by_covariance(weight, time_ps * low, names, rho)
    above = _by_covariance(weight, time_ps * high, names, rho)
    assert found.low_ps == pytest.approx(max(found.time_ps - below, 0), abs=1e-3 * max(found.time_ps, 1))
    assert found.high_ps == pytest.approx(found.time_ps + above)


def test_independent_errors_cancel_and_common_ones_do_not():
    ends = np.full(100, 10.0), np.full(100, 9.0), np.full(100, 11.0)
    names = [str(k) for k in range(100)]
    independent = sum_times(np.ones(100), ends, same=names, shared=np.zeros(100))
    common = sum_times(np.ones(100), ends, same=names, shared=np.ones(100))
    assert (independent.low_ps, independent.high_ps) == pytest.approx((990, 1010))
    assert (common.low_ps, common.high_ps) == pytest.approx((900, 1100))


def test_executions_of_one_kernel_have_one_error():
    ends = np.array([10.0]), np.array([9.0]), np.array([12.0])
    found = sum_times(np.array([50.0]), ends, same=["a"], shared=np.zeros(1))
    assert (found.time_ps, found.low_ps, found.high_ps) == pytest.approx((500, 450, 600))


def test_nothing_takes_no_time():
    nothing = np.zeros(0)
    found = sum_times(nothing, (nothing, nothing, nothing), same=[], shared=nothing)
    assert (found.time_ps, found.low_ps, found.high_ps) == (0, 0, 0)
