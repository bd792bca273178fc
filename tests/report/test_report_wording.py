"""Sentences that the terminal and the page share: counts with their nouns, what a step is, how a recording ends."""

from dataclasses import replace

import pytest
from sample_summary import sample_summary

from phasepoint.core.units import PS_PER_MS, PS_PER_S, format_counted, parse_ratio
from phasepoint.phases.clock.accounting import RecordingCost
from phasepoint.phases.clock.breakdown import FEW, MEASURED, Breakdown, PartTime
from phasepoint.report.words.recorded_line import processes_text, recorded_line, tally_of
from phasepoint.report.words.wording import (
    cost_line,
    estimate_basis,
    headline,
    hosts_title,
    interval_text,
    not_seen_lines,
    ops_title,
    part_interval,
    steps_line,
)
from phasepoint.summary.types import Recorded, Shortfall

COST = RecordingCost(0, 0, 0, 0, 0, 8 * PS_PER_MS, 0.008, 0.01, True)


@pytest.mark.parametrize(("count", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1200, "1,200 steps")])
def test_one_of_a_kind_is_singular(count, text):
    assert format_counted(count, "step") == text


def test_a_plural_of_its_own():
    assert format_counted(1, "process", "processes") == "1 process"
    assert format_counted(3, "process", "processes") == "3 processes"


@pytest.mark.parametrize(
    ("processes", "machines", "text"),
    [(1, 1, "1 host"), (2, 1, "2 processes on 1 host"), (2, 2, "2 hosts"), (16, 2, "16 processes on 2 hosts")],
)
def test_processes_are_told_from_machines(processes, machines, text):
    assert processes_text(processes, machines) == text


def test_the_table_of_processes_is_called_so():
    summary = sample_summary()
    two = replace(summary, hosts=(summary.hosts[0], summary.hosts[0]))
    assert hosts_title(two) == "Processes"
    assert "2 processes on 1 host" in headline(two)
    assert hosts_title(replace(two, machines=2)) == "Hosts"


@pytest.mark.parametrize(
    ("text", "ratio"), [("1%", 0.01), ("1 %", 0.01), ("0.01", 0.01), (" 150% ", 1.5), ("0", 0.0), ("1", 1.0)]
)
def test_a_ratio_in_every_spelling(text, ratio):
    assert parse_ratio(text) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["", "%", "-0.1", "inf", "nan", "a", "3", "1.01"])
def test_what_is_no_ratio(text):
    with pytest.raises(ValueError, match=r"expected a share such as 1% or 0\.01"):
        parse_ratio(text)


def test_what_a_step_is():
    summary = sample_summary()
    assert steps_line(summary) == ""
    told = replace(summary, steps_from="optimizer steps (torch.optim)", steps_per_call=10)
    assert steps_line(told) == (
        "Steps are optimizer steps (torch.optim). Each recorded step is a call of 10 training steps."
    )


def test_the_line_that_ends_a_recording():
    found = Recorded(120, 1, 2, 1, COST, None)
    assert recorded_line(tally_of(found), "runs/my job", 12 * PS_PER_S) == (
        "recorded: 120 steps, 1 window, 2 processes on 1 host, cost 0.8 % of the job's time (budget 1.0 %), "
        "in 12.0 s, into runs/my job; next: phasepoint summary 'runs/my job'"
    )
    short = Shortfall("killed", "the run has no end", "Record again")
    lost = replace(found, processes=1, cost=replace(COST, complete=False, within_budget=None), not_enough=short)
    assert "120 steps, 1 window, cost not known" in recorded_line(tally_of(lost), "run", PS_PER_S)


def test_a_cost_with_holes_is_the_least_that_it_may_be():
    assert cost_line(COST) == "Recording cost 8.00 ms, 0.8 % of the job's time, within the budget of 1.0 %."
    holes = replace(COST, complete=False, within_budget=None)
    assert cost_line(holes).startswith("Recording cost at least 8.00 ms, 0.8 % of the job's time. The recorder's own")
    over = replace(COST, share=0.02, complete=False, within_budget=False)
    assert "over the budget of 1.0 %" in cost_line(over)
    assert cost_line(replace(holes, total_ps=0)).startswith("What recording cost is not known.")


@pytest.mark.parametrize(
    ("total", "low", "high", "text"),
    [
        (100, 100, 100, ""),
        (100, 90, 104, "± 10.0 s"),
        (100, 50, 150, "± 50.0 s"),  # half of the value: the last that ± tells
        (100, 49, 110, "49.0 s – 110 s"),
        (3, 0, 25, "0 s – 25.0 s"),
    ],
)
def test_an_interval_that_is_wide_is_told_by_its_ends(total, low, high, text):
    assert interval_text(*(value * PS_PER_S for value in (total, low, high))) == text


@pytest.mark.parametrize(
    ("basis", "windows", "steps", "text", "title"),
    [
        (MEASURED, 1, 1, "measured in the only step", "Top ops of train, by self time"),
        (MEASURED, 1, 3, "measured in all 3 steps", "Top ops of train, by self time"),
        (
            *(FEW, 2, 10, "shares by 2 capture windows, 10 captured steps: too few to say how long"),
            "Ops in the 10 captured steps of train: too few windows to tell of the others",
        ),
        (
            *(
                "estimated",
                8,
                40,
                "estimated from 8 capture windows, 40 captured steps; ± and ranges are 95 % intervals",
            ),
            "Top ops of train, by self time",
        ),
    ],
)
def test_how_a_breakdown_is_known(basis, windows, steps, text, title):
    breakdown = Breakdown(PS_PER_S, (), windows, steps, basis=basis)
    assert estimate_basis(breakdown) == text
    assert ops_title(breakdown, "train") == title
    assert estimate_basis(Breakdown(PS_PER_S, ())) == "nothing was captured, so nothing can be attributed"


def test_what_was_measured_in_full_has_no_interval():
    assert part_interval(PartTime("compute", PS_PER_S, PS_PER_S, PS_PER_S, 1.0, MEASURED)) == "measured"


@pytest.mark.parametrize(
    ("steps", "captured", "text"),
    [
        (1, 1, "The only step was captured in full."),
        (3, 3, "All 3 steps were captured in full."),
        (3, 0, "No step was captured in full; the step clock saw 3 steps."),
    ],
)
def test_steps_that_were_captured_in_full(steps, captured, text):
    seen = replace(sample_summary().not_seen, steps=steps, captured_steps=captured)
    assert not_seen_lines(seen)[0] == text


def test_nobody_knows_what_an_imported_trace_cost():
    told = cost_line(replace(COST, total_ps=0, imported=True))
    assert told == "What recording cost is not known: the trace was recorded by another profiler and imported."
