"""Checkpoints of Accelerate: `Accelerator.save_state` writes one folder; `save_model` writes the model alone."""

from collections.abc import Mapping
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint, saved_whole
from phasepoint.recorder.seam.redirection import PathArgument, path_of

_MODEL_PLACE = PathArgument(2, "save_directory")


def save_points(module: str) -> list[SavePoint]:
    """The saving methods of the `Accelerator`."""
    from accelerate.accelerator import Accelerator

    return [
        SavePoint(Accelerator, "save_state", _describe_state, PathArgument(1, "output_dir").redirect),
        SavePoint(Accelerator, "save_model", _describe_model, _MODEL_PLACE.redirect),
    ]


def _describe_state(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`save_state` gives back where it saved; the folder's name may be of its own making."""
    return saved_whole("accelerate", path_of(result))


def _describe_model(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`save_model(model, save_directory)`."""
    return saved_whole("accelerate", _MODEL_PLACE.saved(args, kwargs))
