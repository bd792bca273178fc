import io
from dataclasses import replace

import pytest
from rich.console import Console
from sample_summary import sample_summary

from phasepoint.findings.finding import Findings, RankedFinding
from phasepoint.report.terminal.summary import render_phases, render_summary
from phasepoint.summary.types import Verdict


def _text(render, summary, *, width=80, colour=None):
    out = io.StringIO()
    forced = colour is not None
    console = Console(file=out, width=width, force_terminal=forced, color_system=colour, markup=False, highlight=False)
    render(summary, console)
    return out.getvalue()


def test_the_verdict_is_the_first_line():
    summary = sample_summary()
    lines = _text(render_summary, summary, width=200).splitlines()
    assert lines[0] == summary.verdict
    assert lines[1] == summary.time_went
    assert lines[2] == "runs/demo · closed · 60.0 s · 1,200 steps · 1 host"


def test_notes_come_before_the_numbers():
    text = _text(render_summary, sample_summary(notes=("still being recorded",)))
    assert text.index("! still being recorded") < text.index("Phases")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    text = _text(render_summary, sample_summary(), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_the_strip_without_colour_is_letters():
    lines = _text(render_phases, sample_summary(), width=60).splitlines()
    # 60 cells for 60 s: 2 s outside, 1 s compile, 20 s train, 3 s eval, 16 s train, 4 s stall, 3 s eval, 10 s train.
    expected = ".." + "D" + "A" * 20 + "B" * 3 + "A" * 16 + "C" * 4 + "B" * 3 + "A" * 10 + "."
    assert expected.replace(".", "·") in lines


def test_the_strip_in_colour_is_blocks_in_the_colours_of_the_table():
    text = _text(render_phases, sample_summary(), colour="truecolor")
    assert "▌" in text
    blue = "38;2;0;114;178"
    assert f"{blue}m■" in text
    assert f"{blue};48;2;0;114;178m▌" in text


def test_time_outside_steps_has_a_key_where_there_is_some():
    assert "· time outside steps" in _text(render_summary, sample_summary(), width=120).splitlines()
    strip = tuple(segment for segment in sample_summary().strip if segment.phase is not None)
    assert "time outside steps" not in _text(render_summary, replace(sample_summary(), strip=strip), width=120)


@pytest.mark.parametrize(("saved_ps", "count"), [(0, 0), (10**12, 1)])
def test_findings_that_win_nothing_have_no_heading(saved_ps, count):
    finding = RankedFinding("THIN-PROFILE", "Few", None, saved_ps, saved_ps, saved_ps, 0, 0.0, (), "", (), "low", "")
    found = Findings("runs/demo", 1, Verdict("NOT KNOWN: few."), (finding,), (), ())
    text = _text(lambda summary, console: render_summary(summary, console, found), sample_summary(), width=120)
    assert text.count("What would win most") == text.count("THIN-PROFILE") == count


def test_estimates_show_their_interval_and_measurements_say_so():
    lines = _text(render_summary, sample_summary(), width=120).splitlines()
    compute = next(line for line in lines if line.startswith("compute"))
    assert "34.8 s ± 712 ms" in " ".join(compute.split())
    assert "measured" in next(line for line in lines if line.startswith("waiting for input"))


def test_ops_of_the_largest_captured_phases():
    lines = _text(render_summary, sample_summary(), width=120).splitlines()
    titles = [line for line in lines if line.startswith("Top ops")]
    assert titles == [f"Top ops of {name}, by self time" for name in ("train", "eval", "compile")]
    fusion = next(line for line in lines if line.startswith("fusion.1234"))
    assert " ".join(fusion.split()) == "fusion.1234 compute 14.0 s ± 700 ms 50.0 % Net/Block_0/Conv_0"


def test_names_are_text_in_every_form():
    for colour in (None, "truecolor"):
        text = _text(render_summary, sample_summary(), width=200, colour=colour)
        assert "<img src=x onerror=alert(1)></script>[red]\\x1b[31m&amp;" in text
        assert "\x1b[31m" not in text


def test_what_was_not_seen_and_what_it_cost():
    text = " ".join(_text(render_summary, sample_summary()).split())
    assert "Captured in full: 60 of 1,200 steps (5.0 % of the steps, 4.8 % of their time), in 12 windows" in text
    assert "Profiler events lost or impossible to place: 3" in text
    assert "outside-steps × 2, 3.00 s: what the job did before and after its loop" in text
    assert "Recording cost 452 ms, 0.753 % of the job's time, within the budget of 1.0 %." in text


def test_over_budget_is_said():
    cost = replace(sample_summary().cost, share=0.02, within_budget=False)
    assert "over the budget of 1.0 %" in _text(render_summary, sample_summary(cost=cost))


def test_more_phases_than_the_table_shows_are_counted():
    phase = sample_summary().phases[0]
    many = tuple(replace(phase, id=i, share=0.05) for i in range(20))
    lines = _text(render_phases, sample_summary(phases=many, strip=())).splitlines()
    assert any(line.split() == ["8", "more", "40.0", "%"] for line in lines)


def test_a_summary_of_nothing():
    seen = sample_summary().not_seen
    empty = sample_summary(
        phases=(), strip=(), steps=0, inside_ps=0, top_ops=(), events=(), hosts=(), not_seen=replace(seen, gaps=())
    )
    assert "Not seen" in _text(render_summary, empty)


def test_of_many_processes_the_slow_and_the_killed_are_shown():
    (one,) = sample_summary().hosts
    hosts = [replace(one, host=host, slower=host / 1000) for host in range(500)]
    hosts[7] = replace(hosts[7], state="killed")
    hosts[9] = replace(hosts[9], straggler=True, note="waits for nobody")
    lines = _text(render_summary, sample_summary(hosts=tuple(hosts)), width=120).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("host state")) + 1
    assert [int(line.split()[0]) for line in lines[first : first + 32]] == [7, 9, *range(470, 500)]
    assert lines[first + 32].strip() == "… and 468 more; see --json"
