"""One analysis of the stack on a terminal: the columns that fit in whole words, and the names of those that do not."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.tables import Column
from phasepoint.report.stack_cells import cell_text, heading, is_number
from phasepoint.stack.result import StackTable

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
