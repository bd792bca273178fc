"""Every analysis of one host, for a report: of as many of its kept windows as bounded work allows, the newest first."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
        tables = {
            name: table.filter(_is_of(table, one)).drop_columns(["host", "attempt"])
            for name, table in (known or {}).items()
        }
        shard = StackShard(run, one, _tables=tables)
        spans = shard.table("spans")
        if spans.num_rows:
            return _overview(shard, spans)
    return None


def _is_of(table: pa.Table, shard: Shard) -> pa.ChunkedArray:
    """`[n_rows]` which rows of a table of the whole run are the shard's."""
    return pc.and_(pc.equal(table["host"], shard.host), pc.equal(table["attempt"], shard.attempt))


def _overview(whole: StackShard, spans: pa.Table) -> StackOverview:
    windows, counts = np.unique(spans["window"].to_numpy(), return_counts=True)
    fits = np.cumsum(counts[::-1]) <= MOST_SPANS
    chosen = windows[-max(int(fits.sum()), 1) :].tolist()
    shard = whole.only(chosen)
    tables = (table_of(analysis, [analysis.of_shard(shard)]) for analysis in ANALYSES)
    shown = tuple(
        ShownTable(replace(table, rows=table.rows.slice(0, MOST_ROWS)), table.rows.num_rows) for table in tables
    )
    return StackOverview(whole.host, len(chosen), len(windows), shown)
