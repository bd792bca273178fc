"""One analysis of the stack on a terminal: the columns that fit in whole words, and the names of those that do not.

A leveled measurement on a terminal: the levels, the layers, the ops.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.tables import Column
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.measure.command import MeasuredRegion
from phasepoint.measure.result import LEVEL_NAMES, LayerLatency, LeveledMeasurement, LevelResult, OpLatency
from phasepoint.report.tables import cell_text, heading, is_number
from phasepoint.report.words.names import shorten
from phasepoint.stack.shard.shard import StackTable

_NAME_CHARACTERS = 56


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
    console.print(
        _grid(("level", "latency", "95 %", "processor", "overhead", "repeats"), map(_level_row, found.levels))
    )
    if found.layers:
        _render_layers(found, console, top)
    if found.ops:
        header = ("op", "calls", "latency", "layer")
        console.print()
        console.print(_grid(header, map(_op_row, found.ops[:top]), left=("op", "layer")))
        _say_rest(console, found.ops[top:])
    for counter in found.counters:
        console.print(f"{counter.name:24} {format_count(counter.value)}")
    for missing in found.unavailable:
        console.print(Text(f"not measured: {missing.what}: {missing.reason}"))
    for note in found.notes:
        console.print(Text(f"note: {note}"))


def _render_layers(found: LeveledMeasurement, console: Console, top: int) -> None:
    rows = [_layer_row(one, found.model_ps) for one in found.layers[:top]]
    outside = ("in no layer", "", "", format_ps(found.unattributed_ps), _share(found.unattributed_ps, found.model_ps))
    header = ("layer", "", "calls", "latency", "share", "at L", "at K", "inflation")
    console.print()
    console.print(_grid(header, [*rows, (*outside, "", "", "")], left=("layer", "")))
    _say_rest(console, found.layers[top:])
    if found.closure_ratio is not None:
        share = format_ratio(found.closure_ratio)
        console.print(f"L less its hooks' own time as calibrated: {share} of the model's latency; made to add up to it")


def _level_row(one: LevelResult) -> tuple[str, ...]:
    interval = "–" if one.low_ps is None else f"{format_ps(one.low_ps)} – {format_ps(one.high_ps)}"
    repeats = f"{len(one.repeats_ps)}, {2 * one.trimmed} dropped"
    level = f"{one.level} {LEVEL_NAMES[one.level]}"
    return level, format_ps(one.wall_ps), interval, format_ps(one.cpu_ps), format_ps(one.overhead_ps), repeats


def _layer_row(one: LayerLatency, model_ps: int) -> tuple[str, ...]:
    return (
        shorten(one.layer, _NAME_CHARACTERS),
        one.direction or "",
        format_count(one.calls),
        format_ps(one.latency_ps),
        _share(one.latency_ps, model_ps),
        format_ps(one.measured_ps),
        format_ps(one.profiled_ps),
        format_ratio(one.inflation_ratio),
    )


def _op_row(one: OpLatency) -> tuple[str, ...]:
    layer = "" if one.layer is None else f"{one.layer} {one.direction or ''}"
    return shorten(one.op, _NAME_CHARACTERS), format_count(one.calls), format_ps(one.latency_ps), shorten(layer, 48)


def _share(part_ps: int, whole_ps: int) -> str:
    return format_ratio(part_ps / whole_ps if whole_ps else None)


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str] = ("level",)) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in header:
        grid.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def _say_rest(console: Console, rest: Sequence[LayerLatency] | Sequence[OpLatency]) -> None:
    if rest:
        time_ps = sum(one.latency_ps for one in rest)
        console.print(Text(f"… {len(rest):,} more with {format_ps(time_ps)}; --top shows them", style="dim"))


MOST_ROWS = 100
"""Rows shown; `--json` and `--csv` give all."""

_SPACE = 2
_WIDEST_TEXT, _NARROWEST_TEXT = 48, 24
"""Characters of a text column where there is room, and where there is not."""


def render_stack(table: StackTable, console: Console) -> None:
    """Print the rows under their heading; columns that are null throughout, or have no room, are left out and named."""
    console.print(Text(f"{table.code}  {table.title}" if table.code else table.title, style="bold"))
    n_rows = table.rows.num_rows
    unknown = [column for column in table.columns if n_rows and table.rows[column.name].null_count == n_rows]
    known = [column for column in table.columns if column not in unknown]
    rows = table.rows.slice(0, MOST_ROWS).to_pylist()
    shown, width = _fit(known, rows, console.width)
    grid = Table(box=None, pad_edge=False, padding=(0, _SPACE, 0, 0), header_style="dim")
    for column in shown:
        grid.add_column(heading(column), justify="right" if is_number(column) else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell_text(column, row[column.name], width=width)) for column in shown))
    console.print(grid if rows else Text("no rows", style="dim"))
    _say_left_out(table, [column for column in known if column not in shown], unknown, console)


def _fit(columns: Sequence[Column], rows: Sequence[dict[str, object]], room: int) -> tuple[list[Column], int]:
    """The columns that fit, and the most characters of a text: texts are cut first, then notes on sources go, then the
    last columns."""
    for width in (_WIDEST_TEXT, _NARROWEST_TEXT):
        if sum(_widths(columns, rows, width)) <= room:
            return list(columns), width
    shown = list(columns)
    while len(shown) > 1 and sum(_widths(shown, rows, _NARROWEST_TEXT)) > room:
        of_source = [column for column in shown if column.name.endswith("source")]
        shown.remove(of_source[-1] if of_source else shown[-1])
    return shown, _NARROWEST_TEXT


def _widths(columns: Sequence[Column], rows: Sequence[dict[str, object]], width: int) -> list[int]:
    return [
        _SPACE + max([len(heading(c)), *(len(cell_text(c, row[c.name], width=width)) for row in rows)]) for c in columns
    ]


def _say_left_out(table: StackTable, hidden: Sequence[Column], unknown: Sequence[Column], console: Console) -> None:
    if hidden:
        names = ", ".join(map(heading, hidden))
        console.print(Text(f"no room for: {names}; --csv and --json print all", style="dim"))
    if unknown:
        console.print(Text(f"not known in this run: {', '.join(map(heading, unknown))}", style="dim"))
    if table.rows.num_rows > MOST_ROWS:
        left = table.rows.num_rows - MOST_ROWS
        console.print(Text(f"… {left:,} more of {table.rows.num_rows:,} rows; --csv and --json print all", style="dim"))
