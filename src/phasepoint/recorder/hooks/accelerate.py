"""Checkpoints of Accelerate: `Accelerator.save_state` writes one folder; `save_model` writes the model alone."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.redirection import absolute_path, destination
from phasepoint.recorder.seam.session import Remove


def hook_accelerate(wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap the saving methods of the `Accelerator`; Accelerate must have been imported."""
    from accelerate.accelerator import Accelerator

    return [
        patch_attribute(Accelerator, "save_state", wrap(_describe_state)),
        patch_attribute(Accelerator, "save_model", wrap(_describe_model)),
    ]


def _describe_state(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`save_state` gives back where it saved; the folder's name may be of its own making."""
    return _folder(result)


def _describe_model(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """`save_model(model, save_directory)`."""
    place = args[2] if len(args) > 2 else kwargs.get("save_directory")
    return _folder(destination(os.fspath(place)) if isinstance(place, str | os.PathLike) else None)


def _folder(place: object) -> Saved | None:
    if not isinstance(place, str | os.PathLike):
        return None
    return Saved("accelerate", absolute_path(os.fspath(place)), None, False, holds_inner=True)
