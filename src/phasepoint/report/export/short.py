"""The report in short: as Markdown for a pull request, and as the card that a notebook shows, static, without a script.

A run or a summary is a value of a lower floor and knows nothing of notebooks; the notebook is told how to show it.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from phasepoint.core.units import PS_PER_S, format_count
from phasepoint.phases.clock.breakdown import FEW, Breakdown
from phasepoint.report.tables import Table, TableColumn, cell_text
from phasepoint.report.tables.text import markdown_table, markdown_text
from phasepoint.report.words.anatomy import anatomy_lines
from phasepoint.report.words.markup import Markup, element
from phasepoint.report.words.wording import (
    category_name,
    cost_line,
    estimate_basis,
    headline,
    part_interval,
    replay_command,
    steps_line,
)
from phasepoint.store import Run
from phasepoint.summary.types import PhaseSummary, RunSummary

if TYPE_CHECKING:
    from phasepoint.replay.fast_forward import FastForward
    from phasepoint.replay.plan.plan import ReplayPlan

_MOST_FINDINGS, _MOST_PHASES = 5, 6
"""Rows in Markdown: a choice, a comment on a pull request is read without scrolling."""

_MOST_NOTEBOOK_PHASES = 8
"""Rows in a notebook: a choice, as high as the categories beside them."""


def summary_markdown(
    summary: RunSummary, findings: Mapping[str, Any] | None = None, fast_forward: "FastForward | None" = None
) -> str:
    """The Markdown text, ending in a newline.

    Args:
        summary: what to say.
        findings: the JSON of `phasepoint findings RUN --json`; without it the section is left out.
        fast_forward: what can be replayed; without it, or with no plan, that section is left out.
    """
    blocks = [f"**{markdown_text(summary.verdict)}**", markdown_text(headline(summary))]
    blocks += [markdown_text(summary.time_went)] if summary.time_went not in summary.verdict else []
    blocks += [markdown_text(steps_line(summary))] if steps_line(summary) else []
    blocks += [f"> {markdown_text(note)}" for note in summary.notes]
    if findings is not None:
        blocks.append(_findings(findings))
    if summary.inside_ps:
        blocks.append(markdown_table(_categories(summary.categories)))
        blocks.append(markdown_text(estimate_basis(summary.categories)))
        blocks += [markdown_text(f"{line} ({aside})") for line, aside in anatomy_lines(summary)]
    if summary.phases:
        blocks.append(markdown_table(_phases(summary.phases[:_MOST_PHASES])))
        more = len(summary.phases) - _MOST_PHASES
        blocks += [f"and {more} smaller phases"] if more > 0 else []
    if fast_forward is not None:
        blocks += _replays(fast_forward)
    blocks.append(markdown_text(cost_line(summary.cost)))
    return "\n\n".join(blocks) + "\n"


def _findings(findings: Mapping[str, Any]) -> str:
    listed = findings["findings"]
    if not listed:
        return "No rule found time that could be won."
    columns = (
        TableColumn("finding", lambda one: one["code"]),
        TableColumn("what", lambda one: one["title"]),
        TableColumn("could be won", lambda one: one["seconds"] * PS_PER_S, "ps"),
        TableColumn("share", lambda one: one["share"], "ratio"),
        TableColumn("what to do", lambda one: one["remedy"]),
    )
    table = markdown_table(Table(columns, listed[:_MOST_FINDINGS]))
    more = len(listed) - _MOST_FINDINGS
    return f"{table}\n\nand {more} more findings" if more > 0 else table


def _categories(breakdown: Breakdown) -> Table:
    columns: tuple[TableColumn, ...] = (
        TableColumn("steps' time", lambda part: category_name(part.name)),
        TableColumn("share", lambda part: part.share, "ratio"),
        TableColumn("time", lambda part: part.total_ps, "ps"),
        TableColumn("95 % interval", part_interval),
    )
    if breakdown.basis == FEW:  # too few windows to say how long
        columns = columns[:2]
    return Table(columns, [part for part in breakdown.parts if part.total_ps])


def _phases(phases: Iterable[PhaseSummary]) -> Table:
    columns = (
        TableColumn("phase", lambda phase: phase.name),
        TableColumn("share", lambda phase: phase.share, "ratio"),
        TableColumn("steps", lambda phase: phase.steps, "count"),
        TableColumn("median step", lambda phase: phase.median_ps, "ps"),
    )
    return Table(columns, phases)


def _replays(found: "FastForward") -> list[str]:
    """A line for each phase that can be replayed, and the command for the first."""
    plans = [row.plan for row in found.plans if row.plan is not None][:_MOST_PHASES]
    if not plans:
        return []

    def start(plan: "ReplayPlan") -> str:
        return "the start" if plan.checkpoint is None else f"step {format_count(plan.first_step)}"

    columns = (
        TableColumn("phase again", lambda plan: plan.phase),
        TableColumn("from", start),
        TableColumn("steps", lambda plan: plan.forward_steps, "count"),
        TableColumn("cost", lambda plan: plan.cost_ps, "ps"),
        TableColumn("of the run", lambda plan: plan.ratio, "ratio"),
    )
    command = replay_command(plans[0].run, plans[0].phase, found.command)
    return [markdown_table(Table(columns, plans)), f"    {command}"]


def summary_card(summary: RunSummary) -> str:
    """The summary as HTML for a notebook's output cell."""
    categories = _notebook_table(_categories(summary.categories))
    phases = _notebook_table(_phases(summary.phases[:_MOST_NOTEBOOK_PHASES]))
    notes = [element("p", note) for note in summary.notes]
    verdict = element("p", element("strong", summary.verdict))
    tables = element("div", categories, phases, style="display:flex;flex-wrap:wrap;gap:8px 40px;align-items:flex-start")
    last = element("p", cost_line(summary.cost))
    return element("div", verdict, element("p", headline(summary)), *notes, tables, last, style="line-height:1.5").html


def run_card(run: Run) -> str:
    """A run's summary as HTML for a notebook's output cell; what is not converted yet takes no part, and is said."""
    from phasepoint.findings.judge import summarize_run

    return summary_card(summarize_run(run))


def register_display(shell: Any) -> None:
    """Tell an IPython shell how to show a run and a summary."""
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Run, run_card)
    html.for_type(RunSummary, summary_card)


def _notebook_table(table: Table) -> Markup:
    """The table with its style in each cell, as notebooks drop style sheets; empty where it has no rows."""
    styles = [f"padding:1px 16px 1px 0;text-align:{column.side};border:0" for column in table.columns]
    titles = zip(table.columns, styles, strict=True)
    rows = [element("tr", *(element("th", column.title, style=style) for column, style in titles))]
    for item in table.rows:
        texts = (cell_text(column.cell(item), column.unit) for column in table.columns)
        rows.append(element("tr", *(element("td", text, style=s) for text, s in zip(texts, styles, strict=True))))
    return element("table", *rows, style="border-collapse:collapse") if len(rows) > 1 else Markup("")
