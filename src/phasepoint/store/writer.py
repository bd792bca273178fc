"""Writing a shard: rows are buffered, and a flush makes one part of each table's rows.

Shards can be written aside, by any number of processes, and moved into the run when they are whole.

A writer that is killed leaves nothing that a reader sees, and the shard may be written again: it is no new attempt of
the job. The run's manifest comes last, so that a run which is not all there is none.

A converter writes parts of a shard that is there under names that the window gives: converting twice is harmless.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from phasepoint.core.errors import ShardBusyError, StoreError
from phasepoint.core.tables import TABLES, validate_table
from phasepoint.store.filesystem import (
    Location,
    append_file,
    claim_directory,
    delete_directory,
    delete_file,
    list_directory,
    move_directory,
    open_location,
    write_file,
)
from phasepoint.store.manifest import read_manifest
from phasepoint.store.parts import write_table_part
from phasepoint.store.raw import check_raw_path, write_raw_file
from phasepoint.store.session import (
    HEARTBEAT_INTERVAL_NS,
    HEARTBEAT_LIMIT_NS,
    SESSION_NAME,
    BrokenSession,
    Session,
    encode_session,
    is_alive,
    last_sign_of_life_unix_ns,
    parse_shard_name,
    read_session,
    shard_name,
    shard_state,
    this_process,
    write_heartbeat,
)
from phasepoint.store.tail import MOST_TAIL_BYTES, MOST_TAIL_ROWS, TAIL_SUFFIX

if TYPE_CHECKING:
    from phasepoint.store.reader import Run

STAGING_FOLDER = ".staging"
"""Readers pass over names that begin with a dot."""


def is_vacant(path: str | PathLike[str]) -> bool:
    """Whether nothing is at a path or URL but, perhaps, an empty folder.

    Raises:
        StoreError: it cannot be looked up.
    """
    location = open_location(path)
    if location.is_local:
        place = Path(location.root)
        return not place.exists() or (place.is_dir() and not any(place.iterdir()))
    return not list_directory(location)


def new_staging(path: str | PathLike[str], host: int) -> str:
    """Path or URL at which to write a run of one shard, of a name that no other call returns."""
    location = open_location(path)
    base, mark, query = location.url.partition("?")
    return f"{base}/{STAGING_FOLDER}/{host:05d}-{secrets.token_hex(8)}{mark}{query}"


def publish_shard(path: str | PathLike[str], staging: str, host: int) -> None:
    """Move the shard from its staging into the run; of two that were written from the same input the first stays.

    Raises:
        StoreError: it cannot be moved.
    """
    location = open_location(path)
    move_directory(location, f"{_relative(staging)}/{shard_name(host, 0)}", shard_name(host, 0))


def discard_staging(path: str | PathLike[str], staging: str | None = None) -> None:
    """Delete what one writer, or all of them, left aside.

    Raises:
        StoreError: it cannot be deleted.
    """
    delete_directory(open_location(path), STAGING_FOLDER if staging is None else _relative(staging))


def discard_shards(path: str | PathLike[str]) -> None:
    """Delete all shards of a run that has no manifest yet, and what is left aside.

    Raises:
        StoreError: they cannot be deleted.
    """
    location = open_location(path)
    delete_directory(location, STAGING_FOLDER)
    for name in _shards(location):
        delete_directory(location, name)


def published_sessions(path: str | PathLike[str]) -> tuple[Session, ...]:
    """The sessions of the shards that were published, by host.

    Raises:
        StoreError: they cannot be read.
    """
    location = open_location(path)
    found = [read_session(location, name) for name in _shards(location)]
    return tuple(session for session in found if not isinstance(session, BrokenSession))


def _shards(location: Location) -> list[str]:
    return [entry.name for entry in list_directory(location) if parse_shard_name(entry.name) is not None]


def _relative(staging: str) -> str:
    return f"{STAGING_FOLDER}/{staging.partition('?')[0].rpartition('/')[2]}"


SLOW_WRITE_NS = 50_000_000
"""Where one part took longer, the parts of a flush are written at once. A choice: a local disk takes some milliseconds,
an object store a tenth of a second, a disk in trouble more than that."""

_CLAIM_TRIES = 100  # a choice: each lost try means that another process took that attempt


class ShardWriter:
    """The one writer of a shard. All methods may be called from any thread; a flush starts some where writing is slow.

    `append` only takes a short lock, so that a job's thread never waits for a flush that is under way.
    """

    def __init__(self, location: Location, shard: str, session: Session, *, clock: Callable[[], int]) -> None:
        self.shard = shard
        self.session = session
        self._location = location
        self._clock = clock
        self._buffers: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._next_part = dict.fromkeys(TABLES, 0)
        self._buffer_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._heartbeat_unix_ns: int | None = None
        self._is_slow = False
        self._tails: dict[str, tuple[int, int]] = {}  # rows and bytes
        self._is_closed = False

    @property
    def path(self) -> str:
        """The shard's full name, for messages."""
        return self._location.show(self.shard)

    def append(self, name: str, table: pa.Table) -> None:
        """Take rows of one table; the next flush writes them.

        Raises:
            TableError: the rows do not fit the table's declaration.
            StoreError: the shard is closed.
        """
        table = validate_table(name, table)
        with self._buffer_lock:
            self._check_open()
            if table.num_rows:
                self._buffers[name].append(table)

    def waiting_rows(self, name: str) -> int:
        """Rows of one table that were taken and are in no file yet."""
        with self._buffer_lock:
            rows: int = sum(table.num_rows for table in self._buffers[name])
        return max(0, rows - self._tails.get(name, (0, 0))[0])

    def write_raw(self, relative_path: str, data: bytes | Path) -> int:
        """Write a raw capture (or the file that holds it), compressed if its name ends in `.zst`.

        Returns:
            The bytes it takes.

        Raises:
            StoreError: the path leads out of `raw/`, the shard is closed, or the file cannot be written.
        """
        self._check_open()
        return write_raw_file(self._location, self.shard, relative_path, data)

    def flush(self, *, is_awaited: bool = False) -> int:
        """Write all buffered rows, steps first, one part a table, and return the bytes written.

        Args:
            is_awaited: whether the job waits for it, because it ends: then no sign of life is written, too.

        Raises:
            StoreError: a part cannot be written. Its rows stay buffered, and the next flush tries again.
        """
        with self._write_lock:
            self._check_open()
            size = self._flush()
            if not is_awaited:
                self._beat()
            return size

    @property
    def takes_tails(self) -> bool:
        """Whether a tail is cheaper than a part: an object store takes as long for either."""
        return self._location.is_local

    def append_tails(self, tails: Mapping[str, tuple[int, bytes]]) -> bool:
        """Put rows of tables where a reader finds them until their next parts are written; those must hold them too.

        Args:
            tails: a table's name to the number of rows, and their record by `encode_steps` or `encode_rows`.

        Returns:
            Whether they were written; False where a tail would be longer than it may be.

        Raises:
            StoreError: the shard is closed, or a tail cannot be written.
        """
        with self._write_lock:
            self._check_open()
            longer = {}
            for name, (rows, record) in tails.items():
                rows_before, size = self._tails.get(name, (0, 0))
                longer[name] = rows_before + rows, size + len(record)
            if any(rows > MOST_TAIL_ROWS or size > MOST_TAIL_BYTES for rows, size in longer.values()):
                return False
            for name, (_, record) in tails.items():
                append_file(self._location, self._tail_path(name), record, self._tails.get(name, (0, 0))[1])
                self._tails[name] = longer[name]
            self._beat()
        return True

    def _tail_path(self, name: str) -> str:
        return f"{self.shard}/{name}/part-{self._next_part[name]:08d}{TAIL_SUFFIX}"

    def close(
        self,
        status: str = "ok",
        *,
        notes: Mapping[str, str] | None = None,
        tally: Mapping[str, int] | None = None,
    ) -> None:
        """Flush and mark the shard closed. Closing twice is harmless.

        Args:
            status: how the job ended: `ok`, or else, such as `failed`, for a job that may be started again.
            notes: what became known about the session since it was opened.
            tally: what the recording came to, as in `Session`.

        Raises:
            StoreError: the last rows or the mark cannot be written; the shard stays open and may be closed again.
        """
        with self._write_lock:
            if self._is_closed:
                return
            self._flush()
            known = {**self.session.notes, **(notes or {})}
            session = msgspec.structs.replace(
                self.session, status=status, closed_unix_ns=self._clock(), notes=known, tally=dict(tally or {})
            )
            write_file(self._location, f"{self.shard}/{SESSION_NAME}", encode_session(session))
            with self._buffer_lock:
                self.session = session
                self._is_closed = True

    def _flush(self) -> int:
        with self._buffer_lock:
            names = [name for name in TABLES if self._buffers[name]]
        if self._is_slow:
            return self._flush_at_once(names)
        return sum(self._flush_table(name) for name in names)

    def _flush_at_once(self, names: Sequence[str]) -> int:
        """Write each table's part on a thread of its own."""
        sizes: list[int] = []
        errors: list[Exception] = []

        def write(name: str) -> None:
            try:
                sizes.append(self._flush_table(name))
            except Exception as error:  # noqa: BLE001  # raised below, on the caller's thread
                errors.append(error)

        threads = []
        for name in names:
            thread = threading.Thread(target=write, args=(name,), name=f"phasepoint-{name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, and starts no thread any more
                write(name)
            else:
                threads.append(thread)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return sum(sizes)

    def _flush_table(self, name: str) -> int:
        with self._buffer_lock:
            tables, self._buffers[name] = self._buffers[name], []
        began_ns = time.perf_counter_ns()
        try:
            part = f"part-{self._next_part[name]:08d}"
            size = write_table_part(self._location, self.shard, name, part, pa.concat_tables(tables))
        except StoreError:
            with self._buffer_lock:
                self._buffers[name][:0] = tables
            raise
        if self._tails.pop(name, None):
            with suppress(StoreError):  # it is void in any case
                delete_file(self._location, self._tail_path(name))
        self._next_part[name] += 1
        self._is_slow |= time.perf_counter_ns() - began_ns > SLOW_WRITE_NS
        return size

    def _beat(self) -> None:
        now = self._clock()
        last = self._heartbeat_unix_ns
        if last is None or not 0 <= now - last < HEARTBEAT_INTERVAL_NS:
            write_heartbeat(self._location, self.shard, now)
            self._heartbeat_unix_ns = now

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.path}: the shard is closed; open the run again to record another attempt")


def open_shard(
    path: str | PathLike[str],
    host: int,
    *,
    epoch_unix_ns: int,
    profiler_clock: str | None = None,
    framework: str | None = None,
    devices: Sequence[str] = (),
    notes: Mapping[str, str] | None = None,
    clock: Callable[[], int] = time.time_ns,
    is_live: Callable[[str, int], bool | None] | None = None,
) -> ShardWriter:
    """Become the writer of one rank's shard; a rank that recorded into this run before gets a new attempt.

    Args:
        path: path or URL of a run.
        host: rank of this process, 0 or more.
        epoch_unix_ns: Unix nanoseconds of the session's time 0.
        profiler_clock: how the profiler's clock relates to the epoch, in words.
        framework: `jax`, `torch` or None.
        devices: devices of this process.
        notes: anything else to be known about the session.
        clock: Unix nanoseconds now.
        is_live: tells of a shard on another machine, and of the Unix nanoseconds of its writer's last sign of life,
            whether that writer lives, None while it cannot be told. By default the age of its heartbeat decides.

    Raises:
        ShardBusyError: another live process writes this rank, or, as `is_live` cannot tell yet, may do so.
        NotARunError, FormatVersionError: as `open_run`.
        StoreError: the shard cannot be created.
        ValueError: host is negative.
    """
    if host < 0:
        raise ValueError(f"host is {host}; expected a rank of 0 or more")
    location = open_location(path)
    read_manifest(location)
    for _ in range(_CLAIM_TRIES):
        names = (parse_shard_name(entry.name) for entry in list_directory(location) if entry.is_dir)
        newest = max((attempt for name in names if name for rank, attempt in (name,) if rank == host), default=None)
        if newest is not None:
            _refuse_live(location, host, newest, clock(), is_live)
        session = Session(
            host=host,
            attempt=0 if newest is None else newest + 1,
            restart_of=None if newest is None else shard_name(host, newest),
            owner=this_process(),
            epoch_unix_ns=epoch_unix_ns,
            profiler_clock=profiler_clock,
            framework=framework,
            devices=tuple(devices),
            notes=dict(notes or {}),
        )
        name = shard_name(host, session.attempt)
        if claim_directory(location, name, SESSION_NAME, encode_session(session)):
            return ShardWriter(location, name, session, clock=clock)
    raise ShardBusyError(f"{location.show()}: other processes keep opening rank {host}; give each its own rank")


def _refuse_live(
    location: Location,
    host: int,
    attempt: int,
    now_unix_ns: int,
    is_live: Callable[[str, int], bool | None] | None,
) -> None:
    name = shard_name(host, attempt)
    session = read_session(location, name)
    if isinstance(session, BrokenSession):
        return  # broken since it was written, for a live writer's session is whole; the attempt stays as it is
    owner = session.owner
    if is_live is not None and session.closed_unix_ns is None and is_alive(owner) is None:
        lives = is_live(name, last_sign_of_life_unix_ns(location, name, session))
    else:
        lives = shard_state(location, name, session, now_unix_ns=now_unix_ns) == "live"
    if lives is not False:
        raise ShardBusyError(
            f"{location.show(name)}: process {owner.pid} on {owner.hostname} is writing rank {host} "
            f"(its sign of life is at most {HEARTBEAT_LIMIT_NS // 10**9} s old). "
            "Give each process its own rank, record into another directory, or end that process",
            may_pass=lives is None,
        )


def write_part(run: "Run", shard_name: str, table_name: str, part_name: str, table: pa.Table) -> int:
    """Write a part under a given name, complete when it appears, and return its size in bytes.

    Writing the same part again replaces it. A part that compaction has merged already stays covered by the merged one.

    Args:
        part_name: without suffix, such as `part-window-000012`.

    Raises:
        TableError: the rows do not fit the table's declaration.
        StoreError: no such shard, a bad name, or the file cannot be written.
    """
    return write_table_part(run.location, run.shard(shard_name).name, table_name, part_name, table)


def drop_raw(run: "Run", shard_name: str, relative_path: str) -> None:
    """Delete a raw capture that is no longer needed; one that is gone already is no error.

    Raises:
        StoreError: no such shard, a path that leads out of `raw/`, or it cannot be deleted.
    """
    shard = run.shard(shard_name).name
    check_raw_path(run.location, shard, relative_path)
    delete_file(run.location, f"{shard}/{relative_path}")
