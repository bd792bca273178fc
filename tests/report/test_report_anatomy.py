"""The anatomy of a step on screen: the terminal's line, the page's band, Markdown."""

import io
from dataclasses import replace

from rich.console import Console
from sample_summary import anatomy, sample_summary

from phasepoint.report.export.short import summary_markdown
from phasepoint.report.html.page import summary_html
from phasepoint.report.terminal.summary import render_summary
from phasepoint.report.words.anatomy import anatomy_basis, anatomy_lines

LINE = (
    "Anatomy of train steps: input 20 % · copies to device 1 % · forward 21 % · backward 34 % · optimizer 9 % · "
    "communication – · host 5 % · idle 8 % · not attributed 2 %"
)
ASIDE = (
    "estimated from 12 windows, 60 captured steps; by a clock around each pass, its waits included: "
    "forward 25 % · backward 40 % · optimizer 11 %"
)


def test_a_line_for_each_phase_that_was_captured():
    lines = list(anatomy_lines(sample_summary()))
    assert lines[0] == (LINE, ASIDE)
    assert [line.partition(":")[0] for line, _ in lines] == [
        f"Anatomy of {name} steps" for name in ("train", "eval", "compile")
    ]


def test_few_windows_are_told_as_what_they_are():
    few = replace(anatomy(10**12), windows=2, captured_steps=10)
    assert anatomy_basis(few) == "shares of the 10 captured steps in 2 windows"


def test_a_run_without_stages_says_so():
    summary = sample_summary(anatomy=None)
    assert list(anatomy_lines(summary)) == [
        ("Anatomy of the steps: not known", "the captures were converted before stages were told apart")
    ]
    nothing = replace(summary.categories, windows=0, captured_steps=0)
    assert not list(anatomy_lines(replace(summary, categories=nothing)))


def test_passes_of_which_nothing_is_known_are_not_called_nil():
    parts = tuple(
        replace(part, total_ps=0, share=0.0, within_ps=0)
        if part.name in ("forward", "backward", "optimizer")
        else replace(part, total_ps=64, share=0.64)
        if part.name == "other work"
        else part
        for part in anatomy(100).parts
    )
    summary = sample_summary()
    phases = (replace(summary.phases[0], anatomy=replace(anatomy(100), parts=parts)),)
    ((line, aside),) = anatomy_lines(replace(summary, phases=phases))
    assert "other work 64 %" in line
    assert aside.endswith("not known: no ranges of autograd, marks of modules or names of HLO")


def test_the_terminal_and_markdown_have_the_line():
    out = io.StringIO()
    render_summary(sample_summary(), Console(file=out, width=300))
    assert f"{LINE}\n  {ASIDE}\n" in out.getvalue()
    assert f"{LINE} ({ASIDE})" in summary_markdown(sample_summary())


def test_the_page_has_a_band_that_adds_up():
    page = summary_html(sample_summary())
    label = f'aria-label="{LINE}"'
    band = page[page.index(label) :].partition("</svg>")[0]
    widths = [float(part.partition('width="')[2].partition("%")[0]) for part in band.split("<rect")[1:]]
    assert widths == [20, 1, 21, 34, 9, 5, 8, 2]
    assert "<title>backward: 15.6 s, 34.0 %</title>" in band
