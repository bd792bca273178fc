"""An Arrow table as CSV text."""

import re
from collections.abc import Sequence

import pyarrow as pa


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
