"""The run directory: writer, reader, manifest, compaction, SQL."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.store.compact import CompactResult, compact_run
    from phasepoint.store.manifest import Manifest, create_run
    from phasepoint.store.reader import Run, Shard, open_run
    from phasepoint.store.session import Session
    from phasepoint.store.sql import run_sql
    from phasepoint.store.writer import ShardWriter, drop_raw, open_shard, write_part

__all__ = [
    "CompactResult",
    "Manifest",
    "Run",
    "Session",
    "Shard",
    "ShardWriter",
    "compact_run",
    "create_run",
    "drop_raw",
    "open_run",
    "open_shard",
    "run_sql",
    "write_part",
]

__getattr__ = lazy_names(
    __name__,
    {
        "CompactResult": ".compact",
        "compact_run": ".compact",
        "Manifest": ".manifest",
        "create_run": ".manifest",
        "Run": ".reader",
        "Shard": ".reader",
        "open_run": ".reader",
        "Session": ".session",
        "ShardWriter": ".writer",
        "open_shard": ".writer",
        "drop_raw": ".writer",
        "write_part": ".writer",
        "run_sql": ".sql",
    },
)
