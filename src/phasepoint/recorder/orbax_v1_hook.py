"""Saves of Orbax's new interface (v1), which is experimental in 0.12: its functions and its `Checkpointer`.

Its checkpointer keeps a manager of the old kind; a save inside a save is one checkpoint, with the manager's path.
"""

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from phasepoint.recorder.orbax_hook import has_iterator
from phasepoint.recorder.patch import patch_attribute
from phasepoint.recorder.redirection import destination
from phasepoint.recorder.save_watch import Decorator, Describe, Saved
from phasepoint.recorder.session import Remove

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
