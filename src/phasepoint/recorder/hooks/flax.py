"""Checkpoints of `flax.training.checkpoints`: a file of MessagePack, or a folder that Orbax writes."""

from collections.abc import Mapping
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint, saved_whole
from phasepoint.recorder.seam.redirection import PathArgument, path_of


def save_points(module: str) -> list[SavePoint]:
    """The saving functions, whose first argument is the folder of checkpoints."""
    from flax.training import checkpoints

    redirect = PathArgument(0, "ckpt_dir").redirect
    names = ("save_checkpoint", "save_checkpoint_multiprocess")
    return [SavePoint(checkpoints, name, _describe, redirect, by_any_name=True) for name in names]


def _describe(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """Its result is where it saved; with an `AsyncManager` a file is still being written."""
    return saved_whole("flax", path_of(result), asynchronous=kwargs.get("async_manager") is not None)
