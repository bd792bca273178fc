"""`torch.save` as a checkpoint: a file with its size. A save into a buffer in memory is none."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_function
from phasepoint.recorder.seam.redirection import destination
from phasepoint.recorder.seam.session import Remove

ITERATOR_KEYS = ("dataloader", "data_loader", "sampler", "iterator", "data_iter", "dataset_state")
"""Parts of a state's top-level key that say that the data iterator's state is in it."""


def hook_torch_save(wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap `torch.save`, under whatever name it is called; torch must have been imported."""
    import torch

    decorate = wrap(describe_torch_save)
    owners = [torch] if torch.save is torch.serialization.save else [torch, torch.serialization]
    return [patch_function(owner, "save", decorate) for owner in owners]


def describe_torch_save(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """What `torch.save(obj, f)` wrote: None where `f` is neither a path nor an open file with one."""
    target = args[1] if len(args) > 1 else kwargs.get("f")
    state = args[0] if args else kwargs.get("obj")
    if isinstance(target, str | os.PathLike):
        path = Path(destination(os.fspath(target)))
        return Saved("torch", str(path.absolute()), path.stat().st_size, False, has_iterator(state))
    name = getattr(target, "name", None)
    if isinstance(name, str):
        return Saved("torch", str(Path(name).absolute()), None, False, has_iterator(state))
    return None


def has_iterator(state: object) -> bool | None:
    """True if a key of a state tells of the data iterator; else not known."""
    if not isinstance(state, Mapping):
        return None
    found = any(part in str(key).lower() for key in state for part in ITERATOR_KEYS)
    return True if found else None
