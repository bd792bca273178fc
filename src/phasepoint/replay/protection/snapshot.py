"""A copy of folders before a program runs, held against them afterwards, and put back where they differ.

A file is known to be untouched by its number on the disk and the time of its last change of any kind, which no program
can set. Copies share their blocks with the original where the file system can (btrfs, XFS).
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from phasepoint.core.errors import ReplayError

_FICLONE = 0x40049409
"""Of linux/fs.h: let one file share the blocks of another."""


@dataclass(frozen=True)
class Snapshot:
    """What some folders held.

    Attributes:
        folders: these folders, none inside another.
        without: a folder in them that is no part of it.
        place: where the copies lie, one folder each, by number.
        found: path → what stood there.
    """

    folders: tuple[str, ...]
    without: str
    place: Path
    found: dict[str, os.stat_result]

    def copy_of(self, path: str) -> Path:
        """Where the copy of a path lies."""
        number, folder = next((n, f) for n, f in enumerate(self.folders) if path == f or path.startswith(f + "/"))
        return self.place / str(number) / os.path.relpath(path, folder)


def take_snapshot(folders: Sequence[str], place: Path, *, without: str) -> Snapshot:
    """Copy folders.

    Args:
        folders: absolute, without links.
        place: an empty folder, in none of them.
        without: a folder that may lie in them and is left out.

    Raises:
        ReplayError: there is not enough room for the copies.
        OSError: something cannot be read.
    """
    inner = {f for f in folders for other in folders if f != other and f.startswith(other.rstrip("/") + "/")}
    outer = tuple(sorted(set(folders) - inner))
    found = {path: os.lstat(path) for folder in outer for path in _walk(folder, without)}
    size_bytes = sum(one.st_size for one in found.values() if stat.S_ISREG(one.st_mode))
    snapshot = Snapshot(outer, without, place, found)
    shares = _can_share(snapshot)
    free_bytes = shutil.disk_usage(place).free
    if size_bytes > free_bytes and not shares:
        raise ReplayError(
            f"{place}: {size_bytes} bytes are needed to keep a copy of {', '.join(outer)}, and {free_bytes} are free; "
            "free space there, set TMPDIR to another disk, or give --unsafe to run the program on the originals"
        )
    for path, one in found.items():
        _copy(path, one, snapshot.copy_of(path))
    return snapshot


def restore(snapshot: Snapshot, saves: Path) -> tuple[str, ...]:
    """Make the folders what they were; what a program has put there beside them is moved to `saves`.

    Returns:
        What was changed or gone, and is put back.
    """
    put_back = []
    for path, one in snapshot.found.items():  # so that it can be looked into
        if stat.S_ISDIR(one.st_mode) and os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, stat.S_IMODE(one.st_mode))
    for folder in snapshot.folders:
        for path in sorted(
            _walk(folder, snapshot.without), reverse=True
        ):  # what lies in a folder before the folder itself
            if path not in snapshot.found or _kind(path) != stat.S_IFMT(snapshot.found[path].st_mode):
                _move_aside(path, folder, saves)
    for path, one in snapshot.found.items():  # a folder before what lies in it
        if not _is_untouched(path, one):
            if not stat.S_ISDIR(one.st_mode) or not os.path.lexists(path):
                put_back.append(path)
            _put_back(path, one, snapshot.copy_of(path))
    for path, one in reversed(snapshot.found.items()):
        if stat.S_ISDIR(one.st_mode):
            os.chmod(path, stat.S_IMODE(one.st_mode))
            os.utime(path, ns=(one.st_atime_ns, one.st_mtime_ns))
    return tuple(put_back)


def _walk(folder: str, without: str) -> Iterator[str]:
    """A folder and all that is in it but for another one; links not followed, a folder before what lies in it."""
    if not os.path.lexists(folder):
        return
    yield folder
    if os.path.islink(folder) or not os.path.isdir(folder):
        return
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if f"{path}/{name}" != without)
        for name in sorted((*folders, *files)):
            yield f"{path}/{name}"


def _kind(path: str) -> int:
    return stat.S_IFMT(os.lstat(path).st_mode)


def _is_untouched(path: str, one: os.stat_result) -> bool:
    """By what no program can set: number on the disk and time of the last change of any kind."""
    with suppress(OSError):
        now = os.lstat(path)
        return (now.st_ino, now.st_dev, now.st_ctime_ns) == (one.st_ino, one.st_dev, one.st_ctime_ns)
    return False


def _copy(path: str, one: os.stat_result, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISDIR(one.st_mode):
        target.mkdir(exist_ok=True)
    elif stat.S_ISLNK(one.st_mode):
        target.symlink_to(os.readlink(path))
    elif stat.S_ISREG(one.st_mode):
        _copy_content(path, target)


def _copy_content(source: str | Path, target: str | Path) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        with suppress(OSError):
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
        shutil.copyfileobj(old, new, 1 << 20)


def _can_share(snapshot: Snapshot) -> bool:
    """Whether a copy shares its blocks with the file: tried with one."""
    regular = (path for path, one in snapshot.found.items() if stat.S_ISREG(one.st_mode))
    path, trial = next(regular, None), snapshot.place / "trial"
    if path is None:
        return True
    try:
        with open(path, "rb") as old, open(trial, "wb") as new:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
    except OSError:
        return False
    finally:
        trial.unlink(missing_ok=True)
    return True


def _move_aside(path: str, folder: str, saves: Path) -> None:
    if _kind(path) == stat.S_IFDIR:
        shutil.rmtree(path)  # what was in it has been moved
        return
    target = saves / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, target)


def _put_back(path: str, one: os.stat_result, copy: Path) -> None:
    if stat.S_ISDIR(one.st_mode):
        os.makedirs(path, exist_ok=True)
        return
    if stat.S_ISLNK(one.st_mode):
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(os.readlink(copy), path)
        os.utime(path, ns=(one.st_atime_ns, one.st_mtime_ns), follow_symlinks=False)
    elif stat.S_ISREG(one.st_mode):
        if os.path.lexists(path):
            os.unlink(path)  # it may be another file's by now, through a hard link
        _copy_content(copy, path)
        os.chmod(path, stat.S_IMODE(one.st_mode))
        os.utime(path, ns=(one.st_atime_ns, one.st_mtime_ns))
