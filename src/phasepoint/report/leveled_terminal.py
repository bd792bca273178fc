"""A leveled measurement on a terminal: the levels, the layers, the ops."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.report.names import shorten
from phasepoint.stack.level_result import LayerLatency, LeveledMeasurement, LevelResult, OpLatency
from phasepoint.stack.level_samples import LEVEL_NAMES
from phasepoint.stack.measured_command import MeasuredRegion

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
        _say_left_out(console, found.ops[top:])
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
    _say_left_out(console, found.layers[top:])
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


def _say_left_out(console: Console, rest: Sequence[LayerLatency] | Sequence[OpLatency]) -> None:
    if rest:
        time_ps = sum(one.latency_ps for one in rest)
        console.print(Text(f"… {len(rest):,} more with {format_ps(time_ps)}; --top shows them", style="dim"))
