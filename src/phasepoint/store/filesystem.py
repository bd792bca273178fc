"""Where a run lives: a local directory, or any URL that `pyarrow.fs` opens.

Every file of a run is complete when it appears. A local file is written under a temporary name, synced and
renamed; an object store shows an object only once its upload has ended.
"""

import errno
import itertools
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from phasepoint.core.errors import StoreError

TEMPORARY_PREFIX = ".tmp-"
"""Files that begin so are being written, or were when their writer died; readers pass over them."""

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free space there, or record to another disk; what was written before is kept",
    errno.EDQUOT: "the disk quota is used up: free space there, or record to another disk; "
    "what was written before is kept",
    errno.EFBIG: "the file-size limit is reached: raise it (`ulimit -f`); what was written before is kept",
    errno.EACCES: "permission denied: give this user access to it, or choose another directory",
    errno.EPERM: "not permitted: give this user access to it, or choose another directory",
    errno.EROFS: "the file system is read-only: choose another directory",
    errno.ENOTDIR: "a part of this path is a file, not a directory: choose another path",
    errno.ENOENT: "it does not exist (any more): check the path",
}
_REMOTE_REMEDY = "check the address, the credentials and the permissions"

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
"""What file systems answer that have no hard links, or no more of them: link(2), and FUSE mounts of buckets."""

_NO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
"""What file systems answer that cannot be told to write at once: fsync(2). Then they write when they do."""

_CLAIM_LIMIT_S = 2.0
"""A choice: naming a file takes milliseconds, on a network disk some hundred."""

_counter = itertools.count()
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Location:
    """A directory on some file system.

    Attributes:
        url: as the user gave it, without a trailing slash; opens the same directory again.
        root: its path inside the file system.
        filesystem: the file system, None where it is the local one (reached through `os`, whose errors are exact).
    """

    url: str
    root: str
    filesystem: pafs.FileSystem | None

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine's file systems."""
        return self.filesystem is None

    def path(self, relative: str) -> str:
        """Path inside the file system of a file in this directory."""
        return f"{self.root}/{relative}" if relative else self.root

    def show(self, relative: str = "") -> str:
        """The full name of a file in this directory, for messages."""
        base = self.url.partition("?")[0]
        return f"{base}/{relative}" if relative else base


@dataclass(frozen=True)
class Entry:
    """One entry of a directory: its name, its size in bytes (0 for a directory), whether it is a directory."""

    name: str
    size: int
    is_dir: bool


def open_location(path: str | os.PathLike[str]) -> Location:
    """The directory at a local path or at a URL of `pyarrow.fs`; nothing is created.

    The query of an S3 URL sets up the connection, and is kept so that the URL opens the same place again:
    `s3://bucket/run?endpoint_override=http://127.0.0.1:9000&scheme=http`.

    Raises:
        StoreError: the URL has an unknown scheme or cannot be parsed.
    """
    text = os.fspath(path)
    if "://" not in text:
        return Location(text.rstrip("/") or "/", text.rstrip("/") or "/", None)
    parts = urlsplit(text)
    if parts.scheme == "file":
        root = unquote(parts.path).rstrip("/") or "/"
        return Location(root, root, None)
    try:
        filesystem, root = pafs.FileSystem.from_uri(_with_single_put(text))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(
            f"{text}: cannot be opened as a URL ({error}); give a local path, or a URL with s3://, gs:// or file://"
        ) from error
    base, mark, query = text.partition("?")
    return Location(base.rstrip("/") + mark + query, root.rstrip("/"), filesystem)


def write_file(location: Location, relative: str, data: bytes | pa.Buffer, *, durable: bool = True) -> None:
    """Write a file whole, replacing one of the same name; it is complete when it appears.

    Args:
        durable: whether to wait until the disk has it.

    Raises:
        StoreError: it cannot be written; the message says why and what to do. Nothing half-written is visible.
    """
    if location.filesystem is not None:
        _call(location, relative, "written", lambda: _put_object(location, relative, data))
        return
    _call(location, relative, "written", lambda: _write_local(location, relative, data, durable=durable))


def append_file(location: Location, relative: str, data: bytes, size: int) -> None:
    """Append to a local file, and wait until the disk has it; the file is made where there is none.

    Args:
        size: the file's, to which it is cut where it cannot take the data.

    Raises:
        StoreError: it cannot be written.
    """
    _call(location, relative, "written", lambda: _append_local(location.path(relative), data, size))


def create_file(location: Location, relative: str, data: bytes) -> bool:
    """Write a file whole unless there is one; returns whether this call created it.

    Exact on a local file system, where the file appears by a hard link that fails if the name is taken.
    On an object store two callers at the same instant may both succeed; the later one's content stays.

    Raises:
        StoreError: it cannot be written.
    """
    if location.filesystem is None:
        return _call(location, relative, "written", lambda: _create_local(location, relative, data))
    if file_exists(location, relative):
        return False
    write_file(location, relative, data)
    return True


def read_file(location: Location, relative: str) -> pa.Buffer:
    """The content of a file.

    Raises:
        FileNotFoundError: it does not exist.
        StoreError: it cannot be read, or is no file: a pipe, on which a reader would wait for ever, or a device.
    """

    def read() -> pa.Buffer:
        if location.filesystem is None:
            return pa.py_buffer(_read_local(location.path(relative)))
        with location.filesystem.open_input_file(location.path(relative)) as file:
            return file.read_buffer()

    return _call(location, relative, "read", read, missing_ok=True)


def list_directory(location: Location, relative: str = "") -> list[Entry]:
    """The entries of a directory by name, without files still being written; empty if there is no such directory.

    Raises:
        StoreError: it cannot be listed.
    """

    def read() -> list[Entry]:
        if location.filesystem is None:
            return _list_local(location.path(relative))
        selector = pafs.FileSelector(location.path(relative), allow_not_found=True)
        infos = location.filesystem.get_file_info(selector)
        return [Entry(i.base_name, i.size or 0, i.type == pafs.FileType.Directory) for i in infos if i.base_name]

    entries = _call(location, relative, "listed", read)
    return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)


def file_exists(location: Location, relative: str = "") -> bool:
    """Whether there is a file (or a directory) of this name.

    Raises:
        StoreError: the file system does not answer.
    """

    def look() -> bool:
        if location.filesystem is None:
            return Path(location.path(relative)).exists()
        info = location.filesystem.get_file_info(location.path(relative))
        return bool(info.type != pafs.FileType.NotFound)

    return _call(location, relative, "looked up", look)


def delete_file(location: Location, relative: str) -> None:
    """Delete a file; one that is gone already is no error.

    Raises:
        StoreError: it cannot be deleted.
    """

    def delete() -> None:
        if location.filesystem is None:
            Path(location.path(relative)).unlink(missing_ok=True)
            return
        try:
            location.filesystem.delete_file(location.path(relative))
        except FileNotFoundError:
            return

    _call(location, relative, "deleted", delete)


def delete_temporaries(location: Location, relative: str) -> None:
    """Delete what dead writers left half-written in a local directory; call only where no writer lives.

    Raises:
        StoreError: a file cannot be deleted.
    """
    folder = Path(location.path(relative))
    if location.is_local and folder.is_dir():
        for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
            if path.is_file():
                delete_file(location, f"{relative}/{path.name}" if relative else path.name)


def move_directory(location: Location, source: str, target: str) -> bool:
    """Give a directory another name below the same place, unless that is taken; returns whether it was moved.

    On a local file system it is one rename: the target is whole when it appears. On an object store files are moved
    one by one, so what makes others look for the directory must come after.

    Raises:
        StoreError: it cannot be moved.
    """
    if location.filesystem is None:
        return _call(location, target, "written", lambda: _move_local(location, source, target))
    _call(location, target, "written", lambda: _move_objects(location, source, target))
    return True


def delete_directory(location: Location, relative: str) -> None:
    """Delete a directory with all that is in it; one that is not there is no error.

    Raises:
        StoreError: it cannot be deleted.
    """

    def delete() -> None:
        try:
            if location.filesystem is None:
                shutil.rmtree(location.path(relative))
            else:
                location.filesystem.delete_dir(location.path(relative))
        except FileNotFoundError:
            return

    _call(location, relative, "deleted", delete)


def claim_directory(location: Location, relative: str, file_name: str, data: bytes) -> bool:
    """Create a directory that holds one file, unless it exists; returns whether this call created it.

    On a local file system the directory appears by rename, with the file inside: of several callers exactly one
    wins, and nobody ever sees it empty. On an object store it is `create_file`.

    Raises:
        StoreError: it cannot be created.
    """
    if location.filesystem is not None:
        return create_file(location, f"{relative}/{file_name}", data)
    return _call(location, relative, "created", lambda: _claim_local(location, relative, file_name, data))


def _call(
    location: Location, relative: str, action: str, function: Callable[[], _Result], *, missing_ok: bool = False
) -> _Result:
    """Run one operation, and turn its failure into an error that names the file and the remedy."""
    try:
        return function()
    except FileNotFoundError as error:
        if missing_ok:
            raise
        raise _store_error(location, relative, action, error) from error
    except (OSError, pa.ArrowException) as error:
        raise _store_error(location, relative, action, error) from error


def _store_error(location: Location, relative: str, action: str, error: Exception) -> StoreError:
    code = getattr(error, "errno", None)
    remedy = _REMEDIES.get(code) if code is not None else None
    if remedy is None:
        remedy = f"{error}" if location.is_local else f"{error}; {_REMOTE_REMEDY}"
    return StoreError(f"{location.show(relative)} cannot be {action}: {remedy}")


def _with_single_put(url: str) -> str:
    """Let S3 take a small object in one request instead of three; pyarrow can since 18."""
    if not url.startswith("s3://") or int(pa.__version__.partition(".")[0]) < 18:
        return url
    return f"{url}{'&' if '?' in url else '?'}allow_delayed_open=true"


def _put_object(location: Location, relative: str, data: bytes | pa.Buffer) -> None:
    """Upload an object; it appears when the stream is closed."""
    filesystem: Any = location.filesystem
    with filesystem.open_output_stream(location.path(relative), compression=None) as stream:
        stream.write(data)


def _write_local(location: Location, relative: str, data: bytes | pa.Buffer, *, durable: bool) -> None:
    """Without pathlib and buffers, which take a third of the CPU time of a small part more."""
    target = location.path(relative)
    folder = os.path.dirname(target)  # noqa: PTH120
    if not os.path.isdir(folder):  # noqa: PTH112
        _make_folder(Path(folder))
    temporary = _write_temporary(target, data, durable=durable)
    try:
        os.replace(temporary, target)  # noqa: PTH105
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable:
        _sync_directory(folder)


def _append_local(target: str, data: bytes, size: int) -> None:
    if not size:
        _make_folder(Path(target).parent)
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (0 if size else os.O_CREAT), 0o666)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        try:
            waiting = memoryview(data)
            while waiting:
                waiting = waiting[os.write(descriptor, waiting) :]
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        _sync(descriptor)
    finally:
        os.close(descriptor)
    if not size:
        _sync_directory(os.path.dirname(target))  # noqa: PTH120


def _create_local(location: Location, relative: str, data: bytes) -> bool:
    target = Path(location.path(relative))
    _make_folder(target.parent)
    temporary = Path(_write_temporary(str(target), data, durable=True))
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not _rename_claimed(temporary, target):
            return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(target.parent)
    return True


def _rename_claimed(temporary: Path, target: Path) -> bool:
    """Where the file system has no hard links: whoever makes the claim, a file of its own, gives the target its name.

    A claim whose maker died before that holds the others up for `_CLAIM_LIMIT_S` once.
    """
    claim = target.with_name(f"{TEMPORARY_PREFIX}claim-{target.name}")
    until = time.monotonic() + _CLAIM_LIMIT_S
    while not target.exists():
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            if time.monotonic() < until:
                time.sleep(_CLAIM_LIMIT_S / 100)
            else:
                claim.unlink(missing_ok=True)
            continue
        is_mine = not target.exists()
        if is_mine:
            temporary.replace(target)
        claim.unlink(missing_ok=True)
        return is_mine
    return False


def _claim_local(location: Location, relative: str, file_name: str, data: bytes) -> bool:
    target = Path(location.path(relative))
    temporary = target.with_name(_temporary_name(target.name))
    temporary.mkdir()
    try:
        _write_local(location, f"{relative.rpartition('/')[0]}/{temporary.name}/{file_name}", data, durable=True)
        temporary.rename(target)
    except OSError as error:
        (temporary / file_name).unlink(missing_ok=True)
        temporary.rmdir()
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            return False
        raise
    _sync_directory(target.parent)
    return True


def _move_local(location: Location, source: str, target: str) -> bool:
    place = Path(location.path(target))
    try:
        Path(location.path(source)).rename(place)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            return False
        raise
    _sync_directory(place.parent)
    return True


def _move_objects(location: Location, source: str, target: str) -> None:
    filesystem: Any = location.filesystem
    root = location.path(source)
    for info in filesystem.get_file_info(pafs.FileSelector(root, recursive=True)):
        if info.type == pafs.FileType.File:
            filesystem.move(info.path, f"{location.path(target)}{info.path[len(root) :]}")


def _make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that a power cut does not take it with what was synced in it."""
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        _make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    _sync_directory(folder.parent)


def _write_temporary(target: str, data: bytes | pa.Buffer, *, durable: bool) -> str:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, _temporary_name(name))  # noqa: PTH118
    try:
        with open(temporary, "xb", buffering=0) as file:  # noqa: PTH123
            waiting = memoryview(data)
            while waiting:
                waiting = waiting[file.write(waiting) :]
            if durable:
                _sync(file.fileno())
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return temporary


def _temporary_name(name: str) -> str:
    return f"{TEMPORARY_PREFIX}{name}-{os.getpid()}-{next(_counter)}"


def _sync_directory(folder: str | Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Wait until the disk has what was written, where the file system can say."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _read_local(path: str) -> bytes:
    """A file's bytes; a pipe would keep a reader waiting for ever, and some devices never end."""
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is no regular file but a pipe, a socket or a device: put a copy of the file there")
        return file.read()


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for anybody to write."""
    return os.open(path, flags | os.O_NONBLOCK)


def _list_local(path: str) -> list[Entry]:
    entries = []
    try:
        with os.scandir(path) as found:
            for entry in found:
                try:
                    is_dir = entry.is_dir()
                    entries.append(Entry(entry.name, 0 if is_dir else entry.stat().st_size, is_dir))
                except FileNotFoundError:
                    continue  # deleted between listing and looking, as compaction does
    except FileNotFoundError:
        return []
    return entries
