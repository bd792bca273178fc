"""A run as a notebook shows it: the verdict, where the time went and the phases, small, static, without a script.

A run or a summary is a value of a lower floor and knows nothing of notebooks; the notebook is told how to show it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.report.html.markup import Content, Markup, element, join
from phasepoint.report.words.wording import category_name, cost_line, headline, part_interval
from phasepoint.store import Run
from phasepoint.summary.types import RunSummary

_MOST_PHASES = 8
_CELL = "padding:1px 16px 1px 0;text-align:{};border:0"


def summary_card(summary: RunSummary) -> str:
    """The summary as HTML for a notebook's output cell."""
    parts = [part for part in summary.categories.parts if part.total_ps]
    categories = _table(
        ("steps' time", "share", "time", "95 % interval"),
        ((category_name(p.name), format_ratio(p.share), format_ps(p.total_ps), part_interval(p)) for p in parts),
    )
    phases = _table(
        ("phase", "share", "steps", "median step"),
        (
            (p.name, format_ratio(p.share), format_count(p.steps), format_ps(p.median_ps))
            for p in summary.phases[:_MOST_PHASES]
        ),
    )
    notes = [element("p", note) for note in summary.notes]
    verdict = element("p", element("strong", summary.verdict))
    tables = element("div", categories, phases, style="display:flex;flex-wrap:wrap;gap:8px 40px;align-items:flex-start")
    last = element("p", cost_line(summary.cost))
    return element("div", verdict, element("p", headline(summary)), *notes, tables, last, style="line-height:1.5").html


def run_card(run: Run) -> str:
    """A run's summary as HTML for a notebook's output cell; what is not converted yet takes no part, and is said."""
    from phasepoint.summary.summary import summarize_run

    return summary_card(summarize_run(run))


def register_display(shell: Any) -> None:
    """Tell an IPython shell how to show a run and a summary."""
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Run, run_card)
    html.for_type(RunSummary, summary_card)


def _table(heads: Sequence[str], rows: Iterable[Sequence[Content]]) -> Markup:
    head = element("tr", *(element("th", title, style=_CELL.format(_side(i))) for i, title in enumerate(heads)))
    body = [
        element("tr", *(element("td", cell, style=_CELL.format(_side(i))) for i, cell in enumerate(row)))
        for row in rows
    ]
    return element("table", join([head, *body]), style="border-collapse:collapse") if body else Markup("")


def _side(column: int) -> str:
    return "left" if column in (0, 3) else "right"
