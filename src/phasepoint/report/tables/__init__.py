"""One table, whatever shows it: its columns, each with its unit and what stands in it, and its rows.

`terminal`, `html` and `text` (CSV, Markdown, JSON) beside this show it. What a value looks like in its unit is said
here, once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.report.words.names import printable, shorten

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

    from phasepoint.core.tables import Column
    from phasepoint.report.words.markup import Markup

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FORMATS = {"ps": format_ps, "bytes": format_bytes, "ratio": format_ratio}
_SCALED = {"flop/s": "FLOP/s", "bytes/s": "B/s", "flop": "FLOP", "items/s": "items/s"}
"""Units that take a prefix of the SI, as they are shown."""

_BATCH_ROWS = 65_536
"""Rows of an Arrow table that are Python values at a time: a choice, some tens of megabytes."""


@dataclass(frozen=True)
class Cell:
    """A cell that shows something else than its value in its column's unit.

    Attributes:
        shown: text, or markup where a page shows it.
        value: the exact value behind it, for sorting and copying; None: not known.
    """

    shown: "str | Markup"
    value: int | float | None


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        title: heading; a table without any title is shown without its line of headings.
        cell: of a row's item, what stands in the column: a value, which is shown in the column's unit, or what is shown
            as it is (a `Cell`, markup on a page, styled text on a terminal).
        unit: unit of the values: ps, bytes, ratio, flop/s, …, or `count`; empty for text.
        name: in CSV and JSON, with the unit of exact values; left out: the title in one word; empty: only shown.
        doc: one line of what it holds.
        is_figure: whether it holds numbers, which stand on the right; left out: whether it has a unit.
        width: most characters of a text; the middle of a longer one gives way.
        wraps: whether a terminal may break a cell into lines.
    """

    title: str
    cell: "Callable[[Any], str | int | float | bytes | Cell | Markup | Text | None]"
    unit: str = ""
    name: str | None = None
    doc: str = ""
    is_figure: bool | None = None
    width: int | None = None
    wraps: bool = False

    @property
    def side(self) -> Literal["left", "right"]:
        """Where its cells stand."""
        return "right" if (bool(self.unit) if self.is_figure is None else self.is_figure) else "left"

    @property
    def key(self) -> str:
        """Its name in CSV and JSON; empty where it is only shown."""
        return self.title.replace(" ", "_") if self.name is None else self.name


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: from left to right.
        rows: an item for each row, whatever the columns' `cell` takes.
        label: what it holds, in words.
    """

    columns: Sequence[TableColumn]
    rows: Iterable[Any]
    label: str = ""


def cell_text(value: object, unit: str = "", width: int | None = None) -> str:
    """A value as it is shown: `1.23 ms`, `45.6 %`, `12.3 TFLOP/s`; null is `–`.

    Args:
        value: the value.
        unit: its unit.
        width: most characters of a text.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or not isinstance(value, Real):
        return printable(str(value)) if width is None else shorten(str(value), width)
    number = float(value)
    if unit in _FORMATS:
        return _FORMATS[unit](number)
    if unit in _SCALED:
        least, prefix = next(((least, prefix) for least, prefix in _SI if abs(number) >= least), (1.0, ""))
        return f"{number / least:.3g} {prefix}{_SCALED[unit]}"
    return format_count(int(value)) if isinstance(value, Integral) else f"{number:.4g}"


def heading(column: "Column") -> str:
    """A column's heading: its name without the unit, which each cell shows; a ratio keeps the word, beside its time."""
    name = "share" if column.name == "share_ratio" else column.name
    for suffix in ("_ps", "_bytes", "_flop_per_s", "_bytes_per_s"):
        if name.endswith(suffix) and name != suffix:
            name = name.removesuffix(suffix)
            break
    return name.replace("_", " ")


def arrow_table(rows: "pa.Table", columns: "Sequence[Column] | None" = None, *, width: int | None = None) -> Table:
    """An Arrow table as a table.

    Args:
        rows: the rows.
        columns: what its columns hold; without it they have their names and no units.
        width: most characters of a text.
    """
    import pyarrow.types as kinds

    if columns is not None:
        rows = rows.select([column.name for column in columns])
    declared: Sequence[Column | None] = [None] * rows.num_columns if columns is None else columns
    shown = [
        TableColumn(
            field.name if column is None else heading(column),
            itemgetter(index),
            "" if column is None else column.unit,
            field.name,
            "" if column is None else column.doc,
            is_figure=any(is_kind(field.type) for is_kind in (kinds.is_integer, kinds.is_floating, kinds.is_decimal)),
            width=width,
        )
        for index, (field, column) in enumerate(zip(rows.schema, declared, strict=True))
    ]
    return Table(shown, _arrow_rows(rows))


def _arrow_rows(rows: "pa.Table") -> Iterator[tuple[Any, ...]]:
    """Its rows as tuples, batch by batch; texts leave their dictionary first, with which it takes twice as long."""
    import pyarrow as pa

    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        columns = (c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns)
        yield from zip(*(column.to_pylist() for column in columns), strict=True)
