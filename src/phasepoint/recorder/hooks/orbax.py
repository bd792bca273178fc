"""Orbax's saves as checkpoints: the manager's, and a checkpointer's used alone, synchronous or not; waits for them.

Sizes are left unknown: a checkpoint is a directory, and an asynchronous one is not complete when the call returns.

Saves of Orbax's new interface (v1), which is experimental in 0.12: its functions and its `Checkpointer`.

Its checkpointer keeps a manager of the old kind; a save inside a save is one checkpoint, with the manager's path.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint
from phasepoint.recorder.seam.redirection import PathArgument, destination

CHECKPOINTERS = ("Checkpointer", "AsyncCheckpointer", "StandardCheckpointer", "PyTreeCheckpointer")

ITERATOR_ITEMS = (
    "iter",
    "iterator",
    "data_iter",
    "data_iterator",
    "dataset",
    "dataset_iterator",
    "dataloader",
    "grain",
)
"""Names under which an item of a composite checkpoint holds the data iterator."""


_DIRECTORY = PathArgument(1, "directory")
_PATH = PathArgument(0, "path")

_V1_SAVES = ("save", "save_pytree", "save_checkpointables")
"""Saving functions and methods of the new interface; each has an `_async` one, after which writing goes on."""


def save_points(module: str) -> list[SavePoint]:
    """What Orbax saves by: that of a module of its new interface, or that of the old one."""
    return _v1_points(sys.modules[module]) if module.endswith(".v1") else _points(sys.modules[module])


def _points(ocp: Any) -> list[SavePoint]:
    """`save` of the manager and of every checkpointer class that defines its own, and the waiting for it."""
    manager, asynchronous = getattr(ocp, "CheckpointManager", None), getattr(ocp, "AsyncCheckpointer", None)
    describe = partial(_describe_checkpointer, () if asynchronous is None else asynchronous)
    owners = [owner for owner in (getattr(ocp, name, None) for name in CHECKPOINTERS) if "save" in _own(owner)]
    return [
        *(
            SavePoint(owner, "wait_until_finished", waits_for="orbax")
            for owner in (manager, asynchronous)
            if "wait_until_finished" in _own(owner)
        ),
        SavePoint(manager, "save", _describe_manager),
        *(SavePoint(owner, "save", describe, _DIRECTORY.redirect) for owner in owners),
    ]


def _v1_points(v1: Any) -> list[SavePoint]:
    """The saving functions of the module, and its checkpointer's methods."""
    checkpointer = getattr(getattr(v1, "training", None), "Checkpointer", None)
    points = []
    for name, asynchronous in ((f"{name}{suffix}", bool(suffix)) for name in _V1_SAVES for suffix in ("", "_async")):
        points.append(SavePoint(v1, name, partial(_describe_function, asynchronous), _PATH.redirect))
        if name in _own(checkpointer):
            points.append(SavePoint(checkpointer, name, partial(_describe_method, asynchronous)))
    return points


def _own(owner: Any) -> Mapping[str, Any]:
    """What a class defines itself; nothing where this Orbax has no such class."""
    return {} if owner is None else vars(owner)


def _describe_manager(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`CheckpointManager.save(step, …)` gives False where its policy skipped the step; its path is the inner call's."""
    if not result:
        return None
    manager, *_ = args
    step = args[1] if len(args) > 1 else kwargs.get("step")
    return Saved("orbax", f"{manager.directory}/{step}", has_iterator=has_iterator([*args[2:], *kwargs.values()]))


def _describe_checkpointer(
    asynchronous: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    directory = _DIRECTORY.given(args, kwargs)
    if directory is None:
        return None
    return Saved(
        "orbax",
        destination(str(directory)),
        asynchronous=isinstance(args[0], asynchronous),
        has_iterator=has_iterator([*args[2:], *kwargs.values()]),
    )


def has_iterator(values: Iterable[object]) -> bool | None:
    """True if an argument is Grain's or is a composite with an item of a telling name; else not known."""
    for value in values:
        if _is_grains(value):
            return True
        items = getattr(value, "items", None)
        if not callable(items) or isinstance(value, type):
            continue
        if any(str(name).lower() in ITERATOR_ITEMS or _is_grains(item) for name, item in items()):
            return True
    return None


def _is_grains(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "grain"


def _describe_function(
    asynchronous: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    """`save(path, state)`, `save_checkpointables(path, {name: item})`."""
    path = _PATH.given(args, kwargs)
    if path is None:
        return None
    return Saved("orbax", destination(os.fspath(path)), None, asynchronous, has_iterator([*args[1:], *kwargs.values()]))


def _describe_method(
    asynchronous: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    """`Checkpointer.save(step, state)` gives False or None where its policy skipped the step."""
    if not result:
        return None
    return Saved("orbax", None, None, asynchronous, has_iterator([*args[2:], *kwargs.values()]))
