"""One shard of a run, as analyses of the stack see it: its tables, each read once.

What every analysis of the stack returns: a table whose columns say what they hold, and what is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.lazy import Once
from phasepoint.core.tables import Column, array_of
from phasepoint.store import Run, Shard

Data = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Values by column name, `[n_rows]` each; or rows, one after another."""


@dataclass(frozen=True, eq=False)
class ShardRows:
    """What an analysis makes of one shard.

    Attributes:
        rows: rows of the analysis' columns, or whatever its `finish` takes.
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


def rows_of(columns: Sequence[Column], data: Data) -> pa.Table:
    """A table of the given columns.

    Args:
        columns: the declaration.
        data: a value for every column and no other.

    Raises:
        ValueError: a column is missing or unknown, has another type, or holds null where it must be known.
        TableError: a number is too large.
    """
    names = [column.name for column in columns]
    if not isinstance(data, Mapping):
        data = {name: [row[name] for row in data] for name in names}
    if sorted(names) != sorted(data):
        raise ValueError(f"expected the columns {', '.join(names)}, found {', '.join(data)}")
    arrays = []
    for column in columns:
        values = data[column.name]
        if isinstance(values, pa.Array | pa.ChunkedArray):
            array = values.cast(column.type)
        else:
            array = array_of(column.name, values, column.type)
        if not column.nullable and array.null_count:
            raise ValueError(f"column {column.name!r}: {array.null_count} nulls where none may be")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of an analysis' columns."""
    return pa.schema([pa.field(c.name, c.type, c.nullable, metadata={"doc": c.doc, "unit": c.unit}) for c in columns])


@dataclass(frozen=True, eq=False)
class StackShard(Once):
    """A shard and its tables.

    Attributes:
        run: the run.
        shard: which shard of it.
        windows: rows of these windows alone; None for all.
    """

    run: Run
    shard: Shard
    windows: tuple[int, ...] | None = None
    _tables: dict[str, pa.Table] = field(default_factory=dict, repr=False)

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
            table = self.run.table(name, shard=self.shard.name).drop_columns(["host", "attempt"])
            self._tables[name] = _of_windows(name, table, self.windows)
        table = self._tables[name]
        return table if columns is None else table.select(list(columns))

    def only(self, windows: Sequence[int]) -> "StackShard":
        """The shard as if it held these windows alone; what was read of it is not read again."""
        tables = {name: _of_windows(name, table, windows) for name, table in self._tables.items()}
        return StackShard(self.run, self.shard, tuple(windows), tables)


def _of_windows(name: str, table: pa.Table, windows: Sequence[int] | None) -> pa.Table:
    """A table's rows of some windows. Of `windows` itself all stay: where captures lie is known of the whole run."""
    if windows is None or name == "windows" or "window" not in table.column_names:
        return table
    return table.filter(pc.is_in(table["window"], value_set=pa.array(windows, pa.int64())))


def shards_of(run: Run) -> tuple[StackShard, ...]:
    """The shards of a run's history, by host and attempt."""
    return tuple(StackShard(run, shard) for shard in run.shards)


RowsAndNotes = tuple[Data, Sequence[str]]
"""What an analysis says of a shard: its rows, but for their host, and what is not known."""

Order = Sequence[tuple[str, str]]
"""Columns to sort by, each with `ascending` or `descending`; rows that are equal in them stay as they are."""

HOST = Column("host", pa.int64(), "rank of the process")


@dataclass(frozen=True, eq=False)
class Definition:
    """How an analysis makes its rows.

    Attributes:
        columns: what the rows hold; `HOST` stands in front.
        read: its rows of one shard.
        order: how the rows of a shard are sorted; empty where `read` gives them in order.
        part: what `read` gives where shards must be seen together; empty where it gives `columns`.
        finish: makes the rows of `columns` from those of `part` of all shards.
    """

    columns: tuple[Column, ...]
    read: Callable[[StackShard], RowsAndNotes]
    order: Order = ()
    part: tuple[Column, ...] = ()
    finish: Callable[[pa.Table], Data] | None = None

    def of_shard(self, shard: StackShard) -> ShardRows:
        """The rows of one shard, and its notes."""
        data, notes = self.read(shard)
        rows = rows_of((self.part or self.columns)[1:], data)
        rows = rows.add_column(0, schema_of([HOST]).field(0), pa.array([shard.host] * rows.num_rows, HOST.type))
        return ShardRows(rows.sort_by(list(self.order)) if self.order else rows, tuple(notes))

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """What `of_shard` gave of several shards, one after another: shards may be analysed anywhere."""
        return pa.concat_tables([schema_of(self.part or self.columns).empty_table(), *parts])

    def of_shards(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The result's rows, from what `of_shard` gave of each shard."""
        rows = self.merge(parts)
        return rows if self.finish is None else rows_of(self.columns, self.finish(rows))


def analysis(
    *columns: Column,
    order: Order = (),
    part: tuple[Column, ...] = (),
    finish: Callable[[pa.Table], Data] | None = None,
) -> Callable[[Callable[[StackShard], RowsAndNotes]], Definition]:
    """Make a function of a shard the definition of an analysis; `HOST` is put in front of its columns.

    Example:
        `@analysis(LAYER, LATENCY, order=[("latency_ps", "descending")])`
    """
    whole = (HOST, *part) if part else ()
    return lambda read: Definition((HOST, *columns), read, order, whole, finish)
