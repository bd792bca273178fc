"""`torch.save` as a checkpoint: a file with its size. A save into a buffer in memory is none."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint
from phasepoint.recorder.seam.redirection import PathArgument, destination

ITERATOR_KEYS = ("dataloader", "data_loader", "sampler", "iterator", "data_iter", "dataset_state")
"""Parts of a state's top-level key that say that the data iterator's state is in it."""

_PLACE = PathArgument(1, "f")


def save_points(module: str) -> list[SavePoint]:
    """`torch.save(obj, f)`, under whatever name it is called."""
    import torch

    owners = [torch] if torch.save is torch.serialization.save else [torch, torch.serialization]
    return [SavePoint(owner, "save", _describe, _PLACE.redirect, by_any_name=True) for owner in owners]


def _describe(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """None where `f` is neither a path nor an open file with one."""
    target = _PLACE.given(args, kwargs)
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
