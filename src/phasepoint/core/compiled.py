"""The one door to numba: `@compiled()` compiles a function and keeps the machine code where something can be written.

numba keeps it beside the source or in the user's cache, and refuses to define the function where neither can be
written: a container with another user, no home or a read-only disk. Here the first place that can be written is taken:

1. `NUMBA_CACHE_DIR`, where the user has set it;
2. `__pycache__` beside the source, as numba does;
3. the user's cache: `$XDG_CACHE_HOME/phasepoint/compiled`, or `~/.cache/phasepoint/compiled`;
4. a folder of this user's own in the folder for temporary files;
5. nowhere: every process compiles anew, and says so once on stderr.

Numba takes kept code for good as long as the function's own file is what it was. But functions that are called, and
numbers from other modules, are compiled into it: kept code here goes by all files of the folders that these are from.
"""

import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numba

_PROBE_BYTES = 4096
"""What is written to try a folder: a disk that is full takes an empty file and no block."""

_DAMAGED = (OSError, EOFError, pickle.UnpicklingError)
"""What reading machine code fails with where a file is another user's, cut off or no cache."""


@dataclass(frozen=True)
class CachePlace:
    """Where machine code is kept.

    Attributes:
        kept: whether it is kept at all.
        folder: the folder; None where numba's own choice can be written.
    """

    kept: bool
    folder: Path | None = None


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a function without the interpreter's lock, its machine code kept where possible.

    Args:
        options: of `numba.njit`, such as `inline="always"`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        if hasattr(dispatcher, "enable_caching"):  # not with NUMBA_DISABLE_JIT=1
            _keep(dispatcher, Path(function.__code__.co_filename).parent)
        return dispatcher

    return decorate


def find_cache_place(source_folder: Path, environ: Mapping[str, str] = os.environ) -> CachePlace:
    """The first place that can be written.

    Args:
        source_folder: folder of the function's source.
        environ: environment variables.
    """
    if numba.config.CACHE_DIR and can_write(Path(numba.config.CACHE_DIR)):
        return CachePlace(True)
    if can_write(source_folder / "__pycache__"):
        return CachePlace(True)
    for folder in (_user_cache_folder(environ), _own_temporary_folder()):
        if folder is not None and can_write(folder):
            return CachePlace(True, folder)
    return CachePlace(False)


def can_write(folder: Path) -> bool:
    """Whether a file of some size can be written into a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError:
        return False
    return True


def _keep(dispatcher: Any, source_folder: Path) -> None:
    place = _place_of(source_folder)
    if not place.kept:
        _say_once("the folder for temporary files cannot be written either")
        return
    try:
        with _numba_keeps_in(place.folder):
            dispatcher.enable_caching()
    except RuntimeError as error:  # it could be written a moment ago
        _say_once(str(error))
        return
    _forgive(dispatcher)
    _go_by_folders(dispatcher)


_FOLDERS: dict[Any, frozenset[Path]] = {}
"""Of each compiled function, the folders whose files are compiled into it."""


def _go_by_folders(dispatcher: Any) -> None:
    """Kept code is old where any file of these folders has changed."""
    function = dispatcher.py_func
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    called = [getattr(one, "py_func", None) for one in named]
    folders = {Path(function.__code__.co_filename).parent}.union(*(_FOLDERS.get(one, ()) for one in called))
    _FOLDERS[function] = frozenset(folders)
    kept = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if kept is not None:
        kept._source_stamp = (kept._source_stamp, *map(_files_of, sorted(folders)))


@cache
def _files_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of each of a folder's modules."""
    found = [(path.name, path.stat()) for path in sorted(folder.glob("*.py"))]
    return tuple((name, one.st_size, one.st_mtime_ns) for name, one in found)


@cache
def _place_of(source_folder: Path) -> CachePlace:
    return find_cache_place(source_folder)


@contextmanager
def _numba_keeps_in(folder: Path | None) -> Iterator[None]:
    """Numba's own setting is the whole process's, and the job's functions keep theirs: it is put back at once."""
    before = numba.config.CACHE_DIR
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def _forgive(dispatcher: Any) -> None:
    """Compile anew where kept code cannot be read, and go on where it cannot be written: a disk fills up meanwhile."""
    kept = getattr(dispatcher, "_cache", None)
    if kept is None:
        return
    load, save = kept.load_overload, kept.save_overload

    def load_or_compile(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except _DAMAGED:
            return None

    def save_or_go_on(*arguments: Any) -> None:
        try:
            save(*arguments)
        except _DAMAGED as error:
            _say_once(str(error))

    kept.load_overload, kept.save_overload = load_or_compile, save_or_go_on


def _user_cache_folder(environ: Mapping[str, str]) -> Path | None:
    """None for a user without a home: it is not for us to make one."""
    base = environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "phasepoint" / "compiled"
    home = environ.get("HOME", "")
    return (
        Path(home) / ".cache" / "phasepoint" / "compiled" if Path(home).is_absolute() and Path(home).is_dir() else None
    )


def _own_temporary_folder() -> Path | None:
    """A folder that nobody else can write, as what stands in it is run; None where there is none."""
    try:
        user = os.getuid() if hasattr(os, "getuid") else 0
        folder = Path(tempfile.gettempdir()) / f"phasepoint-compiled-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == user)
    return folder if ours and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


@cache
def _once() -> list[str]:
    return []


def _say_once(reason: str) -> None:
    if _once():
        return
    _once().append(reason)
    sys.stderr.write(
        "note: compiled functions cannot be kept, so every command compiles them anew, which takes seconds: "
        f"{reason}. Set NUMBA_CACHE_DIR to a folder that can be written\n"
    )
