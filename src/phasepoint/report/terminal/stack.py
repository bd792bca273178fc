"""One analysis of the stack on a terminal: the columns that fit in whole words, and the names of those that do not.

A leveled measurement on a terminal: the levels, the layers, the ops.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import rich.table
from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.measure.command import MeasuredRegion
from phasepoint.measure.result import LEVEL_NAMES, LayerLatency, LeveledMeasurement, LevelResult, OpLatency
from phasepoint.report.tables import Table, TableColumn, arrow_table, cell_text, heading
from phasepoint.report.tables.terminal import grid
from phasepoint.stack.shard.shard import StackTable

_NAME_CHARACTERS = 56
"""Of a layer or an op: a choice, what tells them apart."""


def render_measurement(region: MeasuredRegion, console: Console, *, top: int) -> None:
    """Print one region.

    Args:
        region: what was measured.
        console: where to.
        top: layers and ops to show.
    """
    found = region.measurement
    devices = ", ".join(found.devices)
    console.print(Text(f"{region.region}: {found.framework} {found.framework_version}, {devices}", style="bold"))
    console.print(grid(Table(_LEVEL_COLUMNS, found.levels)))
    if found.layers:
        console.print()
        console.print(_layers(found, top))
        _say_rest(console, found.layers[top:])
        if found.closure_ratio is not None:
            share = format_ratio(found.closure_ratio)
            console.print(
                f"L less its hooks' own time as calibrated: {share} of the model's latency; made to add up to it"
            )
    if found.ops:
        console.print()
        console.print(grid(Table(_OP_COLUMNS, found.ops[:top])))
        _say_rest(console, found.ops[top:])
    for counter in found.counters:
        console.print(f"{counter.name:24} {format_count(counter.value)}")
    for missing in found.unavailable:
        console.print(Text(f"not measured: {missing.what}: {missing.reason}"))
    for note in found.notes:
        console.print(Text(f"note: {note}"))


def _layers(found: LeveledMeasurement, top: int) -> rich.table.Table:
    """Layers in the order of the model, and what is in none of them."""

    def share(latency_ps: int) -> str:
        return format_ratio(latency_ps / found.model_ps if found.model_ps else None)

    columns = (
        TableColumn("layer", lambda one: one.layer, width=_NAME_CHARACTERS),
        TableColumn("", lambda one: one.direction or ""),
        TableColumn("calls", lambda one: one.calls, "count"),
        TableColumn("latency", lambda one: one.latency_ps, "ps"),
        TableColumn("share", lambda one: share(one.latency_ps), "ratio"),
        TableColumn("at L", lambda one: one.measured_ps, "ps"),
        TableColumn("at K", lambda one: one.profiled_ps, "ps"),
        TableColumn("inflation", lambda one: one.inflation_ratio, "ratio"),
    )
    shown = grid(Table(columns, found.layers[:top]))
    shown.add_row("in no layer", "", "", format_ps(found.unattributed_ps), share(found.unattributed_ps))
    return shown


def _interval(one: LevelResult) -> str:
    return "–" if one.low_ps is None else f"{format_ps(one.low_ps)} – {format_ps(one.high_ps)}"


_LEVEL_COLUMNS = (
    TableColumn("level", lambda one: f"{one.level} {LEVEL_NAMES[one.level]}"),
    TableColumn("latency", lambda one: one.wall_ps, "ps"),
    TableColumn("95 %", _interval, "ps"),
    TableColumn("processor", lambda one: one.cpu_ps, "ps"),
    TableColumn("overhead", lambda one: one.overhead_ps, "ps"),
    TableColumn("repeats", lambda one: f"{len(one.repeats_ps)}, {2 * one.trimmed} dropped", "count"),
)

_OP_COLUMNS = (
    TableColumn("op", lambda one: one.op, width=_NAME_CHARACTERS),
    TableColumn("calls", lambda one: one.calls, "count"),
    TableColumn("latency", lambda one: one.latency_ps, "ps"),
    TableColumn("layer", lambda one: "" if one.layer is None else f"{one.layer} {one.direction or ''}", width=48),
)


def _say_rest(console: Console, rest: Sequence[LayerLatency] | Sequence[OpLatency]) -> None:
    if rest:
        time_ps = sum(one.latency_ps for one in rest)
        console.print(Text(f"… {len(rest):,} more with {format_ps(time_ps)}; --top shows them", style="dim"))


MOST_ROWS = 100
"""Rows shown; `--json` and `--csv` give all."""

_GAP = 2
"""Blanks between columns."""

_WIDEST_TEXT, _NARROWEST_TEXT = 48, 24
"""Characters of a text column where there is room, and where there is not."""


def render_stack(table: StackTable, console: Console) -> None:
    """Print the rows under their heading; columns that are null throughout, or have no room, are left out and named."""
    console.print(Text(f"{table.code}  {table.title}" if table.code else table.title, style="bold"))
    n_rows = table.rows.num_rows
    unknown = [column for column in table.columns if n_rows and table.rows[column.name].null_count == n_rows]
    known = [column for column in table.columns if column not in unknown]
    first = arrow_table(table.rows.slice(0, MOST_ROWS), known)
    shown = _fit(replace(first, rows=list(first.rows)), console.width)
    console.print(grid(shown, gap=_GAP) if n_rows else Text("no rows", style="dim"))
    left_out = [column.title for column in first.columns if column.key not in {one.key for one in shown.columns}]
    if left_out:
        console.print(Text(f"no room for: {', '.join(left_out)}; --csv and --json print all", style="dim"))
    if unknown:
        console.print(Text(f"not known in this run: {', '.join(map(heading, unknown))}", style="dim"))
    if n_rows > MOST_ROWS:
        left = f"… {n_rows - MOST_ROWS:,} more of {n_rows:,} rows; --csv and --json print all"
        console.print(Text(left, style="dim"))


def _fit(table: Table, room: int) -> Table:
    """The table with the columns that fit: texts are cut first, then notes on sources go, then the last columns."""
    for width in (_WIDEST_TEXT, _NARROWEST_TEXT):
        columns = [replace(column, width=width) for column in table.columns]
        sizes = {column.key: _size(column, table.rows) for column in columns}
        if sum(sizes.values()) <= room:
            break
    while len(columns) > 1 and sum(sizes[column.key] for column in columns) > room:
        of_source = [column for column in columns if column.key.endswith("source")]
        columns.remove(of_source[-1] if of_source else columns[-1])
    return replace(table, columns=columns)


def _size(column: TableColumn, rows: Iterable[Any]) -> int:
    """Characters that a column takes."""
    cells = (len(cell_text(column.cell(row), column.unit, column.width)) for row in rows)
    return _GAP + max([len(column.title), *cells])
