"""Checkpoints of `flax.training.checkpoints`: a file of MessagePack, or a folder that Orbax writes."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_function
from phasepoint.recorder.seam.redirection import absolute_path
from phasepoint.recorder.seam.session import Remove

SAVES = ("save_checkpoint", "save_checkpoint_multiprocess")
"""Saving functions; the first argument of each is the folder of checkpoints, and each gives back the path."""


def hook_flax(wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap the saving functions of Flax, which must have been imported."""
    from flax.training import checkpoints

    return [patch_function(checkpoints, name, wrap(_describe)) for name in SAVES]


def _describe(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """Its result is where it saved; with an `AsyncManager` a file is still being written."""
    if not isinstance(result, str | os.PathLike):
        return None
    path = os.fspath(result)
    return Saved("flax", absolute_path(path), None, kwargs.get("async_manager") is not None, holds_inner=True)
