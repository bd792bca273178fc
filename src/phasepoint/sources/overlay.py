"""A run that cannot be written, read together with the rows that were converted from it in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa

from phasepoint.core.tables import table_spec
from phasepoint.store import Run


@dataclass(frozen=True)
class OverlaidRun(Run):
    """A run whose tables have more rows than its directory.

    Attributes:
        extra: rows by shard and table.
    """

    extra: Mapping[tuple[str, str], pa.Table] = field(default_factory=dict, repr=False)

    def table(self, name: str, *, columns: Sequence[str] | None = None, shard: str | None = None) -> pa.Table:
        """As `Run.table`, with the rows converted in memory."""
        stored = super().table(name, shard=shard)
        tables = [stored]
        for one in self.shards:
            rows = self.extra.get((one.name, name))
            if rows is None or not rows.num_rows or shard not in (None, one.name):
                continue
            front = [pa.repeat(pa.scalar(n, pa.int64()), rows.num_rows) for n in (one.host, one.attempt)]
            tables.append(pa.Table.from_arrays([*front, *rows.columns], schema=stored.schema))
        merged = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        order = [(key, "ascending") for key in ("host", "attempt", *table_spec(name).order_by)]
        keep = stored.schema.names if columns is None else super().table(name, columns=columns).schema.names
        return merged.sort_by(order).select(keep)


def overlay_rows(run: Run, extra: Mapping[tuple[str, str], pa.Table]) -> Run:
    """The run with more rows in its tables.

    Args:
        run: an opened run.
        extra: rows as declared, by shard and table.
    """
    return OverlaidRun(**{f.name: getattr(run, f.name) for f in fields(run)}, extra=extra)
