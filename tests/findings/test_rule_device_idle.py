"""DEVICE-IDLE: the loop's own code holds the device up, at several strengths; controls."""

import pytest
from planted_runs import MS, check_finding, view_of, within
from planted_spans import US, busy_step, captured_run

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.host.device_idle import find


def own_code(share):
    """The device finishes early; the loop's own code keeps the host for the rest of the step."""

    def fill(timeline, where, dur_ps):
        timeline.launch(where, 0)
        timeline.work(where, 0, int(dur_ps * (1 - share)))

    return fill


@pytest.mark.parametrize("share", [0.06, 0.15, 0.4])
def test_idle_in_the_loops_own_code_is_claimed(tmp_path, share):
    view = view_of(tmp_path, captured_run(own_code(share)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * view.clock.inside_ps, 0.1)
    assert found.claim.part == "idle"
    assert found.confidence == "high"


@pytest.mark.parametrize("seed", range(3))
def test_a_busy_device_is_no_finding(tmp_path, seed):
    assert find(view_of(tmp_path, captured_run(busy_step, seed=seed))) == []


def test_idle_in_one_window_alone_is_no_finding(tmp_path):
    def fill(timeline, where, dur_ps):
        (own_code(0.6) if where[0] == 3 else busy_step)(timeline, where, dur_ps)

    assert find(view_of(tmp_path, captured_run(fill))) == []


def test_waiting_for_input_is_not_claimed(tmp_path):
    def fill(timeline, where, dur_ps):
        timeline.launch(where, 4 * MS)
        timeline.work(where, 4 * MS, dur_ps - 4 * MS)

    steps, rows = captured_run(fill)
    steps["input_ps"] = [4 * MS - 20 * US] * len(steps["dur_ps"])
    assert find(view_of(tmp_path, (steps, rows))) == []


def test_a_pause_inside_a_program_is_not_the_loops(tmp_path):
    def fill(timeline, where, dur_ps):
        timeline.launch(where, 0)
        timeline.work(where, 0, dur_ps // 4)
        timeline.add(where, "ThunkExecutor::Execute (wait for completion)", 0, dur_ps, track="worker/1")
        timeline.work(where, dur_ps // 2, dur_ps - dur_ps // 2)

    assert find(view_of(tmp_path, captured_run(fill))) == []


def test_without_windows_it_cannot_judge(tmp_path):
    steps, _ = captured_run(busy_step)
    with pytest.raises(Unavailable, match="capture windows"):
        find(view_of(tmp_path, (steps, {})))
