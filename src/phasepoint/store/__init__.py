"""The run directory: writer, reader, manifest, compaction, SQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.store.compact import CompactResult as CompactResult
    from phasepoint.store.compact import compact_run as compact_run
    from phasepoint.store.converter import drop_raw as drop_raw
    from phasepoint.store.converter import write_part as write_part
    from phasepoint.store.manifest import Manifest as Manifest
    from phasepoint.store.manifest import create_run as create_run
    from phasepoint.store.reader import Run as Run
    from phasepoint.store.reader import Shard as Shard
    from phasepoint.store.reader import open_run as open_run
    from phasepoint.store.session import Session as Session
    from phasepoint.store.sql import run_sql as run_sql
    from phasepoint.store.writer import ShardWriter as ShardWriter
    from phasepoint.store.writer import open_shard as open_shard

_HOMES = {
    "CompactResult": "compact",
    "Manifest": "manifest",
    "Run": "reader",
    "Session": "session",
    "Shard": "reader",
    "ShardWriter": "writer",
    "compact_run": "compact",
    "create_run": "manifest",
    "drop_raw": "converter",
    "open_run": "reader",
    "open_shard": "writer",
    "run_sql": "sql",
    "write_part": "converter",
}

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.store.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.store' has no attribute {name!r}")
