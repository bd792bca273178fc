"""Tables of the page: figures carry their exact value, so that the script sorts and copies what was computed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.report.markup import Content, Markup, element


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
