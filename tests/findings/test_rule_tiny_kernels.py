"""TINY-KERNELS: rows of tiny executions on the device, at several strengths; ordinary steps."""

import pytest
from planted_runs import check_finding, view_of, within
from planted_spans import MAIN, US, busy_step, captured_run

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.device.tiny_kernels import find


def tiny(count, *, each_ps=4 * US, apart_ps=1 * US):
    def fill(timeline, where, dur_ps):
        busy_ps = dur_ps - count * (each_ps + apart_ps)
        timeline.launch(where, 0)
        timeline.work(where, 0, busy_ps)
        for i in range(count):
            timeline.work(where, busy_ps + i * (each_ps + apart_ps), each_ps, name=f"dot.{i % 2}")

    return fill


@pytest.mark.parametrize("count", [100, 300, 800])
def test_rows_of_tiny_executions_are_claimed(tmp_path, count):
    view = view_of(tmp_path, captured_run(tiny(count), n=300))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, count * 5 * US * view.clock.n_steps, 0.1)
    assert set(found.layers) == {"dot.0", "dot.1"}


def test_a_few_tiny_ones_among_large_ones_are_no_finding(tmp_path):
    def fill(timeline, where, dur_ps):
        timeline.launch(where, 0)
        for i in range(40):
            timeline.work(where, i * dur_ps // 40, dur_ps // 40 - 6 * US)
            timeline.work(where, (i + 1) * dur_ps // 40 - 6 * US, 5 * US, name="bias")

    assert find(view_of(tmp_path, captured_run(fill, n=300))) == []


def test_tiny_work_beside_large_work_costs_nothing(tmp_path):
    def fill(timeline, where, dur_ps):
        busy_step(timeline, where, dur_ps)
        for i in range(300):
            timeline.work(where, i * 10 * US, 8 * US, name="side", track="worker/2")

    assert find(view_of(tmp_path, captured_run(fill, n=300))) == []


@pytest.mark.parametrize(("input_us", "is_told"), [(0, True), (2500, False)])
def test_what_makes_the_input_while_the_thread_waits_for_it_is_input(tmp_path, input_us, is_told):
    def fill(timeline, where, dur_ps):
        for i in range(400):
            timeline.work(where, i * 5 * US, 4 * US, name="aten::to", track=MAIN)
        timeline.work(where, 2500 * US, dur_ps - 2500 * US, name="aten::mm", track=MAIN)

    steps, rows = captured_run(fill, n=300)
    steps["input_ps"] = [input_us * US] * 300
    assert bool(find(view_of(tmp_path, (steps, rows)))) is is_told


@pytest.mark.parametrize("seed", range(2))
def test_an_ordinary_step_is_no_finding(tmp_path, seed):
    assert find(view_of(tmp_path, captured_run(busy_step, seed=seed))) == []


def with_chance_windows(run, kept):
    """The run with windows opened by choice, but for `kept` of them: what few random windows say leaves much open."""
    steps, rows = run
    for window in rows["windows"][kept:]:
        window["probability"] = None
    return steps, rows


def test_what_every_window_shows_is_told_though_its_size_is_open(tmp_path):
    view = view_of(tmp_path, with_chance_windows(captured_run(tiny(400), n=300), 2))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 400 * 5 * US * view.clock.n_steps, 0.1)
    assert found.confidence == "low"
    assert found.low_ps < found.claim.total_ps / 3


def test_too_few_windows_to_be_sure_are_told(tmp_path):
    view = view_of(tmp_path, with_chance_windows(captured_run(tiny(400), n=180), 2))
    with pytest.raises(Unavailable, match=r"say (19|20)\.\d % of the run, but they agree with anything from 1\."):
        find(view)
