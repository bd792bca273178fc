"""Where a save goes: to the place it names, or, in a replay, elsewhere if that is the original's.

A place below a protected one keeps its path under the folder for such saves, so that two never meet there:
`/data/ckpt/20` becomes `SAVES/data/ckpt/20`.

Where a save went, and the size of what it wrote, as far as counting files costs next to nothing.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec import Struct

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

MOST_ENTRIES = 1_000
"""Entries of a folder that are counted on the job's thread: 2 ms at 2 µs each. A checkpoint that a Trainer writes has
ten, that of a sharded model a few hundred; one with more is of unknown size."""


def absolute_path(path: str) -> str:
    """A path of this machine from its root, links left as they are; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - it may be no path of this system


def text_of(place: object) -> str | None:
    """A path as text; None for what is none: an open file or its number, a buffer, bytes."""
    path = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    return path if isinstance(path, str) else None


def path_of(place: object) -> str | None:
    """A place to save to, as `absolute_path` writes it; None where it is no path."""
    path = text_of(place)
    return None if path is None else absolute_path(path)


def saved_bytes(path: str) -> int | None:
    """Bytes of the file, or of the files in the folder, at a path of this machine.

    Returns:
        None where nothing stands there, where it is a URL, or where it has more than `MOST_ENTRIES` entries.
    """
    if "://" in path:
        return None
    with suppress(OSError):
        if not Path(path).is_dir():
            return Path(path).stat().st_size
        return _folder_bytes(path)
    return None


def _folder_bytes(path: str) -> int | None:
    total = seen = 0
    waiting = [path]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_ENTRIES:
                    return None
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


@dataclass
class Redirection:
    """Which places are protected, and where what would go there goes instead.

    Attributes:
        protected: folders and files.
        saves: folder for saves that would go to them.
        checkpoint: path of the checkpoint that the replay begins with; None where it begins with the job.
        on_redirected: told every place, once, the first time that something is redirected from it.
    """

    protected: tuple[str, ...]
    saves: str
    checkpoint: str | None = None
    on_redirected: Callable[[str], None] = lambda place: None
    _told: set[str] = field(default_factory=set)

    def destination(self, path: str) -> str:
        """Where a save to a path goes; the path itself where nothing of it is protected. The folder above is made."""
        target = self.target(path)
        if target != path:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            self.tell(path)
        return target

    def tell(self, path: str) -> None:
        """Say, once, that a place is kept as it is."""
        place = _normal(path)
        if place not in self._told:
            self._told.add(place)
            self.on_redirected(place)

    def target(self, path: str) -> str:
        """Where a save to a path would go, or went."""
        return f"{self.saves}/{_normal(path).replace('://', '/').lstrip('/')}" if self.protects(path) else path

    def protects(self, path: str) -> bool:
        """Whether a save to a path is redirected."""
        place = _normal(path)
        return not _is_within(place, _normal(self.saves)) and any(_is_within(place, _normal(p)) for p in self.protected)


@dataclass
class _InForce:
    redirection: Redirection | None = None


_in_force = _InForce()


def destination(path: str) -> str:
    """Where a save of this process to a path goes: the path itself in all processes but replays."""
    redirection = _in_force.redirection
    return path if redirection is None else redirection.destination(path)


class PathArgument(Struct, frozen=True):
    """The argument by which a function is told where to save.

    Attributes:
        position: its place among the arguments, a method's object counted.
        name: where it is given by name.
    """

    position: int
    name: str

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a call gives; None where it gives nothing."""
        return args[self.position] if len(args) > self.position else kwargs.get(self.name)

    def saved(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Where a call saved; None where what it gives is no path."""
        return saved_path(self.given(args, kwargs))

    def redirect(self, save: Callable[..., Any]) -> Callable[..., Any]:
        """A decorator: the function saves elsewhere where the place it is given is protected."""
        position, name = self.position, self.name

        @wraps(save)
        def redirected(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position:
                args = (*args[:position], _elsewhere(args[position]), *args[position + 1 :])
            elif name in kwargs:
                kwargs = {**kwargs, name: _elsewhere(kwargs[name])}
            return save(*args, **kwargs)

        return redirected


def redirect_result(where: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for a function that says where to save."""

    @wraps(where)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        return _elsewhere(where(*args, **kwargs))

    return redirected


def _elsewhere(place: Any) -> Any:
    """A place to save to, of the kind that was given; what is no path as it is."""
    path = text_of(place)
    target = None if path is None else destination(path)
    if target == path:
        return place
    return target if isinstance(place, str) else type(place)(target)


def saved_path(place: object) -> str | None:
    """Where a save to a place went, as `absolute_path` writes it; None where the place is no path."""
    path = text_of(place)
    return None if path is None else absolute_path(destination(path))


def in_force() -> Redirection | None:
    """What is redirected in this process."""
    return _in_force.redirection


def put_in_force(redirection: Redirection | None) -> None:
    """Redirect saves of this process in this way from now on; None redirects none."""
    _in_force.redirection = redirection


def _normal(path: str) -> str:
    """A path without links and dots, so that no other name of a protected place is taken for another place."""
    if "://" in path and not path.startswith("file://"):
        return path.rstrip("/")
    return os.path.realpath(path.removeprefix("file://"))


def _is_within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")
