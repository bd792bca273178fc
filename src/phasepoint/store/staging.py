"""Shards that are written aside, by any number of processes, and moved into the run when they are whole.

A writer that is killed leaves nothing that a reader sees, and the shard may be written again: it is no new attempt of
the job. The run's manifest comes last, so that a run which is not all there is none.
"""

import secrets
from os import PathLike
from pathlib import Path

from phasepoint.store.filesystem import Location, delete_directory, list_directory, move_directory, open_location
from phasepoint.store.session import BrokenSession, Session, parse_shard_name, read_session, shard_name

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
