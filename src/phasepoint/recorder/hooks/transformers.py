"""Checkpoints of Transformers: what a `Trainer` saves at one moment is one checkpoint, the folder with all its files.

`Trainer._save_checkpoint` writes the model, the optimizer, the schedule, the random states and `trainer_state.json`
into `checkpoint-STEP/`; `Trainer.save_model` and `PreTrainedModel.save_pretrained` write the model alone. Which folder
it is, `save_model` is told by `_save_checkpoint`.

Source: `transformers.trainer` 4.40 to 5.23.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint, defined_in, saved_whole
from phasepoint.recorder.seam.redirection import PathArgument, redirect_result, saved_path

_TRAINERS_PLACE = PathArgument(1, "output_dir")
_MODELS_PLACE = PathArgument(1, "save_directory")


def save_points(module: str) -> list[SavePoint]:
    """The saving methods of the `Trainer` or the `PreTrainedModel`, whichever the module defines."""
    found = defined_in(module)
    trainer, model = found.get("Trainer"), found.get("PreTrainedModel")
    return [
        SavePoint(trainer, "_save_checkpoint", _describe_checkpoint),
        SavePoint(trainer, "_get_output_dir", redirect=redirect_result),  # of checkpoints alone
        SavePoint(trainer, "save_model", partial(_describe_model, _TRAINERS_PLACE), _TRAINERS_PLACE.redirect),
        SavePoint(model, "save_pretrained", partial(_describe_model, _MODELS_PLACE), _MODELS_PLACE.redirect),
    ]


def _describe_checkpoint(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved:
    """`Trainer._save_checkpoint(model, trial)`: the folder is that of the `save_model` within."""
    return Saved("transformers", asynchronous=False, holds_inner=True)


def _describe_model(
    argument: PathArgument, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    """`save_model(output_dir)`, `save_pretrained(save_directory)`; None where a rank that writes nothing calls it."""
    place = argument.given(args, kwargs)
    if place is None:
        place = getattr(getattr(args[0], "args", None), "output_dir", None)
    path = saved_path(place)
    return saved_whole("transformers", path) if path is not None and Path(path).is_dir() else None
