"""Tables of the page: figures carry their exact value, so that the script sorts and copies what was computed.

A total and its parts as a table with bars and intervals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.phases.clock.breakdown import Breakdown, PartTime
from phasepoint.report.html.markup import Content, Markup, element, join, swatch
from phasepoint.report.words.wording import category_name, part_interval


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: heading; empty for a column that only draws.
        csv: name of the column when the table is copied, with the unit of exact values; empty to leave it out.
        is_figure: whether it holds numbers: they stand on the right and sort with the largest first.
    """

    title: str
    csv: str = ""
    is_figure: bool = False


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and the exact value it stands for (None: not known)."""

    content: Content
    value: int | float | None


def text(title: str, csv: str = "") -> Column:
    """A column of text."""
    return Column(title, csv or title.replace(" ", "_"))


def figures(title: str, csv: str) -> Column:
    """A column of numbers."""
    return Column(title, csv, is_figure=True)


def duration(time_ps: int | None) -> Cell:
    """A cell with a duration in ps."""
    return Cell(format_ps(time_ps), time_ps)


def ratio(value: float | None) -> Cell:
    """A cell with a ratio 0–1, shown as percent."""
    return Cell(format_ratio(value), value)


def count(value: int | None) -> Cell:
    """A cell with a count."""
    return Cell(format_count(value), value)


def size(value: int | None) -> Cell:
    """A cell with a size in bytes."""
    return Cell(format_bytes(value), value)


def data_table(
    columns: Sequence[Column], rows: Iterable[Sequence[Content | Cell]], *, label: str, with_filter: bool = True
) -> Markup:
    """A table that scrolls sideways where it does not fit, ready to be sorted, filtered and copied.

    Args:
        columns: of the table.
        rows: cells, as many as columns.
        label: what the table holds, for screen readers and the copy button.
        with_filter: whether rows can be filtered, where they are many.
    """
    head = element("tr", *map(_heading, columns))
    body = [element("tr", *(_cell(column, cell) for column, cell in zip(columns, row, strict=True))) for row in rows]
    whole = element("table", element("thead", head), element("tbody", *body), aria_label=label)
    attributes = {} if with_filter else {"data_filter": "off"}
    return element(
        "div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"{label}, table", **attributes
    )


def _side(column: Column) -> str:
    return "right" if column.is_figure else "left"


def _heading(column: Column) -> Markup:
    if not column.title:
        return element("td", class_=_side(column), data_csv=column.csv)
    return element("th", column.title, class_=_side(column), scope="col", data_csv=column.csv)


def _cell(column: Column, cell: Content | Cell) -> Markup:
    if isinstance(cell, Cell):
        value = "" if cell.value is None else repr(cell.value)
        return element("td", cell.content, class_=_side(column), data_v=value)
    return element("td", cell, class_=_side(column))


_MOST_PARTS = 12
"""Parts listed one by one; the others are added up below the table."""


def breakdown_table(breakdown: Breakdown, colours: Mapping[str, str], *, label: str) -> Markup:
    """Parts with bars; the column of intervals only where something is estimated."""
    parts = [part for part in breakdown.parts if part.total_ps]
    shown, rest = parts[:_MOST_PARTS], parts[_MOST_PARTS:]
    is_estimated = any(part.basis == "estimated" for part in shown)
    columns = [text("part"), Column("", ""), figures("share", "share"), figures("time", "total_ps")]
    columns += [text("95 % interval", "interval")] if is_estimated else []
    rows = [_part_cells(part, breakdown.total_ps, colours[part.name], with_interval=is_estimated) for part in shown]
    notes: list[Content] = [element("p", note, class_="dim") for note in breakdown.notes]
    if rest:
        total_ps, share = sum(part.total_ps for part in rest), sum(part.share for part in rest)
        more = f"and {len(rest)} more parts: {format_ps(total_ps)}, {format_ratio(share)}"
        notes.insert(0, element("p", more, class_="dim"))
    return join([data_table(columns, rows, label=label, with_filter=False), *notes])


def _part_cells(part: PartTime, total_ps: int, colour: str, *, with_interval: bool) -> list[Content | Cell]:
    name = join([swatch(colour), " ", category_name(part.name)])
    cells: list[Content | Cell] = [name, _bar(part, total_ps, colour), ratio(part.share), duration(part.total_ps)]
    return [*cells, part_interval(part)] if with_interval else cells


def _bar(part: PartTime, total_ps: int, colour: str) -> Markup:
    """A bar of the part's share with a whisker over its interval."""
    if not total_ps:
        return Markup("")
    low, high = (_percent(time_ps, total_ps) for time_ps in (part.low_ps, part.high_ps))
    shapes = [element("rect", x=0, y=2, width=_percent(part.total_ps, total_ps), height=10, rx=1, fill=colour)]
    if part.low_ps != part.high_ps:
        shapes.append(element("line", x1=low, x2=high, y1=7, y2=7, class_="whisker"))
        shapes += [element("line", x1=x, x2=x, y1=4, y2=10, class_="whisker") for x in (low, high)]
    return element("svg", *shapes, class_="bar", height=14, aria_hidden="true")


def _percent(time_ps: int, total_ps: int) -> str:
    return f"{100 * min(max(time_ps, 0), total_ps) / total_ps:.2f}%"
