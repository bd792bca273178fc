"""Saves of `torch.distributed.checkpoint` as checkpoints: of a rank, the folder that all ranks write together.

Sizes are left unknown: other ranks may still be writing, and `async_save` has hardly begun when it returns.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint
from phasepoint.recorder.hooks.torch import has_iterator
from phasepoint.recorder.seam.redirection import PathArgument, saved_path

_BACKGROUND_THREAD = "AsyncCheckpointExecutor"
"""Source: `torch.distributed.checkpoint._async_thread_executor` of PyTorch 2.6 to 2.13."""


def save_points(module: str) -> list[SavePoint]:
    """`save` and `async_save`, and the storage writer, which takes its place when it is made.

    What `async_save` does on a thread of its own is to call `save`: that is the rest of a checkpoint, and none itself.
    """
    import torch.distributed.checkpoint as dcp

    redirect = PathArgument(1, "checkpoint_id").redirect  # by name alone
    return [
        SavePoint(dcp, "save", partial(_describe, False), redirect, by_any_name=True),
        SavePoint(dcp, "async_save", partial(_describe, True), redirect, by_any_name=True),
        SavePoint(getattr(dcp, "FileSystemWriter", None), "__init__", redirect=PathArgument(1, "path").redirect),
    ]


def _describe(asynchronous: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """What a save wrote: None where neither it nor its storage writer names a place."""
    if threading.current_thread().name.startswith(_BACKGROUND_THREAD):
        return Saved("dcp", holds_inner=True)
    place = kwargs.get("checkpoint_id")
    if place is None:
        writer = kwargs.get("storage_writer")
        place = getattr(writer, "checkpoint_id", None) or getattr(writer, "path", None)
    path = saved_path(place)
    if path is None:
        return None
    return Saved("dcp", path, None, asynchronous, has_iterator(args[0] if args else kwargs.get("state_dict")))
