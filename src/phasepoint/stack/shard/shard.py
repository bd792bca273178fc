"""One shard of a run, as analyses of the stack see it: its tables, each read once.

What every analysis of the stack returns: a table whose columns say what they hold, and what is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.store import Run, Shard


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


Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class StackShard:
    """A shard and its tables.

    Attributes:
        run: the run.
        shard: which shard of it.
    """

    run: Run
    shard: Shard
    _tables: dict[str, pa.Table] = field(default_factory=dict, repr=False)
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    @property
    def host(self) -> int:
        """Rank of the process that wrote the shard."""
        return self.shard.host

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The shard's rows of a table, without `host` and `attempt`; read once, however often it is asked for.

        Args:
            name: a table of `core.tables`.
            columns: which columns; None for all.
        """
        if name not in self._tables:
            self._tables[name] = self.run.table(name, shard=self.shard.name).drop_columns(["host", "attempt"])
        table = self._tables[name]
        return table if columns is None else table.select(list(columns))

    def once(self, make: "Callable[[StackShard], Made]") -> Made:
        """What a function makes of the shard, made at the first call and kept: analyses share their groundwork."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made


def shards_of(run: Run) -> tuple[StackShard, ...]:
    """The shards of a run's history, by host and attempt."""
    return tuple(StackShard(run, shard) for shard in run.shards)
