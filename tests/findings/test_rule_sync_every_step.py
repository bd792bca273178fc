"""SYNC-EVERY-STEP: a fetch after which the device waits, at several strengths; a fetch that costs nothing."""

import pytest
from planted_runs import check_finding, view_of, within
from planted_spans import US, busy_step, captured_run

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.host import device_idle
from phasepoint.findings.rules.host.sync_every_step import LEAST_SHARE, find


def fetched(share, *, name="np.asarray(jax.Array)"):
    """The device works, the host waits for it and then works alone for this share of the step."""

    def fill(timeline, where, dur_ps):
        work_ps = int(dur_ps * (1 - share))
        timeline.launch(where, 0)
        timeline.work(where, 0, work_ps)
        timeline.add(where, name, 110 * US, work_ps - 110 * US + 5 * US)

    return fill


@pytest.mark.parametrize("share", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("name", ["np.asarray(jax.Array)", "cudaStreamSynchronize"])
def test_the_idle_time_after_a_fetch_is_what_it_costs(tmp_path, share, name):
    view = view_of(tmp_path, captured_run(fetched(share, name=name)))
    (found,) = find(view)
    planted_ps = share * view.clock.inside_ps
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps, 0.05)
    assert found.claim.part == "idle"


def test_two_awaits_are_one_wait(tmp_path):
    def fill(timeline, where, dur_ps):
        timeline.launch(where, 0)
        timeline.work(where, 0, dur_ps // 2)
        timeline.add(where, "CommonPjRtBuffer::Await", 150 * US, US)
        timeline.add(where, "CommonPjRtBuffer::Await", dur_ps // 2, US)

    view = view_of(tmp_path, captured_run(fill))
    (found,) = find(view)
    assert within(found.claim.total_ps, view.clock.inside_ps / 2, 0.05)


def test_no_more_is_won_than_the_host_had_waited(tmp_path):
    """The device works for a quarter, the host for three: side by side the step lasts as long as the host."""
    view = view_of(tmp_path, captured_run(fetched(0.75)))
    (found,) = find(view)
    assert within(found.claim.total_ps, view.clock.inside_ps / 4, 0.1)


def test_a_host_that_runs_ahead_is_no_finding(tmp_path):
    def fill(timeline, where, dur_ps):
        busy_step(timeline, where, dur_ps)
        timeline.add(where, "np.asarray(jax.Array)", 200 * US, dur_ps // 2)  # of the step before

    assert find(view_of(tmp_path, captured_run(fill))) == []


@pytest.mark.parametrize("launched", [0, 0.35], ids=["before the wait", "after the wait"])
def test_a_device_that_begins_late_what_lay_in_its_queue_is_no_finding(tmp_path, launched):
    """The step before ends at 0.3 of the step, the host has waited for it, the device begins the next at 0.5."""

    def fill(timeline, where, dur_ps):
        timeline.launch(where, int(launched * dur_ps))
        timeline.work(where, 0, int(0.3 * dur_ps))
        timeline.add(where, "np.asarray(jax.Array)", 150 * US, int(0.3 * dur_ps) - 145 * US)
        timeline.work(where, int(0.5 * dur_ps), dur_ps - int(0.5 * dur_ps))

    view = view_of(tmp_path, captured_run(fill))
    assert len(find(view)) == (1 if launched else 0)
    if not launched:
        assert device_idle.find(view) == []


def test_the_latency_of_a_launch_is_below_the_threshold(tmp_path):
    assert find(view_of(tmp_path, captured_run(fetched(LEAST_SHARE - 0.02)))) == []


def test_without_events_it_cannot_judge(tmp_path):
    steps, rows = captured_run(busy_step)
    view = view_of(tmp_path, (steps, rows | {"spans": []}))
    with pytest.raises(Unavailable, match="no window with its events was kept"):
        find(view)
