"""Checkpoints of Transformers: what a `Trainer` saves at one moment is one checkpoint, the folder with all its files.

`Trainer._save_checkpoint` writes the model, the optimizer, the schedule, the random states and `trainer_state.json`
into `checkpoint-STEP/`; `Trainer.save_model` and `PreTrainedModel.save_pretrained` write the model alone. Which folder
it is, `save_model` is told by `_save_checkpoint`.

Source: `transformers.trainer` 4.40 to 5.23.
"""

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.redirection import absolute_path, destination
from phasepoint.recorder.seam.session import Remove


def hook_transformers(module: str, wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap the saving methods of the class in a module of transformers, which must have been imported."""
    found = importlib.import_module(module)
    trainer, model = getattr(found, "Trainer", None), vars(found).get("PreTrainedModel")
    removes = []
    if module.endswith(".trainer") and trainer is not None:
        removes.append(patch_attribute(trainer, "_save_checkpoint", wrap(_describe_checkpoint)))
        removes.append(patch_attribute(trainer, "save_model", wrap(partial(_describe_model, "output_dir"))))
    elif model is not None:
        removes.append(patch_attribute(model, "save_pretrained", wrap(partial(_describe_model, "save_directory"))))
    return removes


def _describe_checkpoint(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved:
    """`Trainer._save_checkpoint(model, trial)`: the folder is that of the `save_model` within."""
    return Saved("transformers", asynchronous=False, holds_inner=True)


def _describe_model(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`save_model(output_dir)`, `save_pretrained(save_directory)`; None where a rank that writes nothing calls it."""
    place = args[1] if len(args) > 1 else kwargs.get(name)
    if place is None:
        place = getattr(getattr(args[0], "args", None), "output_dir", None)
    if not isinstance(place, str | os.PathLike):
        return None
    path = absolute_path(destination(os.fspath(place)))
    return Saved("transformers", path, None, False, holds_inner=True) if Path(path).is_dir() else None
