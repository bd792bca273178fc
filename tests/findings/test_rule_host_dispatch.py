"""HOST-DISPATCH: a step of many small launches, at several strengths; one program a step."""

import pytest
from planted_runs import check_finding, view_of, within
from planted_spans import US, busy_step, captured_run

from phasepoint.findings.rules.host.host_dispatch import find


def launches(count, each_ps=20 * US):
    """The device works, then the host issues small programs that do next to nothing, 5 µs apart."""

    def fill(timeline, where, dur_ps):
        busy_ps = dur_ps - count * (each_ps + 5 * US)
        timeline.launch(where, 0)
        timeline.work(where, 0, busy_ps)
        for i in range(count):
            timeline.launch(where, busy_ps + i * (each_ps + 5 * US), each_ps, "PjitFunction(multiply)")

    return fill


@pytest.mark.parametrize("count", [25, 80, 160])
def test_idle_time_among_launches_is_claimed(tmp_path, count):
    view = view_of(tmp_path, captured_run(launches(count), n=400))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, count * 25 * US * view.clock.n_steps, 0.1)
    assert f"{count + 1} launches a step" in found.title


def test_launches_that_the_device_does_not_wait_for_are_no_finding(tmp_path):
    def fill(timeline, where, dur_ps):
        timeline.work(where, 0, dur_ps)
        for i in range(100):
            timeline.launch(where, i * 50 * US, 30 * US, "PjitFunction(multiply)")

    assert find(view_of(tmp_path, captured_run(fill, n=400))) == []


@pytest.mark.parametrize("seed", range(2))
def test_one_program_a_step_is_no_finding(tmp_path, seed):
    assert find(view_of(tmp_path, captured_run(busy_step, seed=seed))) == []


def test_tiny_work_that_waits_for_its_launch_is_the_hosts(tmp_path):
    def fill(timeline, where, dur_ps):
        busy_ps = dur_ps - 100 * 25 * US
        timeline.launch(where, 0)
        timeline.work(where, 0, busy_ps)
        for i in range(100):
            timeline.launch(where, busy_ps + i * 25 * US, 20 * US, "PjitFunction(multiply)")
            timeline.work(where, busy_ps + i * 25 * US + 18 * US, 2 * US, name="tiny_fusion")

    view = view_of(tmp_path, captured_run(fill, n=400))
    (found,) = find(view)
    assert within(found.claim.total_ps, 100 * 25 * US * view.clock.n_steps, 0.1)
