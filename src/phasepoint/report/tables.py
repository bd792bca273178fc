"""An Arrow table as CSV text.

A query's result as text columns.

Values of a stack table as text: each by the unit that its column declares.
"""

import re
from collections.abc import Sequence

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.tables import Column
from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.report.words.names import shorten

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FORMATS = {"ps": format_ps, "bytes": format_bytes, "ratio": format_ratio}
_SCALED = ("flop/s", "bytes/s", "flop", "items/s")


def cell_text(column: Column, value: object, *, width: int = 60) -> str:
    """A value as it is shown: `1.23 ms`, `45.6 %`, `12.3 TFLOP/s`; null is `–`.

    Args:
        column: the value's column.
        value: the value.
        width: most characters of a text.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return shorten(str(value), width)
    if column.unit in _FORMATS:
        return _FORMATS[column.unit](value)
    if column.unit in _SCALED:
        return _scaled(float(value), column.unit.replace("flop", "FLOP").replace("bytes", "B"))
    return format_count(value) if isinstance(value, int) else f"{value:.4g}"


def is_number(column: Column) -> bool:
    """Whether a column's values stand to the right."""
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def heading(column: Column) -> str:
    """A column's heading: its name without the unit, which each cell shows; a ratio keeps the word, beside its time."""
    name = "share" if column.name == "share_ratio" else column.name
    for suffix in ("_ps", "_bytes", "_flop_per_s", "_bytes_per_s"):
        if name.endswith(suffix) and name != suffix:
            name = name.removesuffix(suffix)
            break
    return name.replace("_", " ")


def _scaled(value: float, unit: str) -> str:
    for least, prefix in _SI:
        if abs(value) >= least:
            return f"{value / least:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


MOST_ROWS = 1_000
"""Rows shown; more than that is for `--csv` and `--json`, which have no limit."""

_MOST_CHARACTERS = 200


def render_table(table: pa.Table, console: Console) -> None:
    """Print a table's rows, numbers to the right; says how many are left out."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for field in table.schema:
        grid.add_column(Text(shorten(field.name, 60)), justify="right" if _is_number(field.type) else "left")
    columns = [column.slice(0, MOST_ROWS).to_pylist() for column in table.columns]
    for row in zip(*columns, strict=True):
        grid.add_row(*(_cell(value) for value in row))
    console.print(grid)
    if table.num_rows > MOST_ROWS:
        left = table.num_rows - MOST_ROWS
        console.print(Text(f"… {left:,} more of {table.num_rows:,} rows; --csv and --json print all", style="dim"))


def _cell(value: object) -> Text:
    if value is None or isinstance(value, bytes):
        return Text("null" if value is None else f"{len(value):,} bytes", style="dim")
    return Text(shorten(str(value), _MOST_CHARACTERS))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def csv_text(table: pa.Table, *, for_spreadsheet: bool = False) -> str:
    """A table as CSV: header line, `\\n` line ends, quotes where needed, empty for null.

    Args:
        table: what to write.
        for_spreadsheet: put an apostrophe before text that a spreadsheet would run as a formula
            (`=`, `+`, `-`, `@` in front): names come from traces, which nobody vouches for.
    """
    lines = [",".join(map(_field, table.schema.names))]
    for batch in table.to_batches(max_chunksize=65_536):
        columns = [_cells(column, for_spreadsheet=for_spreadsheet) for column in batch.columns]
        lines += [",".join(row) for row in zip(*columns, strict=True)]
    return "\n".join(lines) + "\n"


_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$|^$')


def _cells(column: pa.Array, *, for_spreadsheet: bool) -> Sequence[str]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    is_text = pa.types.is_string(column.type)
    disarm = for_spreadsheet and is_text
    if pa.types.is_binary(column.type):
        return ["" if v is None else v.hex() for v in column.to_pylist()]
    return ["" if v is None else _field(_harmless(v) if disarm else str(v)) for v in column.to_pylist()]


def _field(text: str) -> str:
    """A field as RFC 4180 quotes it; an empty text is quoted, so that it is not taken for null."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
