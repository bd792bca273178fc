"""In a replay, Orbax's checkpointers and its manager read the original's checkpoints and write elsewhere.

A manager that was opened on a protected folder sees it as it was when the replay's checkpoint had been written: later
steps are hidden, so that its policies decide as they did then, and no step is there twice. What it saves goes to the
folder for such saves and is read from there; what it would delete of the original stays.

The manager has no interface for this: methods of Orbax 0.11 and 0.12 with a leading underscore are wrapped. Where they
are not as expected, a manager on a protected folder saves nothing and deletes nothing, which is said on stderr.
"""

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.redirection import destination, in_force
from phasepoint.recorder.seam.session import Remove

_USED = ("_get_write_step_directory", "_get_read_step_directory", "_load_checkpoint_infos")
_USED_OF_EACH = ("_checkpoints", "_checkpoint_deleter")
_FIRST_USES = ("save", "should_save", "all_steps", "latest_step", "best_step", "restore", "delete", "reload")
"""Methods by which a manager that was made before the hooks came is first met."""


def protect_managers(ocp: Any) -> list[Remove]:
    """Redirect what the managers of `orbax.checkpoint`, an imported module, write; returns what takes the hooks out."""
    manager = getattr(ocp, "CheckpointManager", None)
    if manager is None:
        return []
    if not all(hasattr(manager, name) for name in _USED):
        return _forbid(manager)
    return _Managers().protect(manager)


class _Managers:
    """The managers of this process that were opened on protected folders."""

    def __init__(self) -> None:
        self._saved: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()

    def protect(self, manager: Any) -> list[Remove]:
        return [
            patch_attribute(manager, "__init__", self._on_init),
            *(patch_attribute(manager, name, self._on_use) for name in _FIRST_USES),
            patch_attribute(manager, "_load_checkpoint_infos", self._on_load),
            patch_attribute(manager, "_get_write_step_directory", self._on_write),
            patch_attribute(manager, "_get_read_step_directory", self._on_read),
        ]

    def _on_init(self, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def made(manager: Any, directory: Any, *args: Any, **kwargs: Any) -> None:
            options: Any = kwargs.get("options")
            if _is_protected(directory) and getattr(options, "cleanup_tmp_directories", False):
                kwargs["options"] = dataclasses.replace(options, cleanup_tmp_directories=False)
            init(manager, directory, *args, **kwargs)
            self._meet(manager)

        return made

    def _on_use(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def used(manager: Any, *args: Any, **kwargs: Any) -> Any:
            if manager not in self._saved and _is_protected(manager.directory):
                if not self._meet(manager) and method.__name__ in {"save", "delete"}:
                    return _refuse(manager, method.__name__)
                manager.reload()
            return method(manager, *args, **kwargs)

        return used

    def _on_load(self, load: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        @wraps(load)
        def loaded(manager: Any, *args: Any, **kwargs: Any) -> list[Any]:
            infos = load(manager, *args, **kwargs)
            if not _is_protected(manager.directory):
                return infos
            saved = self._saved.get(manager, set())
            known = getattr(manager, "_checkpoints", ())
            return [*self._as_it_was(manager, infos), *(info for info in known if info.step in saved)]

        return loaded

    def _on_write(self, find: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(find)
        def found(manager: Any, step: int, root: Any) -> Any:
            path = find(manager, step, root)
            target = destination(os.fspath(path))
            if target == os.fspath(path):
                return path
            self._saved.setdefault(manager, set()).add(step)
            return type(path)(target)

        return found

    def _on_read(self, find: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(find)
        def found(manager: Any, step: int, root: Any) -> Any:
            if step in self._saved.get(manager, ()):
                root = type(root)(_target(os.fspath(root)))
            return find(manager, step, root)

        return found

    def _meet(self, manager: Any) -> bool:
        """Take a manager under protection where its folder needs it; False where that cannot be done."""
        if manager in self._saved or not _is_protected(manager.directory):
            return True
        if not all(hasattr(manager, name) for name in _USED_OF_EACH):
            return False
        self._saved[manager] = set()
        manager._checkpoint_deleter = _KeepingDeleter(manager, manager._checkpoint_deleter, self._saved[manager])
        return True

    def _as_it_was(self, manager: Any, infos: Sequence[Any]) -> list[Any]:
        """The checkpoints that were there when the replay's had been written."""
        redirection = in_force()
        if redirection is None or redirection.checkpoint is None:
            return []
        begun = os.path.realpath(redirection.checkpoint)
        steps = [info.step for info in infos]
        paths = [os.path.realpath(manager._get_read_step_directory(step, manager.directory)) for step in steps]
        if begun in paths:
            last = steps[paths.index(begun)]
            return [info for info in infos if info.step <= last]
        # It is another manager's, or none's: what is younger was not there yet.
        written_s = Path(begun).stat().st_mtime if Path(begun).exists() else float("inf")
        return [info for info, path in zip(infos, paths, strict=True) if Path(path).stat().st_mtime <= written_s]


class _KeepingDeleter:
    """Deletes what the replay saved, and keeps what the original did."""

    def __init__(self, manager: Any, deleter: Any, saved: set[int]) -> None:
        self._manager = manager
        self._deleter = deleter
        self._saved = saved

    def delete(self, step: int) -> None:
        if step in self._saved:
            shutil.rmtree(self._manager._get_read_step_directory(step, self._manager.directory), ignore_errors=True)

    def delete_steps(self, steps: Sequence[int]) -> None:
        for step in steps:
            self.delete(step)

    def close(self) -> None:
        self._deleter.close()


def _is_protected(directory: Any) -> bool:
    redirection = in_force()
    return redirection is not None and redirection.protects(os.fspath(directory))


def _target(path: str) -> str:
    """Where a save to a path would have gone."""
    redirection = in_force()
    return path if redirection is None else redirection.target(path)


def _forbid(manager: Any) -> list[Remove]:
    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_protected(self.directory):
                return _refuse(self, method.__name__)
            return method(self, *args, **kwargs)

        return refused

    return [patch_attribute(manager, name, decorate) for name in ("save", "delete")]


def _refuse(manager: Any, what: str) -> bool:
    sys.stderr.write(
        f"phasepoint: replay: {what} was left out: this version of Orbax gives no way to keep it from the original's "
        f"checkpoints in {manager.directory}\n"
    )
    return False
