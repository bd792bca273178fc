"""One compaction of a run at a time."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from phasepoint.core.errors import StoreError
from phasepoint.store.filesystem import Location, create_file, delete_file, read_file
from phasepoint.store.manifest import MANIFEST_NAME
from phasepoint.store.process import ProcessIdentity, is_alive, this_process

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
    except (FileNotFoundError, msgspec.DecodeError):
        return
    alive = is_alive(other.process)
    if alive is None:
        alive = owner.since_unix_ns - other.since_unix_ns < STALE_AFTER_NS
    if alive:
        raise StoreError(
            f"{location.show(LOCK_NAME)}: process {other.process.pid} on {other.process.hostname} is compacting this "
            "run; wait for it to end, or delete that file if it has died"
        )
