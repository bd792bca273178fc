"""Checkpoints of Lightning: `Trainer.save_checkpoint`, which `ModelCheckpoint` calls, and `Fabric.save`.

The file is written through a buffer in memory, so that no save below this one names it. With FSDP and DeepSpeed it is a
folder. With `AsyncCheckpointIO` writing goes on after the call.

Source: lightning 2.0 to 2.6, under both its names (`lightning.pytorch`, `pytorch_lightning`).
"""

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.redirection import absolute_path, destination
from phasepoint.recorder.seam.session import Remove


def hook_lightning(module: str, wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap the saving method of the `Trainer` or the `Fabric` of a module, which must have been imported."""
    found = importlib.import_module(module)
    owners = (("Fabric", "save", _describe_fabric), ("Trainer", "save_checkpoint", _describe_trainer))
    return [
        patch_attribute(vars(found)[owner], name, wrap(describe))
        for owner, name, describe in owners
        if owner in vars(found)
    ]


def _describe_trainer(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`Trainer.save_checkpoint(filepath)`."""
    place = args[1] if len(args) > 1 else kwargs.get("filepath")
    writer = getattr(getattr(args[0], "strategy", None), "checkpoint_io", None)
    return _saved(place, asynchronous=any(kind.__name__ == "AsyncCheckpointIO" for kind in type(writer).__mro__))


def _describe_fabric(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`Fabric.save(path, state)`."""
    return _saved(args[1] if len(args) > 1 else kwargs.get("path"), asynchronous=False)


def _saved(place: object, *, asynchronous: bool) -> Saved | None:
    if not isinstance(place, str | os.PathLike):
        return None
    path = destination(os.fspath(place))
    return Saved("lightning", absolute_path(path), None, asynchronous, holds_inner=True)
