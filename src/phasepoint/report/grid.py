"""A query's result as text columns."""

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.report.names import shorten

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
