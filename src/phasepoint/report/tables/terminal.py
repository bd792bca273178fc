"""A table on a terminal. Every cell is a `Text`: names are never read as markup.

Its own file: a medium of the table, beside the others.
"""

from dataclasses import replace

import pyarrow as pa
import rich.table
from rich.console import Console
from rich.text import Text

from phasepoint.report.tables import Cell, Table, TableColumn, arrow_table, cell_text
from phasepoint.report.words.names import shorten

MOST_ROWS = 1_000
"""Rows of a query shown; more than that is for `--csv` and `--json`, which have no limit."""

_MOST_CHARACTERS = 200
"""Of a query's value: a choice, two lines of a wide terminal."""


def grid(table: Table, *, gap: int = 2) -> rich.table.Table:
    """The table for a console to print, `gap` blanks between its columns."""
    shown = rich.table.Table(
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        header_style="dim",
        show_header=any(column.title for column in table.columns),
    )
    for column in table.columns:
        title = Text(column.title)
        shown.add_column(
            title, justify=column.side, no_wrap=not column.wraps, overflow="fold" if column.wraps else "ellipsis"
        )
    for item in table.rows:
        cells = ((column, column.cell(item)) for column in table.columns)
        values = ((column, cell.shown if isinstance(cell, Cell) else cell) for column, cell in cells)
        shown.add_row(*(v if isinstance(v, Text) else Text(cell_text(v, c.unit, c.width)) for c, v in values))
    return shown


def render_rows(rows: pa.Table, console: Console) -> None:
    """Print a query's rows, values as they are, numbers to the right; says how many are left out."""
    shown = arrow_table(rows.slice(0, MOST_ROWS))
    console.print(grid(replace(shown, columns=[_as_it_is(column) for column in shown.columns])))
    if rows.num_rows > MOST_ROWS:
        left = rows.num_rows - MOST_ROWS
        console.print(Text(f"… {left:,} more of {rows.num_rows:,} rows; --csv and --json print all", style="dim"))


def _as_it_is(column: TableColumn) -> TableColumn:
    def cell(row: object) -> Text:
        value = column.cell(row)
        if value is None or isinstance(value, bytes):
            return Text("null" if value is None else f"{len(value):,} bytes", style="dim")
        return Text(shorten(str(value), _MOST_CHARACTERS))

    return replace(column, title=shorten(column.title, 60), cell=cell, wraps=True)
