"""Reading a run: while it is written, after its writer was killed, and when parts of it are broken.

Which attempts of each rank make up the run's history.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from os import PathLike
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from phasepoint.core.errors import StoreError, TableError
from phasepoint.core.tables import TABLES, TableSpec, table_spec
from phasepoint.store.filesystem import Location, list_directory, open_location
from phasepoint.store.manifest import Manifest, read_manifest
from phasepoint.store.raw import read_raw_file
from phasepoint.store.session import (
    BrokenSession,
    ProcessIdentity,
    Session,
    ShardState,
    parse_shard_name,
    read_session,
    shard_state,
)
from phasepoint.store.shard_table import (
    KeepRows,
    LostPart,
    ShardTable,
    join_tables,
    lost_part_gaps,
    order_rows,
    part_names,
    read_shard_table,
)


class Attempt(Protocol):
    """What is asked of a shard to place it."""

    @property
    def host(self) -> int:
        """Rank."""

    @property
    def attempt(self) -> int:
        """How often the rank was started before."""

    @property
    def started_unix_ns(self) -> int:
        """When it was started."""

    @property
    def ended_well_unix_ns(self) -> int | None:
        """When it was closed with status `ok`, None if it was not."""


_A = TypeVar("_A", bound=Attempt)


def select_history(shards: Sequence[_A]) -> tuple[_A, ...]:
    """Of each rank the newest attempt and, back from it, those that did not end well; by host and attempt.

    An attempt that ended well and was followed by another is a different recording into the same directory: it and
    all before it are kept on disk, but not mixed in. Nor is a rank that took part in that recording only (the job
    was started again with fewer ranks), which shows in that its newest attempt began before the recording ended.
    """
    chosen: dict[int, list[_A]] = {}
    ends_unix_ns: dict[int, int] = {}
    for host, attempts in groupby(sorted(shards, key=lambda s: (s.host, -s.attempt)), key=lambda s: s.host):
        newest, *before = attempts
        chosen[host] = [newest]
        for shard in before:
            if shard.ended_well_unix_ns is not None:
                ends_unix_ns[host] = shard.ended_well_unix_ns
                break
            chosen[host].insert(0, shard)
    if ends_unix_ns:
        earliest_end = min(ends_unix_ns.values())
        for host in set(chosen).difference(ends_unix_ns):
            if chosen[host][-1].started_unix_ns < earliest_end:
                del chosen[host]
    return tuple(shard for host in sorted(chosen) for shard in chosen[host])


@dataclass(frozen=True)
class Shard:
    """One process's share of a run.

    Attributes:
        name: its directory: `host=00000`, `host=00000.1`.
        host: rank.
        attempt: how often the rank was started before.
        session: whose it is and on which clock.
        state: `live`, `closed` or `killed`.
    """

    name: str
    host: int
    attempt: int
    session: Session
    state: ShardState

    @property
    def started_unix_ns(self) -> int:
        """When the session began, Unix nanoseconds."""
        return self.session.epoch_unix_ns

    @property
    def ended_well_unix_ns(self) -> int | None:
        """When it was closed with status `ok`, Unix nanoseconds; None if it was not."""
        return self.session.closed_unix_ns if self.session.status == "ok" else None


@dataclass(frozen=True)
class Run:
    """An opened run. Tables are read when asked for, so a run that is still being written shows its newest rows.

    Attributes:
        path: path or URL that opens it again.
        manifest: what run.json says.
        shards: the attempts that make up the run's history, by host and attempt.
        other_shards: attempts of earlier recordings into the same directory: kept, not mixed in.
    """

    path: str
    manifest: Manifest
    shards: tuple[Shard, ...]
    other_shards: tuple[Shard, ...]
    location: Location = field(repr=False)
    _problems: tuple[str, ...] = field(repr=False)
    _lost: dict[tuple[str, str], tuple[LostPart, ...]] = field(default_factory=dict, repr=False)
    _kept: dict[tuple[str, str], ShardTable] = field(default_factory=dict, repr=False)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was found to be unreadable so far, in words; reading a table may add to it."""
        lost = (f"{p.part}: {p.reason}; its rows are missing" for parts in self._lost.values() for p in parts)
        return (*self._problems, *lost)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is there but was left out on purpose, in words."""
        return tuple(
            f"{self.location.show(s.name)}: part of an earlier recording; kept, not mixed in" for s in self.other_shards
        )

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Names of all machines that took part."""
        return tuple(sorted({s.session.owner.hostname for s in self.shards}))

    def shard(self, name: str) -> Shard:
        """The shard of this name, from the history or from the others.

        Raises:
            StoreError: there is none; the message lists those there are.
        """
        found = self._by_name.get(name)
        if found is None:
            there_are = ", ".join(self._by_name) or "none"
            raise StoreError(f"{self.location.show()}: no shard named {name!r}; there are: {there_are}")
        return found

    @cached_property
    def _by_name(self) -> dict[str, Shard]:
        return {shard.name: shard for shard in (*self.shards, *self.other_shards)}

    def only(self, shard: str) -> Self:
        """The run as if it were this shard alone, to be read apart from the others, in another process too.

        Its `problems` are those that are found in it from now on.

        Raises:
            StoreError: there is no such shard.
        """
        return replace(self, shards=(self.shard(shard),), other_shards=(), _problems=(), _lost={}, _kept={})

    def table(self, name: str, *, columns: Sequence[str] | None = None, shard: str | None = None) -> pa.Table:
        """The rows of a table over the run's history, each once.

        Args:
            name: a table of `core.tables`.
            columns: declared columns to keep, all if None; `host` and `attempt` always stand in front.
            shard: read this shard alone.

        Returns:
            `host` and `attempt` (int64) and the declared columns, sorted by host, attempt and the table's `order_by`.
            For `gaps`, with a row for every part of any table that cannot be read.

        Raises:
            TableError: no such table or column.
            StoreError: the file system fails, or there is no such shard.
        """
        spec = table_spec(name)
        schema = _with_host(spec)
        keep = schema.names if columns is None else ["host", "attempt", *_declared(spec, columns)]
        shards = self.shards if shard is None else (self.shard(shard),)
        tables = []
        for one in shards:
            rows = self._read(one, spec)
            if name == "gaps" and (lost := self._lost_parts(one)):
                rows = order_rows(spec, [rows, lost_part_gaps(lost)])
            if rows.num_rows:
                tables.append(_prepend_host(schema, one, rows))
        return join_tables(tables, schema.empty_table()).select(keep)

    def rows(self, name: str, *, shard: str, keep: KeepRows) -> pa.Table:
        """Some rows of a table of one shard, in the declared order, without `host` and `attempt`.

        Args:
            name: a table of `core.tables`.
            shard: read this shard.
            keep: which rows of a part are wanted. No more than one part is in memory beside them.

        Raises:
            TableError: no such table.
            StoreError: the file system fails, or there is no such shard.
        """
        return read_shard_table(self.location, self.shard(shard).name, table_spec(name), keep=keep).rows

    def has_part(self, name: str) -> bool:
        """Whether any shard of the history has a part of this table, or a tail; cheap, as nothing is read.

        Raises:
            StoreError: the file system fails.
        """
        return any(part_names(self.location, f"{shard.name}/{name}", with_tail=True) for shard in self.shards)

    def read_raw(self, shard_name: str, relative_path: str) -> bytes:
        """A raw capture, decompressed by its `.zst` suffix.

        Raises:
            StoreError: no such shard or capture, a path that leads out of `raw/`, or a corrupt capture.
        """
        return read_raw_file(self.location, self.shard(shard_name).name, relative_path)

    def _read(self, shard: Shard, spec: TableSpec, *, keep: bool = False) -> pa.Table:
        """Read a table of a shard; one that was kept is handed out once, unless there is more of it by now."""
        key = shard.name, spec.name
        found = self._kept.pop(key, None)
        if found is None or found.parts != part_names(self.location, f"{shard.name}/{spec.name}", with_tail=True):
            found = read_shard_table(self.location, shard.name, spec)
        if keep:
            self._kept[key] = found
        self._lost[key] = found.lost
        return found.rows

    def _lost_parts(self, shard: Shard) -> list[LostPart]:
        for spec in TABLES.values():
            if (shard.name, spec.name) not in self._lost:
                self._read(shard, spec, keep=True)  # whoever reads the gaps may want it next
        return [part for spec in TABLES.values() for part in self._lost[shard.name, spec.name]]


def open_run(path: str | PathLike[str], *, now_unix_ns: int | None = None) -> Run:
    """Open the run at a path or URL; it may still be written, or its writer may have been killed.

    Args:
        path: local path, or a URL of `pyarrow.fs`.
        now_unix_ns: the time at which to judge heartbeats of writers on other machines; now if None.

    Raises:
        NotARunError: there is no run.
        FormatVersionError: the run is of another major version.
        StoreError: the manifest is broken, or the file system fails.
    """
    location = open_location(path)
    manifest = read_manifest(location)
    now = time.time_ns() if now_unix_ns is None else now_unix_ns
    problems = []
    found = []
    for entry in list_directory(location):
        key = parse_shard_name(entry.name)
        if entry.is_dir and key is not None:
            session = read_session(location, entry.name)
            if isinstance(session, BrokenSession) and not list_directory(location, entry.name):
                problems.append(f"{location.show(entry.name)}: empty; nothing of that attempt was written")
                continue
            if isinstance(session, BrokenSession):
                problems.append(f"{session.reason}; its tables are read, its times count from the run's creation")
                found.append(Shard(entry.name, *key, _unknown_session(*key, manifest), "killed"))
                continue
            state = shard_state(location, entry.name, session, now_unix_ns=now)
            found.append(Shard(entry.name, *key, session, state))
    history = select_history(found)
    mixed_in = {shard.name for shard in history}
    others = tuple(sorted((s for s in found if s.name not in mixed_in), key=lambda s: (s.host, s.attempt)))
    return Run(location.url, manifest, history, others, location, tuple(problems))


def _unknown_session(host: int, attempt: int, manifest: Manifest) -> Session:
    """Stands in for a session that cannot be read: the shard's rows are still worth reading."""
    nobody = ProcessIdentity(pid=0, machine="unknown", hostname="unknown")
    return Session(host=host, attempt=attempt, owner=nobody, epoch_unix_ns=manifest.created_unix_ns)


def _declared(spec: TableSpec, columns: Sequence[str]) -> list[str]:
    names = [c.name for c in spec.columns]
    unknown = [c for c in columns if c not in names and c not in {"host", "attempt"}]
    if unknown:
        raise TableError(f"table {spec.name!r} has no column {', '.join(unknown)}; it has {', '.join(names)}")
    return [name for name in names if name in columns]


def _with_host(spec: TableSpec) -> pa.Schema:
    front = [
        pa.field("host", pa.int64(), nullable=False, metadata={"doc": "rank of the process", "unit": ""}),
        pa.field("attempt", pa.int64(), nullable=False, metadata={"doc": "restarts of the rank before", "unit": ""}),
    ]
    return pa.schema([*front, *spec.schema])


def _prepend_host(schema: pa.Schema, shard: Shard, rows: pa.Table) -> pa.Table:
    """A shard's rows with `host` and `attempt` in front."""
    host = pa.repeat(pa.scalar(shard.host, pa.int64()), rows.num_rows)
    attempt = pa.repeat(pa.scalar(shard.attempt, pa.int64()), rows.num_rows)
    return pa.Table.from_arrays([host, attempt, *rows.columns], schema=schema)
