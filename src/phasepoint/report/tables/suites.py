"""Columns of a suite's pairs, the same in the terminal and on a page.

Its own file: what both show.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter

from phasepoint.bench.bottleneck.proof import ToldChange
from phasepoint.bench.suite.result import LayerWork, Pair
from phasepoint.bench.suite.summary import PairSummary
from phasepoint.core.units import format_ratio
from phasepoint.report.tables import Cell, TableColumn
from phasepoint.report.words.names import printable


def suite_columns(rows: Sequence[PairSummary], *, is_short: bool = False) -> tuple[TableColumn, ...]:
    """Of pairs that were measured; what no row has gets no column, nor what is the same in all.

    Args:
        rows: of the table.
        is_short: only what fits on a terminal.
    """
    columns = [TableColumn("model", lambda row: printable(row.pair.model), width=_MODEL if is_short else None)]
    columns += [
        TableColumn(name, attrgetter(f"pair.{name}"))
        for name in ("device", "runtime", "precision")
        if len({getattr(row.pair, name) for row in rows}) > 1
    ]
    columns += [
        TableColumn("task", attrgetter("model.task")),
        TableColumn("latency", attrgetter("latency_ps"), unit="ps"),
        TableColumn("±", _half_width, is_figure=True),
        TableColumn("p90", attrgetter("p90_ps"), unit="ps"),
        TableColumn("p99", attrgetter("p99_ps"), unit="ps"),
        _figure("samples/s", attrgetter("samples_per_s")),
        TableColumn("at batch", attrgetter("batch"), unit="count"),
        TableColumn("memory", attrgetter("peak_bytes"), unit="bytes"),
        _figure("M params", lambda row: row.model.params / 1e6 if row.model else None),
        _figure("GMAC", lambda row: row.model.macs / 1e9 if row.model and row.model.macs is not None else None),
        _figure("GMAC/s", lambda row: None if row.macs_per_s is None else row.macs_per_s / 1e9),
    ]
    if is_short:
        columns = [column for column in columns if column.title not in _OF_THE_PAGE]
    if any(row.joules is not None for row in rows):
        columns.append(_figure("energy, J", attrgetter("joules")))
    if any(row.relative_error is not None for row in rows):
        columns.append(TableColumn("off f32", attrgetter("relative_error"), unit="ratio"))
    if any(row.bottleneck is not None for row in rows):
        columns.append(TableColumn("held back by", _held_back))
    if not is_short and any(pair_note(row) for row in rows):
        columns.append(TableColumn("note", pair_note))
    return tuple(columns)


_MODEL, _LAYER, _LAYER_ON_A_PAGE = 28, 24, 60
"""Most characters of names: choices, so that the figures beside them stay in sight."""


def change_columns(rows: Sequence[ToldChange], *, is_short: bool = False) -> tuple[TableColumn, ...]:
    """Of what would be faster, as told and as measured.

    Args:
        rows: of the table.
        is_short: names only as long as fits on a terminal.
    """
    columns = [TableColumn("model", lambda row: printable(row.pair.model), width=_MODEL if is_short else None)]
    columns += [
        TableColumn(name, attrgetter(f"pair.{name}"))
        for name in ("device", "precision")
        if len({getattr(row.pair, name) for row in rows}) > 1
    ]
    return (
        *columns,
        TableColumn("held back by", lambda row: f"{row.part} {format_ratio(row.part_ratio)}"),
        TableColumn("most of it in", lambda row: printable(row.layer), width=_LAYER if is_short else _LAYER_ON_A_PAGE),
        TableColumn("instead", attrgetter("change")),
        TableColumn("told", lambda row: _times(row.told), is_figure=True),
        TableColumn("measured", lambda row: _times(row.measured), is_figure=True),
    )


def layer_columns(latency_ps: int) -> tuple[TableColumn, ...]:
    """Of what each layer of a network does in one inference.

    Args:
        latency_ps: of the whole inference.
    """

    def rate(row: LayerWork) -> float | None:
        return row.flop * 1e12 / row.time_ps if row.flop and row.time_ps else None

    return (
        TableColumn("layer", lambda row: printable(row.layer) or "outside all layers", width=70),
        TableColumn("class", lambda row: printable(row.kind), name="kind"),
        TableColumn("time", attrgetter("time_ps"), unit="ps"),
        TableColumn("share", lambda row: row.time_ps / latency_ps, unit="ratio"),
        TableColumn("bound by", attrgetter("part"), name="part"),
        TableColumn("flop", lambda row: row.flop or None, unit="flop"),
        TableColumn("flop/s", rate, unit="flop/s"),
        TableColumn("moved", attrgetter("moved_bytes"), unit="bytes"),
        TableColumn("operations", attrgetter("operations"), unit="count"),
    )


def predicted_columns() -> tuple[TableColumn, ...]:
    """Of pairs on devices that are not there."""
    return (
        TableColumn("model", lambda row: printable(row.pair.model)),
        TableColumn("device", attrgetter("pair.device")),
        TableColumn("predicted", attrgetter("predicted.latency_ps"), unit="ps"),
        TableColumn("90 % low", attrgetter("predicted.low_ps"), unit="ps"),
        TableColumn("high", attrgetter("predicted.high_ps"), unit="ps"),
        TableColumn("bound by", attrgetter("predicted.bound"), name="bound"),
        TableColumn("by", attrgetter("predicted.method"), name="method"),
    )


def _times(speedup: float | None) -> Cell:
    return Cell("" if speedup is None else f"{speedup:.2f} ×", speedup)


def _held_back(row: PairSummary) -> str:
    found = row.bottleneck
    if found is None or not row.latency_ps:
        return ""
    return f"{found.part} {format_ratio(found.part_ratio)}"


_OF_THE_PAGE = ("task", "p90", "p99", "at batch", "GMAC")


def pair_words(pair: Pair) -> str:
    """A pair in words.

    Example:
        >>> pair_words(Pair("resnet50", "cpu:2", "eager", "f32"))
        'resnet50 on cpu:2, eager, f32'
    """
    return printable(f"{pair.model} on {setting_words(pair)}")


def setting_words(pair: Pair) -> str:
    """What ran the model, in words."""
    return printable(f"{pair.device}, {pair.runtime}, {pair.precision}")


def _figure(title: str, value: Callable[[PairSummary], float | None]) -> TableColumn:
    """Numbers with three figures, sorted by what they are."""

    def cell(row: PairSummary) -> Cell:
        figure = value(row)
        return Cell("" if figure is None else f"{figure:,.3g}" if figure < 1000 else f"{figure:,.0f}", figure)

    return TableColumn(title, cell, is_figure=True)


def pair_note(row: PairSummary) -> str:
    """What was not steady, what it sustains, what distorts it."""
    return "; ".join(part for part in (row.unsteady, sustained_words(row), row.reason) if part)


def sustained_words(row: PairSummary) -> str:
    """What a run without a break came to; empty where none was asked for, or it was too short."""
    one = row.sustained
    if one is None:
        return ""
    if one.change_s is None:
        return f"sustains {one.first_per_s:,.3g}/s"
    what = "slower" if one.last_per_s < one.first_per_s else "faster"
    change = format_ratio(abs(one.last_per_s / one.first_per_s - 1))
    return f"{change} {what} from {one.change_s:.0f} s on: {one.last_per_s:,.3g}/s"


def _half_width(row: PairSummary) -> Cell:
    if row.high_ps is None or not row.latency_ps:
        return Cell("", None)
    width = row.high_ps / row.latency_ps - 1
    return Cell(format_ratio(width), width)
