"""A table as text: CSV, Markdown, and the values of a JSON document.

Its own file: media of the table, beside the others.
"""

import re
from typing import Any

from phasepoint.report.tables import Table, cell_text
from phasepoint.report.words.names import printable

_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$|^$')

_NUMBERS = (int, float)
"""What is never quoted; named once, as the sum of types is not made anew for each of a million cells."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!@&])")
"""What Markdown (and GitHub's, which notifies people by @name) gives a meaning; names are text."""


def csv_text(table: Table, *, for_spreadsheet: bool = False) -> str:
    """A table as CSV: header line, `\\n` line ends, quotes where needed, empty for null.

    Args:
        table: what to write.
        for_spreadsheet: put an apostrophe before text that a spreadsheet would run as a formula
            (`=`, `+`, `-`, `@` in front): names come from traces, which nobody vouches for.
    """
    cells = [column.cell for column in table.columns]
    lines = [",".join(_field(column.key) for column in table.columns)]
    lines += [",".join([_csv_cell(cell(row), for_spreadsheet) for cell in cells]) for row in table.rows]
    return "\n".join(lines) + "\n"


def _csv_cell(value: Any, for_spreadsheet: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        is_formula = for_spreadsheet and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        return _field(f"'{value}" if is_formula else value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, _NUMBERS) else _field(str(value))


def _field(text: str) -> str:
    """A field as RFC 4180 quotes it; an empty text is quoted, so that it is not taken for null."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def markdown_table(table: Table) -> str:
    """A table in Markdown, without a newline at its end."""
    heads = [column.title for column in table.columns]
    marks = ["---:" if column.side == "right" else "---" for column in table.columns]
    rows = ([markdown_text(cell_text(c.cell(item), c.unit)) for c in table.columns] for item in table.rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, marks, *rows])


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))


def table_document(table: Table) -> dict[str, Any]:
    """`columns` (name, unit, doc) and `rows` (values by name), as the commands' `--json` prints them."""
    columns = [{"name": column.key, "unit": column.unit, "doc": column.doc} for column in table.columns]
    return {"columns": columns, "rows": [{c.key: c.cell(item) for c in table.columns} for item in table.rows]}
