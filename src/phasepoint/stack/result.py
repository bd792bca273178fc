"""What every analysis of the stack returns: a table whose columns say what they hold, and what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phasepoint.core.tables import Column


@dataclass(frozen=True, eq=False)
class ShardRows:
    """What an analysis makes of one shard.

    Attributes:
        rows: rows of the analysis' columns, or whatever its `merge` takes.
        notes: what is not known, why, and which recording would bring it; equal notes of several shards are told once.
    """

    rows: pa.Table
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class StackTable:
    """The result of one analysis.

    Attributes:
        name: as it is asked for: `device-time`, `layer-kernels`.
        code: its published code, `A11`; None for those beyond the fifteen.
        title: heading, in words.
        columns: what each column holds, with its unit.
        rows: the rows, in the order in which they are to be read.
        notes: as `ShardRows.notes`.
    """

    name: str
    code: str | None
    title: str
    columns: tuple[Column, ...]
    rows: pa.Table
    notes: tuple[str, ...]


def rows_of(columns: Sequence[Column], data: Mapping[str, Sequence[Any] | pa.Array]) -> pa.Table:
    """A table of the given columns.

    Args:
        columns: the declaration.
        data: `[n_rows]` values by column name, for every column.

    Raises:
        ValueError: a column is missing or unknown, has another type, or holds null where it must be known.
    """
    names = [column.name for column in columns]
    if sorted(names) != sorted(data):
        raise ValueError(f"expected the columns {', '.join(names)}, found {', '.join(data)}")
    arrays = []
    for column in columns:
        values = data[column.name]
        if isinstance(values, pa.Array | pa.ChunkedArray):
            array = values.cast(column.type)
        else:
            array = pa.array(values, column.type)
        if not column.nullable and array.null_count:
            raise ValueError(f"column {column.name!r}: {array.null_count} nulls where none may be")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of an analysis' columns."""
    return pa.schema([pa.field(c.name, c.type, c.nullable, metadata={"doc": c.doc, "unit": c.unit}) for c in columns])
