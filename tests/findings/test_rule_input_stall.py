"""INPUT-STALL: planted waits for data, seen by the clock alone and beside a device that works or not; ordinary runs."""

import numpy as np
import pytest
from planted_runs import capture, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.host.input_stall import find

N = 600


def waiting(share, *, seed=0):
    """Steps of which so large a share is spent waiting for the next batch."""
    dur_ps = noisy_steps(N, seed=seed)
    return steps_of(dur_ps, input_ps=np.asarray(share * dur_ps, np.int64))


@pytest.mark.parametrize("share", [0.03, 0.15, 0.5])
def test_without_windows_the_whole_wait_is_claimed(tmp_path, share):
    steps = waiting(share)
    view = view_of(tmp_path, (steps, {}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == steps["input_ps"].sum()
    assert (found.claim.part, found.confidence) == ("input", "medium")


@pytest.mark.parametrize(("idle", "confidence"), [(0.05, "medium"), (0.1, "high"), (0.3, "high")])
def test_what_the_device_works_through_is_not_claimed(tmp_path, idle, confidence):
    steps = waiting(0.3)
    view = view_of(tmp_path, (steps, capture(steps, lambda step: {"compute": 1 - idle}, every=60)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, idle * steps["dur_ps"].sum(), 0.05)
    assert found.confidence == confidence  # high where the interval keeps to its upper half


@pytest.mark.parametrize("seed", range(3))
def test_a_loader_that_keeps_up_is_no_finding(tmp_path, seed):
    assert find(view_of(tmp_path, (waiting(0.01, seed=seed), {}))) == []


def test_a_run_without_waits_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match="which times the loader"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))


def stalled(hidden, *, seed=0, every=350):
    """Steps of which 200 wait for 12 ms; so large a part of that is hidden behind work. Two windows."""
    dur_ps = noisy_steps(N, noise=0.02, seed=seed)
    wait_ps = np.zeros(N, np.int64)
    wait_ps[200:400] = 12 * 10**9
    dur_ps = dur_ps + ((1 - hidden) * wait_ps).astype(np.int64)
    steps = steps_of(dur_ps, input_ps=wait_ps)
    return steps, capture(steps, lambda step: {"compute": 0.9}, every=every)


@pytest.mark.parametrize("hidden", [0.0, 0.4])
def test_few_windows_leave_it_to_the_step_clock(tmp_path, hidden):
    steps, rows = stalled(hidden)
    view = view_of(tmp_path, (steps, rows))
    (found,) = find(view)
    check_finding(view, found)
    exposed_ps = (1 - hidden) * steps["input_ps"].sum()
    assert within(found.claim.total_ps, exposed_ps, 0.1)
    assert 0.7 * exposed_ps < found.low_ps <= exposed_ps <= found.high_ps * 1.02
    assert found.confidence == "high"


@pytest.mark.parametrize(("work", "part"), [(0.4, 1.0), (0.7, 0.5), (1.0, None)])
def test_few_windows_of_steps_that_all_wait_tell_by_the_waits_that_they_saw(tmp_path, work, part):
    """A loader that never keeps up: 60 % of a step is a wait; the device works for a part of it, or throughout."""
    steps = waiting(0.6)
    view = view_of(tmp_path, (steps, capture(steps, lambda step: {"compute": work}, every=400)))
    if part is None:
        with pytest.raises(Unavailable, match="but the device works meanwhile"):
            find(view)
        return
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, part * steps["input_ps"].sum(), 0.02)
    assert 0 < found.low_ps <= found.claim.total_ps <= found.high_ps <= steps["input_ps"].sum()


def test_a_wait_that_makes_no_step_longer_is_hidden(tmp_path):
    with pytest.raises(Unavailable, match="but the device works meanwhile: a faster loader would win nothing"):
        find(view_of(tmp_path, stalled(1.0)))
