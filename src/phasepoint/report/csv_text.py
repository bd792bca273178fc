"""An Arrow table as CSV text."""

import csv
import io
from collections.abc import Sequence

import pyarrow as pa


def csv_text(table: pa.Table, *, for_spreadsheet: bool = False) -> str:
    """A table as CSV: header line, `\\n` line ends, quotes where needed, empty for null.

    Args:
        table: what to write.
        for_spreadsheet: put an apostrophe before text that a spreadsheet would run as a formula
            (`=`, `+`, `-`, `@` in front): names come from traces, which nobody vouches for.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.schema.names)
    for batch in table.to_batches(max_chunksize=65_536):
        columns = [_cells(column, for_spreadsheet=for_spreadsheet) for column in batch.columns]
        writer.writerows(zip(*columns, strict=True))
    return out.getvalue()


def _cells(column: pa.Array, *, for_spreadsheet: bool) -> Sequence[object]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    values: list[object] = column.to_pylist()
    if not for_spreadsheet or not pa.types.is_string(column.type):
        return values
    return [_harmless(value) if isinstance(value, str) else value for value in values]


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
