"""Merging small parts, so that a run of weeks stays a few hundred files.

A merged part is written first and names its sources; they are deleted afterwards. Killed in between, nothing is lost
and nothing counts twice, because a reader passes over sources that a merged part names. Merging is associative: a
merged part can be merged again, and names the first sources.

One compaction of a run at a time.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike

import msgspec
import pyarrow as pa

from phasepoint.core.errors import StoreError, TableError
from phasepoint.core.tables import TABLES, TableSpec
from phasepoint.store.filesystem import (
    Location,
    create_file,
    delete_file,
    delete_temporaries,
    list_directory,
    read_file,
    write_file,
)
from phasepoint.store.manifest import MANIFEST_NAME
from phasepoint.store.parts import (
    MERGED_PREFIX,
    PART_SUFFIX,
    decode_part,
    encode_part,
    merged_metadata,
    merged_name,
    merged_sources,
    select_parts,
)
from phasepoint.store.reader import Shard, open_run
from phasepoint.store.session import ProcessIdentity, is_alive, this_process
from phasepoint.store.shard_table import order_rows, part_names

LOCK_NAME = "compacting.json"

STALE_AFTER_NS = 3_600_000_000_000
"""On an object store, a compaction of another machine that has run for longer is taken for dead."""


class _Owner(msgspec.Struct, frozen=True):
    process: ProcessIdentity
    since_unix_ns: int


@contextmanager
def compaction_lock(location: Location) -> Iterator[None]:
    """Keep other compactions out of a run.

    On a local file system by a lock on run.json, which ends with its process. An object store has no locks: there
    it is an object that names its owner, which keeps out all but those that start at the same instant.

    Raises:
        StoreError: another compaction is under way, or run.json may not be written.
    """
    if location.is_local:
        with _local_lock(location):
            yield
        return
    owner = _Owner(this_process(), time.time_ns())
    data = msgspec.json.encode(owner)
    if not create_file(location, LOCK_NAME, data):
        _take_over(location, owner)
    try:
        yield
    finally:
        delete_file(location, LOCK_NAME)


@contextmanager
def _local_lock(location: Location) -> Iterator[None]:
    name = location.show(MANIFEST_NAME)
    try:
        descriptor = os.open(location.path(MANIFEST_NAME), os.O_RDWR)
    except OSError as error:
        raise StoreError(f"{name} cannot be locked for compaction: {error}; make the run writable") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreError(f"{location.show()}: another process is compacting this run; wait for it to end") from None
    finally:
        os.close(descriptor)


def _take_over(location: Location, owner: _Owner) -> None:
    try:
        other = msgspec.json.decode(read_file(location, LOCK_NAME), type=_Owner)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    alive = is_alive(other.process)
    if alive is None:
        alive = owner.since_unix_ns - other.since_unix_ns < STALE_AFTER_NS
    if alive:
        raise StoreError(
            f"{location.show(LOCK_NAME)}: process {other.process.pid} on {other.process.hostname} is compacting this "
            "run; wait for it to end, or delete that file if it has died"
        )


TARGET_BYTES = 8 << 20
"""A part of this size is not merged further. A choice: it is merged in memory, beside a job that may need all there is;
150 parts of ten million steps (112 MB) took 266 MiB, with 16 MiB to a part 417, with 64 MiB 1,096 (2026-11-24)."""


@dataclass(frozen=True)
class CompactResult:
    """What compaction did to a run, or to a shard.

    Attributes:
        parts_before, parts_after: parts of all tables.
        bytes_before, bytes_after: their size.
        skipped: parts that cannot be read and were left as they are, by full name.
    """

    parts_before: int = 0
    parts_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: tuple[str, ...] = ()

    def __add__(self, other: "CompactResult") -> "CompactResult":
        return CompactResult(
            self.parts_before + other.parts_before,
            self.parts_after + other.parts_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.skipped + other.skipped,
        )


@dataclass(frozen=True)
class _SmallPart:
    """A readable part: its rows, its first sources (itself, if it is no merged one), its size in bytes."""

    name: str
    rows: pa.Table
    sources: frozenset[str]
    size: int


def compact_run(path: str | PathLike[str], *, min_parts: int = 2, target_bytes: int = TARGET_BYTES) -> CompactResult:
    """Merge the parts of every table in every shard of a run, also in one that is being written.

    Args:
        path: path or URL of a run.
        min_parts: a table with fewer small parts is left alone; more than 2 makes repeated calls on a live run cheap.
        target_bytes: size of its sources from which a merged part is closed; larger parts are left alone.

    Raises:
        NotARunError, FormatVersionError: as `open_run`.
        StoreError: another compaction is under way, or a part cannot be written or deleted. Nothing is lost then.
    """
    run = open_run(path)
    result = CompactResult()
    with compaction_lock(run.location):
        for shard in (*run.shards, *run.other_shards):
            result += _compact_shard(run.location, shard, min_parts, target_bytes)
    return result


def _compact_shard(location: Location, shard: Shard, min_parts: int, target_bytes: int) -> CompactResult:
    result = CompactResult()
    folders = [entry.name for entry in list_directory(location, shard.name) if entry.is_dir]
    if shard.state != "live":
        for folder in ("", *folders):
            delete_temporaries(location, f"{shard.name}/{folder}".rstrip("/"))
    for spec in TABLES.values():
        if spec.name in folders:
            folder = f"{shard.name}/{spec.name}"
            before = _part_sizes(location, folder)
            skipped = _compact_table(location, folder, spec, min_parts, target_bytes)
            after = _part_sizes(location, folder)
            result += CompactResult(len(before), len(after), sum(before), sum(after), skipped)
    return result


def _part_sizes(location: Location, folder: str) -> list[int]:
    return [e.size for e in list_directory(location, folder) if e.name.endswith(PART_SUFFIX)]


def _compact_table(
    location: Location, folder: str, spec: TableSpec, min_parts: int, target_bytes: int
) -> tuple[str, ...]:
    """Merge one table's parts group by group; returns the parts that cannot be read, which stay as they are.

    No merged part spans one that cannot be read, so that its neighbours still tell what it held.
    """
    names, skipped = _settle(location, folder, spec)
    sizes = {e.name.removesuffix(PART_SUFFIX): e.size for e in list_directory(location, folder)}
    if sum(sizes[name] < target_bytes for name in names) < min_parts:
        return tuple(skipped)
    group: list[_SmallPart] = []
    for name in names:
        part = _read_part(location, folder, spec, name) if sizes[name] < target_bytes else None
        if part is not None:
            group.append(part)
        elif sizes[name] < target_bytes:
            skipped.append(location.show(f"{folder}/{name}{PART_SUFFIX}"))
        if part is None or sum(p.size for p in group) >= target_bytes:
            _merge(location, folder, spec, group)
            group = []
    _merge(location, folder, spec, group)
    return tuple(skipped)


def _settle(location: Location, folder: str, spec: TableSpec) -> tuple[list[str], list[str]]:
    """Delete what merged parts stand for; returns the parts that count, and the merged parts that cannot be read."""
    names = part_names(location, folder)
    merged: dict[str, frozenset[str]] = {}
    broken = []
    for name in names:
        if name.startswith(MERGED_PREFIX):
            data = _read(location, folder, name)
            if _decode(spec, data) is None:
                broken.append(name)
            else:
                merged[name] = merged_sources(data)
    kept = select_parts([n for n in names if not n.startswith(MERGED_PREFIX)], merged)
    for name in set(names).difference(kept, broken):
        delete_file(location, f"{folder}/{name}{PART_SUFFIX}")
    return kept, [location.show(f"{folder}/{name}{PART_SUFFIX}") for name in broken]


def _merge(location: Location, folder: str, spec: TableSpec, group: list[_SmallPart]) -> None:
    """Replace a group of parts by one."""
    if len(group) < 2:
        return
    sources = frozenset[str]().union(*(part.sources for part in group))
    data = encode_part(order_rows(spec, [part.rows for part in group]), metadata=merged_metadata(sources))
    name = merged_name(sources)
    write_file(location, f"{folder}/{name}{PART_SUFFIX}", data)
    for part in group:
        delete_file(location, f"{folder}/{part.name}{PART_SUFFIX}")


def _read_part(location: Location, folder: str, spec: TableSpec, name: str) -> _SmallPart | None:
    data = _read(location, folder, name)
    rows = _decode(spec, data)
    if rows is None:
        return None
    sources = merged_sources(data) if name.startswith(MERGED_PREFIX) else frozenset({name})
    return _SmallPart(name, rows, sources, data.size)


def _read(location: Location, folder: str, name: str) -> pa.Buffer:
    try:
        return read_file(location, f"{folder}/{name}{PART_SUFFIX}")
    except FileNotFoundError:
        raise StoreError(
            f"{location.show(folder)}/{name}{PART_SUFFIX} is gone while the run is compacted; "
            "do not delete or move parts meanwhile, then compact again"
        ) from None


def _decode(spec: TableSpec, data: pa.Buffer) -> pa.Table | None:
    try:
        return decode_part(spec, data)
    except TableError:
        return None
