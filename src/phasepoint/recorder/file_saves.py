"""In a replay, files of the original are neither written over nor deleted by Python's own means either.

Programs rotate checkpoints by hand, write them beside and rename them, keep a file that names the latest. Below a
protected place, what stood there before this process began is the original's: it is not deleted, and what would be
written or moved over it goes elsewhere. Other files there are the program's own. Writes of libraries that open files
by themselves, in C++, are not seen here; those of the frameworks have hooks of their own (`recorder/replay_saves.py`).
"""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

from phasepoint.recorder.patch import patch_attribute
from phasepoint.recorder.redirection import destination, in_force
from phasepoint.recorder.session import Remove

Function = Callable[..., Any]

_SYMLINK_SAFETY = "avoids_symlink_attacks"
"""What programs may ask of `shutil.rmtree`; a function's own attribute or its class's, by Python version."""

_WRITES, _CHANGES = frozenset("wax"), frozenset("a+")


def protect_files() -> list[Remove]:
    """Put the hooks in; returns what takes them out."""
    import builtins
    import io

    began_ns = time.time_ns()
    kept = partial(_keep, began_ns=began_ns)
    moved = partial(_move, began_ns=began_ns)
    opened = partial(_open, began_ns=began_ns)
    return [
        *(patch_attribute(os, name, kept) for name in ("remove", "unlink", "rmdir")),
        patch_attribute(shutil, "rmtree", kept),
        *(patch_attribute(os, name, moved) for name in ("rename", "replace")),
        *(patch_attribute(owner, "open", opened) for owner in (builtins, io)),
    ]


def is_originals(path: str, began_ns: int) -> bool:
    """Whether a path is protected and holds something that is older than `began_ns`, Unix time."""
    redirection = in_force()
    if redirection is None or not redirection.protects(path):
        return False
    with suppress(OSError):
        if os.lstat(path).st_mtime_ns < began_ns:
            return True
        with os.scandir(path) as entries:
            return any(entry.stat(follow_symlinks=False).st_mtime_ns < began_ns for entry in entries)
    return False


def _keep(delete: Function, *, began_ns: int) -> Function:
    @wraps(delete)
    def kept(path: Any, *args: Any, **kwargs: Any) -> Any:
        place = _path(path)
        if place is None or kwargs.get("dir_fd") is not None or not is_originals(place, began_ns):
            return delete(path, *args, **kwargs)
        _tell(place)
        return None

    if hasattr(delete, _SYMLINK_SAFETY):
        setattr(kept, _SYMLINK_SAFETY, getattr(delete, _SYMLINK_SAFETY))
    return kept


def _move(move: Function, *, began_ns: int) -> Function:
    @wraps(move)
    def moved(source: Any, target: Any, **kwargs: Any) -> Any:
        source_path, target_path = _path(source), _path(target)
        if source_path is None or target_path is None or {"src_dir_fd", "dst_dir_fd"} & kwargs.keys():
            return move(source, target, **kwargs)
        if is_originals(source_path, began_ns):  # it stays, and what takes its place is a copy
            _tell(source_path)
            return _copy(source_path, destination(target_path))
        if is_originals(target_path, began_ns):
            target = destination(target_path)
        return move(source, target, **kwargs)

    return moved


def _open(opens: Function, *, began_ns: int) -> Function:
    @wraps(opens)
    def opened(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        place = _path(file)
        writes = isinstance(mode, str) and bool((_WRITES | _CHANGES) & set(mode))
        if place is None or not writes or not is_originals(place, began_ns):
            return opens(file, mode, *args, **kwargs)
        target = destination(place)
        if _CHANGES & set(mode) and "w" not in mode and not Path(target).exists():
            shutil.copyfile(place, target)
        return opens(target, mode, *args, **kwargs)

    return opened


def _copy(source: str, target: str) -> None:
    if Path(source).is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _tell(place: str) -> None:
    """A place is told once, the first time that something there is kept."""
    redirection = in_force()
    if redirection is not None:
        redirection.tell(place)


def _path(value: Any) -> str | None:
    """A path as text; None for a file's number and for bytes."""
    if not isinstance(value, str | os.PathLike):
        return None
    path = os.fspath(value)
    return path if isinstance(path, str) else None
