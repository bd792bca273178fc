"""Every analysis of one host, for a report: of as many of its kept windows as bounded work allows, the newest first."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.stack.analyses.table import ANALYSES, table_of
from phasepoint.stack.shard.shard import StackShard, StackTable
from phasepoint.store import Run, Shard

MOST_ROWS = 20
"""Rows kept of each table; `phasepoint stack` prints all."""

MOST_SPANS = 20_000
"""Spans looked at: whole windows, as many as fit, and one at least."""


@dataclass(frozen=True)
class ShownTable:
    """A table as a report shows it.

    Attributes:
        table: its first rows.
        rows: how many it has in all.
    """

    table: StackTable
    rows: int


@dataclass(frozen=True)
class StackOverview:
    """The analyses of one host.

    Attributes:
        host: rank of the process.
        windows: windows looked at.
        windows_kept: windows whose spans were kept.
        tables: in the order of `ANALYSES`.
    """

    host: int
    windows: int
    windows_kept: int
    tables: tuple[ShownTable, ...]


def build_overview(run: Run, *, known: Mapping[str, pa.Table] | None = None) -> StackOverview | None:
    """The analyses of the first host that kept spans; None where none did.

    Args:
        run: an opened run whose captures are converted.
        known: tables of the run that have been read already, with `host` and `attempt`.

    Raises:
        StoreError: the run's tables cannot be read.
    """
    for one in run.shards:
        shard = StackShard(run, one, _tables={name: _of_shard(table, one) for name, table in (known or {}).items()})
        spans = shard.table("spans")
        if spans.num_rows:
            return _overview(run, shard, spans)
    return None


def _of_shard(table: pa.Table, shard: Shard) -> pa.Table:
    mine = pc.and_(pc.equal(table["host"], shard.host), pc.equal(table["attempt"], shard.attempt))
    return table.filter(mine).drop_columns(["host", "attempt"])


def _overview(run: Run, whole: StackShard, spans: pa.Table) -> StackOverview:
    windows, counts = np.unique(spans["window"].to_numpy(), return_counts=True)
    fits = np.cumsum(counts[::-1]) <= MOST_SPANS
    chosen = windows[-max(int(fits.sum()), 1) :]
    shard = _Part(run, whole.shard, _tables=dict(whole._tables), windows=tuple(chosen.tolist()))
    parts = ((analysis, analysis.of_shard(shard)) for analysis in ANALYSES)
    tables = tuple(_shown(table_of(analysis, [part])) for analysis, part in parts)
    return StackOverview(whole.host, len(chosen), len(windows), tables)


def _shown(table: StackTable) -> ShownTable:
    rows = table.rows.slice(0, MOST_ROWS)
    cut = StackTable(table.name, table.code, table.title, table.columns, rows, table.notes)
    return ShownTable(cut, table.rows.num_rows)


@dataclass(frozen=True, eq=False)
class _Part(StackShard):
    """A shard of which some windows are looked at."""

    windows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, table in self._tables.items():
            self._tables[name] = self._cut(name, table)

    def table(self, name: str, columns: "list[str] | tuple[str, ...] | None" = None) -> pa.Table:  # type: ignore[override]
        """The shard's rows of a table in the chosen windows."""
        if name not in self._tables:
            self._tables[name] = self._cut(name, super().table(name))
        table = self._tables[name]
        return table if columns is None else table.select(list(columns))

    def _cut(self, name: str, table: pa.Table) -> pa.Table:
        if "window" not in table.column_names or name == "windows":
            return table
        return table.filter(pc.is_in(table["window"], value_set=pa.array(self.windows, pa.int64())))
