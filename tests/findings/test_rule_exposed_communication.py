"""EXPOSED-COMMUNICATION: planted collectives, more than can be hidden, hidden ones, clean runs."""

import pytest
from device_runs import Planner, inside_ps, view_of_ops
from planted_runs import capture, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.device.exposed_communication import find


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_exposed_collectives_are_claimed_as_they_cost(tmp_path, share):
    shares = {"dot.1": ("compute", 0.5), "all-reduce.1": ("communication", share)}
    view = view_of_ops(tmp_path, shares, count=4)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * inside_ps(view), 0.05)
    assert found.low_ps == pytest.approx(0.875 * found.claim.total_ps, rel=0.05)  # half of one of four stays
    assert found.layers == ("all-reduce.1",)


def test_what_there_is_no_computation_to_hide_behind_can_be_halved(tmp_path):
    shares = {"dot.1": ("compute", 0.1)} | {f"all-reduce.{i}": ("communication", 0.2) for i in range(4)}
    view = view_of_ops(tmp_path, shares)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.8 * inside_ps(view), 0.05)
    assert found.low_ps == pytest.approx(0.5 * found.claim.total_ps, rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_a_clean_run_is_told_nothing(tmp_path, share):
    assert find(view_of_ops(tmp_path, {"dot.1": ("compute", 0.8), "all-reduce.1": ("communication", share)})) == []


@pytest.mark.parametrize("late_share", [0.1, 0.3])
def test_waiting_for_a_late_device_is_not_exchange(tmp_path, late_share):
    """Two hosts in step: one computes longer, the other waits for it in the collective."""
    exchange, hosts = 0.08, []
    steps = steps_of(noisy_steps(600))
    for compute, wait in ((0.3 + late_share, 0.0), (0.3, late_share)):
        planner = Planner()
        planner.shares = {"dot.1": ("compute", compute), "all-reduce.1": ("communication", exchange + wait)}
        rows = capture(steps, planner.of_categories, every=60)
        rows["ops"] = list(planner.ops(steps, rows))
        hosts.append((steps, rows))
    view = view_of(tmp_path, *hosts)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, exchange * inside_ps(view), 0.1)


@pytest.mark.parametrize("other_every", [60, 90])
def test_collectives_of_a_host_thread_count_where_nothing_is_computed(tmp_path, other_every):
    """Gloo as PyTorch's profiler shows it: the host's work, in which one of two hosts waits for the other.

    Where the hosts' windows differ, a wait that one host alone saw is not taken for the exchange either.
    """
    hosts, steps = [], steps_of(noisy_steps(600))
    for wait, every in ((0.0, 60), (0.2, other_every)):
        planner = Planner()
        planner.shares = {"aten::mm": ("compute", 0.4), "gloo:all_reduce": ("host", 0.1 + wait)}
        rows = capture(steps, planner.of_categories, every=every)
        rows["ops"] = [
            row | ({"device": "host", "level": "layer"} if row["op"].startswith("gloo") else {})
            for row in planner.ops(steps, rows, program=None)
        ]
        hosts.append((steps, rows))
    view = view_of(tmp_path, *hosts)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.1 * inside_ps(view), 0.1)
    assert found.layers == ("gloo:all_reduce",)


def test_two_windows_leave_the_size_open(tmp_path):
    view = view_of_ops(tmp_path, {"dot.1": ("compute", 0.5), "all-reduce.1": ("communication", 0.3)}, every=300)
    with pytest.raises(Unavailable, match=r"say (29|30)\.?\d* % of the run, but they agree with anything from"):
        find(view)


def test_without_windows_it_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match="at least 1 is needed: record a longer job"):
        find(view_of(tmp_path, (steps_of([10**10] * 30), {})))
