"""Orbax's saves as checkpoints: the manager's, and a checkpointer's used alone, synchronous or not; waits for them.

Sizes are left unknown: a checkpoint is a directory, and an asynchronous one is not complete when the call returns.

Saves of Orbax's new interface (v1), which is experimental in 0.12: its functions and its `Checkpointer`.

Its checkpointer keeps a manager of the old kind; a save inside a save is one checkpoint, with the manager's path.
"""

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.redirection import destination
from phasepoint.recorder.seam.session import Remove

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


def hook_orbax(wrap: Callable[[Describe], Decorator], wrap_wait: Callable[[str], Decorator]) -> list[Remove]:
    """Wrap `save` of Orbax's manager and of every checkpointer class that defines its own, and the waiting for it.

    Orbax must have been imported.
    """
    import orbax.checkpoint as ocp

    removes = []
    for name in ("CheckpointManager", "AsyncCheckpointer"):
        owner = getattr(ocp, name, None)
        if owner is not None and "wait_until_finished" in vars(owner):
            removes.append(patch_attribute(owner, "wait_until_finished", wrap_wait("orbax")))
    manager = getattr(ocp, "CheckpointManager", None)
    if manager is not None:
        removes.append(patch_attribute(manager, "save", wrap(_describe_manager)))
    asynchronous = getattr(ocp, "AsyncCheckpointer", ())
    describe = partial(_describe_checkpointer, asynchronous)
    for name in CHECKPOINTERS:
        owner = getattr(ocp, name, None)
        if owner is not None and "save" in vars(owner):
            removes.append(patch_attribute(owner, "save", wrap(describe)))
    return removes


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
    directory = args[1] if len(args) > 1 else kwargs.get("directory")
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


SAVES = {
    f"{name}{suffix}": bool(suffix)
    for name in ("save", "save_pytree", "save_checkpointables")
    for suffix in ("", "_async")
}
"""Its saving functions and methods, and whether writing goes on after they return."""


def hook_orbax_v1(module: str, wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap the saving functions of the module, which must have been imported, and its checkpointer's methods."""
    v1 = importlib.import_module(module)
    checkpointer = getattr(getattr(v1, "training", None), "Checkpointer", None)
    removes = []
    for name, asynchronous in SAVES.items():
        removes.append(patch_attribute(v1, name, wrap(partial(_describe_function, asynchronous))))
        if checkpointer is not None and name in vars(checkpointer):
            removes.append(patch_attribute(checkpointer, name, wrap(partial(_describe_method, asynchronous))))
    return removes


def _describe_function(
    asynchronous: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    """`save(path, state)`, `save_checkpointables(path, {name: item})`."""
    path = args[0] if args else kwargs.get("path")
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
