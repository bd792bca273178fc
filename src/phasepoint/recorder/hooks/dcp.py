"""Saves of `torch.distributed.checkpoint` as checkpoints: of a rank, the folder that all ranks write together.

Sizes are left unknown: other ranks may still be writing, and `async_save` has hardly begun when it returns.
"""

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.hooks.torch import has_iterator
from phasepoint.recorder.seam.patch import patch_function
from phasepoint.recorder.seam.redirection import absolute_path, destination
from phasepoint.recorder.seam.session import Remove

SAVES = {"save": False, "async_save": True}
"""The saving functions, and whether writing goes on after they return."""

_BACKGROUND_THREAD = "AsyncCheckpointExecutor"
"""Source: `torch.distributed.checkpoint._async_thread_executor` of PyTorch 2.6 to 2.13."""


def hook_dcp(wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap `save` and `async_save` of `torch.distributed.checkpoint`, which must have been imported.

    What `async_save` does on a thread of its own is to call `save`: that is the rest of a checkpoint, and none itself.
    """
    import torch.distributed.checkpoint as dcp

    return [
        patch_function(dcp, name, wrap(partial(describe_dcp_save, asynchronous)))
        for name, asynchronous in SAVES.items()
    ]


def describe_dcp_save(
    asynchronous: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    """What a save wrote: None where neither it nor its storage writer names a place."""
    if threading.current_thread().name.startswith(_BACKGROUND_THREAD):
        return Saved("dcp", holds_inner=True)
    place = kwargs.get("checkpoint_id")
    if place is None:
        writer = kwargs.get("storage_writer")
        place = getattr(writer, "checkpoint_id", None) or getattr(writer, "path", None)
    if not isinstance(place, str | os.PathLike):
        return None
    state = args[0] if args else kwargs.get("state_dict")
    path = destination(os.fspath(place))
    return Saved("dcp", absolute_path(path), None, asynchronous, has_iterator(state))
