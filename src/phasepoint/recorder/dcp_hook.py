"""Saves of `torch.distributed.checkpoint` as checkpoints: of a rank, the folder that all ranks write together.

Sizes are left unknown: other ranks may still be writing, and `async_save` has hardly begun when it returns.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from phasepoint.recorder.checkpoint_hooks import Decorator, Describe, Saved
from phasepoint.recorder.patch import patch_attribute
from phasepoint.recorder.redirection import destination
from phasepoint.recorder.session import Remove
from phasepoint.recorder.torch_hook import has_iterator

SAVES = {"save": False, "async_save": True}
"""The saving functions, and whether writing goes on after they return."""


def hook_dcp(wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap `save` and `async_save` of `torch.distributed.checkpoint`, which must have been imported.

    Not under their names in `state_dict_saver`: what `async_save` does on another thread is to call that `save`.
    """
    import torch.distributed.checkpoint as dcp

    return [
        patch_attribute(dcp, name, wrap(partial(describe_dcp_save, asynchronous)))
        for name, asynchronous in SAVES.items()
    ]


def describe_dcp_save(
    asynchronous: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object
) -> Saved | None:
    """What a save wrote: None where neither it nor its storage writer names a place."""
    place = kwargs.get("checkpoint_id")
    if place is None:
        writer = kwargs.get("storage_writer")
        place = getattr(writer, "checkpoint_id", None) or getattr(writer, "path", None)
    if not isinstance(place, str | os.PathLike):
        return None
    state = args[0] if args else kwargs.get("state_dict")
    path = destination(os.fspath(place))
    absolute = path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - it may be no path of this system
    return Saved("dcp", absolute, None, asynchronous, has_iterator(state))
