"""In a replay, saves that would go where the original's checkpoints stand go elsewhere; nothing of those is lost.

The save itself is done, for its time is part of the phase; only its place is another. The hooks go in when the process
imports its framework (`replay run` sees to that) and stay until it ends: a program saves its last checkpoint, or closes
its manager, after the recording is over.

In a replay, files of the original are neither written over nor deleted by Python's own means either.

Programs rotate checkpoints by hand, write them beside and rename them, keep a file that names the latest. Below a
protected place, what stood there before this process began is the original's: it is not deleted, and what would be
written or moved over it goes elsewhere. Other files there are the program's own. Writes of libraries that open files
by themselves, in C++, are not seen here; those of the frameworks have hooks of their own (`recorder/hooks/`).
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.checkpoints import hook_frameworks, hook_when_imported
from phasepoint.recorder.hooks.saves import SavePoint
from phasepoint.recorder.resume.request import ReplayRequest, tell
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.redirection import Redirection, destination, in_force, put_in_force, text_of
from phasepoint.recorder.seam.session import Remove

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
        place = text_of(path)
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
        source_path, target_path = text_of(source), text_of(target)
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
        place = text_of(file)
        writes = isinstance(mode, str) and bool((_WRITES | _CHANGES) & set(mode))
        if place is None or not writes or not is_originals(place, began_ns):
            return opens(file, mode, *args, **kwargs)
        target = destination(place)
        if _CHANGES & set(mode) and "w" not in mode and not Path(target).exists():
            shutil.copyfile(place, target)
        return opens(target, mode, *args, **kwargs)

    return opened


def _copy(source: str, target: str) -> None:
    """Copy a file, or a folder with all that is in it."""
    if Path(source).is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _tell(place: str) -> None:
    """A place is told once, the first time that something there is kept."""
    redirection = in_force()
    if redirection is not None:
        redirection.tell(place)


def protect_checkpoints(
    request: ReplayRequest, guard: Guard, on_redirected: Callable[[str], None] | None = None
) -> Remove:
    """Redirect this process's saves away from `request.protected`, to `request.saves`, from now on.

    Args:
        request: what the replay is asked to do.
        guard: catches what goes wrong in putting the hooks in.
        on_redirected: called with every place, once, when the first save to it is redirected; None tells it in the
            handshake.

    Returns:
        `release_checkpoints`. A replay does not call it.
    """
    known = in_force()
    if known is not None and (known.protected, known.saves) == (request.protected, request.saves):
        return release_checkpoints
    on_redirected = on_redirected or (lambda place: tell(request, "redirected", place=place))
    put_in_force(Redirection(request.protected, request.saves, request.checkpoint, on_redirected))
    if not _hooks:  # else they are there, and ask what is in force
        _hooks.append(hook_when_imported("builtins", guard, lambda module: protect_files()))
        _hooks.extend(hook_frameworks(guard, _redirect))
        _hooks.append(hook_when_imported("orbax.checkpoint", guard, _hook_orbax))
    return release_checkpoints


def release_checkpoints() -> None:
    """End the protection of this process, if there is one, and take the hooks out."""
    put_in_force(None)
    while _hooks:
        _hooks.pop()()


_hooks: list[Remove] = []
"""What takes out the hooks that this process has in."""


def _redirect(point: SavePoint) -> list[Remove]:
    return [] if point.redirect is None else [point.wrap(point.redirect)]


def _hook_orbax(module: str) -> list[Remove]:
    from phasepoint.recorder.resume.orbax_saves import protect_managers

    return protect_managers(sys.modules[module])
