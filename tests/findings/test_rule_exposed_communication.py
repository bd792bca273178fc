"""EXPOSED-COMMUNICATION: planted collectives, more than can be hidden, hidden ones, clean runs."""

import pytest
from device_runs import inside_ps, view_of_ops
from planted_runs import check_finding, steps_of, view_of, within

from phasepoint.findings.exposed_communication import find
from phasepoint.findings.finding import Unavailable


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_exposed_collectives_are_claimed_as_they_cost(tmp_path, share):
    shares = {"dot.1": ("compute", 0.5), "all-reduce.1": ("communication", share)}
    view = view_of_ops(tmp_path, shares, count=4)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * inside_ps(view), 0.05)
    assert found.low_ps == pytest.approx(0.75 * found.claim.total_ps, rel=0.05)  # one of four stays
    assert found.layers == ("all-reduce.1",)


def test_no_more_than_there_is_to_compute_can_be_hidden(tmp_path):
    shares = {"dot.1": ("compute", 0.1), "all-reduce.1": ("communication", 0.7)}
    view = view_of_ops(tmp_path, shares)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.1 * inside_ps(view), 0.05)
    assert found.low_ps == 0  # a single collective a step: it may be the last


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_a_clean_run_is_told_nothing(tmp_path, share):
    assert find(view_of_ops(tmp_path, {"dot.1": ("compute", 0.8), "all-reduce.1": ("communication", share)})) == []


def test_without_windows_it_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match="at least 1 are needed: record for longer"):
        find(view_of(tmp_path, (steps_of([10**10] * 30), {})))
