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
from phasepoint.scale.plan.what_if import TechniqueLeftOut


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


def program_columns(rows: Sequence[ProgramRow]) -> tuple[TableColumn, ...]:
    """Of a step by batch: what it is made of, memory, and whole runs where there are any."""
    columns = [
        TableColumn("batch", lambda row: format_count(row.batch), is_figure=True),
        TableColumn("a device", lambda row: format_count(row.batch // row.devices), is_figure=True),
        TableColumn("step", step_or_problem, is_figure=True),
        TableColumn("kernels", lambda row: format_ps(row.compute_ps) if row.fits else "", is_figure=True),
        TableColumn("links", lambda row: format_ps(row.exposed_ps) if row.fits else "", is_figure=True),
    ]
    if any(row.input_ps or row.slowest_ps for row in rows):
        columns += [
            TableColumn("input", lambda row: format_ps(row.input_ps) if row.fits else "", is_figure=True),
            TableColumn("slowest host", lambda row: format_ps(row.slowest_ps) if row.fits else "", is_figure=True),
        ]
    columns += [
        TableColumn("samples/s", lambda row: f"{row.samples_per_s:,.0f}" if row.fits else "", is_figure=True),
        TableColumn("memory", lambda row: format_bytes(row.memory_bytes), is_figure=True),
        TableColumn("of", lambda row: format_bytes(row.limit_bytes), is_figure=True),
    ]
    return (*columns, *run_columns(rows))


def technique_columns(whole: ProgramRow) -> tuple[TableColumn, ...]:
    """Of a step without each technique, beside the step as it is."""
    return (
        TableColumn("without", lambda other: other.technique),
        TableColumn("step", lambda other: step_or_problem(other.row), is_figure=True),
        TableColumn("kernels", lambda other: format_ps(other.row.compute_ps), is_figure=True),
        TableColumn("links", lambda other: format_ps(other.row.exposed_ps), is_figure=True),
        TableColumn("memory", lambda other: format_bytes(other.row.memory_bytes), is_figure=True),
        TableColumn("it saves", partial(_saved, whole), is_figure=True),
        TableColumn("without it", lambda other: other.does),
    )


def step_or_problem(row: ProgramRow) -> str:
    """The time of a step, or why there is none."""
    return format_ps(row.step_ps) if row.fits else row.problem


def _saved(whole: ProgramRow, other: TechniqueLeftOut) -> str:
    return f"{other.row.step_ps / whole.step_ps - 1:+.1%}" if whole.fits and other.row.fits else "–"


def run_columns(rows: Sequence[ProgramRow | LayoutRow]) -> list[TableColumn]:
    """The parts of whole runs and their cost; none where no row has them."""
    columns = []
    if any(row.run is not None for row in rows):
        columns += [
            TableColumn(name, partial(_run_part, name), is_figure=True)
            for name in ("starting", "steps", "evaluation", "saving", "lost", "wall")
            if any(row.run is not None and getattr(row.run, name) for row in rows)
        ]
    if any(row.cost is not None for row in rows):
        columns.append(TableColumn("cost", lambda row: "" if row.cost is None else _money(row.cost), is_figure=True))
    return columns


def _money(cost: float) -> str:
    """To the cent below a hundred."""
    return f"{cost:,.{0 if cost >= 100 else 2}f}"


def _run_part(name: str, row: ProgramRow | LayoutRow) -> str:
    return "" if row.run is None else format_ps(round(getattr(row.run, name) * PS_PER_S))
