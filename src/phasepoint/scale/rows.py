"""Rows of a Parquet file whose columns are known.

Its own file: published results and measured steps are read with it, and neither room imports the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import read_parquet


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a file; a byte order mark in a column's name is left out.

    Raises:
        SourceError: it is no Parquet file, or lacks one of the columns.
    """
    try:
        table = read_parquet(path)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: no Parquet file that can be read: {error}") from error
    table = table.rename_columns([name.lstrip("\ufeff") for name in table.column_names])
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise SourceError(f"{path}: has no column {', '.join(missing)}; it has {', '.join(table.column_names)}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
