"""Layouts of a transformer in the terminal: the fastest for each batch, what a step is made of, what memory forbids.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.terminal.scale import run_columns
from phasepoint.report.words.names import printable
from phasepoint.scale.plan.layouts import BatchPlan, LayoutRow, Machine

LEAST_SHARE = 0.005
"""Of a step, for a part to be shown: half a percent. A choice of what is worth a line."""


def render_layouts(what: str, machine: Machine, plans: Sequence[BatchPlan], console: Console) -> None:
    """Print the best layouts for each batch, and what the best of all is made of."""
    head = f"{printable(what)} on {format_count(machine.devices)} × {machine.device.name}"
    rows = list(chain.from_iterable(plan.best for plan in plans))
    if not rows:
        console.print(Text(f"{head}: no layout fits", style="bold"))
    else:
        best = max((plan.best[0] for plan in plans if plan.best), key=lambda row: row.tokens_per_s)
        console.print(Text(f"{head}: {_sentence(best)}", style="bold"))
    for line in _memory_lines(plans):
        console.print(Text(line))
    if not rows:
        return
    columns = [
        TableColumn("batch", lambda row: format_count(row.batch), is_figure=True),
        TableColumn("layout", _layout),
        TableColumn("step", lambda row: format_ps(row.step_ps), is_figure=True),
        TableColumn("90 % low", lambda row: format_ps(row.low_ps), is_figure=True),
        TableColumn("high", lambda row: format_ps(row.high_ps), is_figure=True),
        TableColumn("tokens/s", lambda row: f"{row.tokens_per_s:,.0f}", is_figure=True),
        TableColumn("of peak", lambda row: format_ratio(row.utilization), is_figure=True),
        TableColumn("memory", lambda row: format_bytes(row.memory_bytes), is_figure=True),
        TableColumn("of", lambda row: format_bytes(row.limit_bytes), is_figure=True),
        *run_columns(rows),
    ]
    console.print(grid(Table(tuple(columns), rows)))
    console.print(Text(f"What a step is made of: batch {format_count(best.batch)}, {_layout(best)}"))
    shown = sorted(best.parts_ps.items(), key=lambda item: -item[1])
    parts = [item for item in shown if item[1] >= LEAST_SHARE * best.step_ps]
    of_step = (
        TableColumn("part", lambda item: item[0]),
        TableColumn("time", lambda item: format_ps(item[1]), is_figure=True),
        TableColumn("of the step", lambda item: format_ratio(item[1] / best.step_ps), is_figure=True),
    )
    console.print(grid(Table(of_step, parts)))


def _sentence(best: LayoutRow) -> str:
    limit = best.limited_by
    return (
        f"{best.tokens_per_s:,.0f} tokens/s with {_layout(best)} and a batch of {format_count(best.batch)}: a step of "
        f"{format_ps(best.step_ps)} ({format_ps(best.low_ps)} to {format_ps(best.high_ps)}), "
        f"{format_ratio(best.utilization)} of the peak; held back most by {limit} "
        f"({format_ratio(best.parts_ps[limit] / best.step_ps)})"
    )


def _memory_lines(plans: Sequence[BatchPlan]) -> Iterable[str]:
    for plan in plans:
        head = (
            f"Batch {format_count(plan.batch)}: {format_count(plan.fitting)} of {format_count(plan.priced)} layouts fit"
        )
        if plan.smallest is not None:
            least = plan.smallest
            part = max(least.memory, key=least.memory.__getitem__)
            missing = format_bytes(least.memory_bytes - least.limit_bytes)
            yield (
                f"{head}; {_layout(least)} needs least, {missing} too much, "
                f"{format_bytes(least.memory[part])} of it {part}: take more devices or a smaller batch"
            )
        elif plan.faster is not None:
            gain = plan.best[0].step_ps / plan.faster.step_ps - 1
            missing = format_bytes(plan.faster.memory_bytes - plan.faster.limit_bytes)
            yield f"{head}; {_layout(plan.faster)}, faster by {format_ratio(gain)}, lacks {missing}"
        else:
            yield f"{head}; none that does not would be faster"


def _layout(row: LayoutRow) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.layout.items())
