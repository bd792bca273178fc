"""One analysis of the stack on a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.report.stack_cells import cell_text, heading, is_number
from phasepoint.stack.result import StackTable

MOST_ROWS = 100
"""Rows shown; `--json` and `--csv` give all."""


def render_stack(table: StackTable, console: Console) -> None:
    """Print the rows under their heading; columns that are null throughout are left out and named."""
    console.print(Text(f"{table.code}  {table.title}" if table.code else table.title, style="bold"))
    rows = table.rows.slice(0, MOST_ROWS).to_pylist()
    unknown = [c for c in table.columns if table.rows.num_rows and table.rows[c.name].null_count == table.rows.num_rows]
    shown = [column for column in table.columns if column not in unknown]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in shown:
        grid.add_column(heading(column), justify="right" if is_number(column) else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell_text(column, row[column.name])) for column in shown))
    console.print(grid if rows else Text("no rows", style="dim"))
    if unknown:
        console.print(Text(f"not known in this run: {', '.join(map(heading, unknown))}", style="dim"))
    if table.rows.num_rows > MOST_ROWS:
        left = table.rows.num_rows - MOST_ROWS
        console.print(Text(f"… {left:,} more of {table.rows.num_rows:,} rows; --csv and --json print all", style="dim"))
