"""Layouts of a transformer in the terminal: the fastest for each batch, what a step is made of, what memory forbids.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Sequence
from itertools import chain

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.plans import layout_columns
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.layouts import fastest, layout_words, memory_lines, plan_sentence
from phasepoint.report.words.names import printable
from phasepoint.scale.plan.layouts import BatchPlan, Machine

LEAST_SHARE = 0.005
"""Of a step, for a part to be shown: half a percent. A choice of what is worth a line."""


def render_layouts(what: str, machine: Machine, plans: Sequence[BatchPlan], console: Console) -> None:
    """Print the best layouts for each batch, and what the best of all is made of."""
    head = f"{printable(what)} on {format_count(machine.devices)} × {machine.device.name}"
    rows = list(chain.from_iterable(plan.best for plan in plans))
    console.print(Text(f"{head}: {plan_sentence(rows)}", style="bold"))
    for line in memory_lines(plans):
        console.print(Text(line))
    if not rows:
        return
    best = fastest(rows)
    console.print(grid(Table(layout_columns(rows), rows)))
    console.print(Text(f"What a step is made of: batch {format_count(best.batch)}, {layout_words(best)}"))
    shown = sorted(best.parts_ps.items(), key=lambda item: -item[1])
    parts = [item for item in shown if item[1] >= LEAST_SHARE * best.step_ps]
    of_step = (
        TableColumn("part", lambda item: item[0]),
        TableColumn("time", lambda item: format_ps(item[1]), is_figure=True),
        TableColumn("of the step", lambda item: format_ratio(item[1] / best.step_ps), is_figure=True),
    )
    console.print(grid(Table(of_step, parts)))
