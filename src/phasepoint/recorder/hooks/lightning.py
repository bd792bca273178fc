"""Checkpoints of Lightning: `Trainer.save_checkpoint`, which `ModelCheckpoint` calls, and `Fabric.save`.

The file is written through a buffer in memory, so that no save below this one names it. With FSDP and DeepSpeed it is a
folder. With `AsyncCheckpointIO` writing goes on after the call.

Source: lightning 2.0 to 2.6, under both its names (`lightning.pytorch`, `pytorch_lightning`).
"""

from collections.abc import Mapping
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint, defined_in, saved_whole
from phasepoint.recorder.seam.redirection import PathArgument

_TRAINER_PLACE = PathArgument(1, "filepath")
_FABRIC_PLACE = PathArgument(1, "path")


def save_points(module: str) -> list[SavePoint]:
    """The saving method of the `Trainer` or the `Fabric`, whichever the module defines."""
    found = defined_in(module)
    return [
        SavePoint(found.get("Trainer"), "save_checkpoint", _describe_trainer, _TRAINER_PLACE.redirect),
        SavePoint(found.get("Fabric"), "save", _describe_fabric, _FABRIC_PLACE.redirect),
    ]


def _describe_trainer(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`Trainer.save_checkpoint(filepath)`."""
    writer = getattr(getattr(args[0], "strategy", None), "checkpoint_io", None)
    is_asynchronous = any(kind.__name__ == "AsyncCheckpointIO" for kind in type(writer).__mro__)
    return saved_whole("lightning", _TRAINER_PLACE.saved(args, kwargs), asynchronous=is_asynchronous)


def _describe_fabric(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`Fabric.save(path, state)`."""
    return saved_whole("lightning", _FABRIC_PLACE.saved(args, kwargs))
