"""Columns of plans, the same in the terminal and on a page.

Its own file: what both show.
"""

from collections.abc import Sequence
from functools import partial

from phasepoint.core.units import PS_PER_S, format_bytes, format_count, format_ps, format_ratio
from phasepoint.report.tables import TableColumn
from phasepoint.report.words.layouts import layout_words
from phasepoint.scale.plan.layouts import LayoutRow
from phasepoint.scale.plan.program import ProgramRow


def layout_columns(rows: Sequence[LayoutRow]) -> tuple[TableColumn, ...]:
    """Of layouts: their steps, memory, and whole runs where there are any."""
    return (
        TableColumn("batch", lambda row: format_count(row.batch), is_figure=True),
        TableColumn("layout", layout_words),
        TableColumn("step", lambda row: format_ps(row.step_ps), is_figure=True),
        TableColumn("90 % low", lambda row: format_ps(row.low_ps), is_figure=True),
        TableColumn("high", lambda row: format_ps(row.high_ps), is_figure=True),
        TableColumn("tokens/s", lambda row: f"{row.tokens_per_s:,.0f}", is_figure=True),
        TableColumn("of peak", lambda row: format_ratio(row.utilization), is_figure=True),
        TableColumn("memory", lambda row: format_bytes(row.memory_bytes), is_figure=True),
        TableColumn("of", lambda row: format_bytes(row.limit_bytes), is_figure=True),
        *run_columns(rows),
    )


def run_columns(rows: Sequence[ProgramRow | LayoutRow]) -> list[TableColumn]:
    """The parts of whole runs and their cost; none where no row has them."""
    columns = []
    if any(row.run is not None for row in rows):
        columns += [
            TableColumn(name, partial(_run_part, name), is_figure=True)
            for name in ("starting", "steps", "saving", "lost", "wall")
        ]
    if any(row.cost is not None for row in rows):
        columns.append(TableColumn("cost", lambda row: "" if row.cost is None else f"{row.cost:,.0f}", is_figure=True))
    return columns


def _run_part(name: str, row: ProgramRow | LayoutRow) -> str:
    return "" if row.run is None else format_ps(round(getattr(row.run, name) * PS_PER_S))
