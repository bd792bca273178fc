"""The files of a checkpoint, wherever they lie: their names and sizes, and bounded pieces of their content."""

import io
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow.fs as pafs

from phasepoint.store.filesystem import Location, open_location

MOST_FILES = 200_000
"""Files that are looked at in one checkpoint; one with more is not judged."""

RETRY_LIMIT_S = 10
"""How long a bucket that does not answer is asked."""


@dataclass(frozen=True)
class CheckpointPlace:
    """What stands at a checkpoint's path.

    Attributes:
        name: the path, for messages.
        files: size in bytes by path relative to the checkpoint; `""` alone where it is one file.
        folders: whether folders stand in it, by relative path; empty where it is one file.
        truncated: whether there are more than `MOST_FILES` files, so that `files` is not all.
    """

    name: str
    files: Mapping[str, int]
    folders: frozenset[str]
    truncated: bool
    _location: Location = field(repr=False)

    @property
    def is_file(self) -> bool:
        """Whether it is one file."""
        return "" in self.files

    @property
    def base_name(self) -> str:
        """Last part of its path."""
        return self._location.root.rpartition("/")[2]

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all its files; None where not all were looked at."""
        return None if self.truncated else sum(self.files.values())

    def file(self, relative: str) -> "CheckpointPlace":
        """One of its files, as a place of its own."""
        location = replace(self._location, root=self._location.path(relative))
        return CheckpointPlace(f"{self.name}/{relative}", {"": self.files[relative]}, frozenset(), False, location)

    def open(self, relative: str = "") -> BinaryIO:
        """A file of it, to read and seek in.

        Raises:
            OSError: it cannot be opened.
        """
        path = self._location.path(relative)
        if self._location.filesystem is None:
            return Path(path).open("rb")
        return cast(BinaryIO, self._location.filesystem.open_input_file(path))

    def read(self, relative: str = "", *, start: int = 0, count: int) -> bytes:
        """At most `count` bytes of a file from `start` on.

        Raises:
            OSError: it cannot be read.
        """
        with self.open(relative) as file:
            file.seek(start, io.SEEK_SET)
            return bytes(file.read(count))


def open_place(path: str) -> CheckpointPlace | None:
    """What stands at a path or URL, None where nothing does.

    Raises:
        StoreError: the URL is of no known kind.
        OSError: the place cannot be looked at: no permission, no network.
    """
    location = open_location(_with_short_retry(path))
    return _look_locally(path, location) if location.filesystem is None else _look_remotely(path, location)


def _with_short_retry(path: str) -> str:
    """Let Google's client give up within seconds; by itself it tries for 15 minutes where there is no way there."""
    if not path.startswith("gs://") or "retry_limit_seconds" in path:
        return path
    return f"{path}{'&' if '?' in path else '?'}retry_limit_seconds={RETRY_LIMIT_S}"


def _look_locally(name: str, location: Location) -> CheckpointPlace | None:
    try:
        found = os.stat(location.root)  # noqa: PTH116 - Path.stat is the same
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISDIR(found.st_mode):
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        return CheckpointPlace(name, {"": size}, frozenset(), False, location)
    files: dict[str, int] = {}
    folders: list[str] = []
    waiting = [""]
    while waiting and len(files) + len(folders) < MOST_FILES:
        folder = waiting.pop()
        with os.scandir(location.path(folder)) as entries:
            for entry in entries:
                relative = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(relative)
                    folders.append(relative)
                elif entry.is_file():  # what a link leads to; pipes and sockets are nobody's checkpoint
                    files[relative] = entry.stat().st_size
                if len(files) + len(folders) >= MOST_FILES:
                    break
    return CheckpointPlace(name, files, frozenset(folders), bool(waiting), location)


def _look_remotely(name: str, location: Location) -> CheckpointPlace | None:
    filesystem: Any = location.filesystem
    info = filesystem.get_file_info(location.root)
    if info.type == pafs.FileType.NotFound:
        return None
    if info.type == pafs.FileType.File:
        return CheckpointPlace(name, {"": info.size or 0}, frozenset(), False, location)
    found = filesystem.get_file_info(pafs.FileSelector(location.root, recursive=True))
    kept = found[:MOST_FILES]
    begin = len(location.root) + 1
    files = {one.path[begin:]: one.size or 0 for one in kept if one.type == pafs.FileType.File}
    folders = frozenset(one.path[begin:] for one in kept if one.type == pafs.FileType.Directory)
    return CheckpointPlace(name, files, folders, len(found) > MOST_FILES, location)
