"""`save_file` of safetensors as a checkpoint, for PyTorch, NumPy and Flax, under whatever name it is called."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint
from phasepoint.recorder.seam.redirection import PathArgument, destination

_PLACE = PathArgument(1, "filename")


def save_points(module: str) -> list[SavePoint]:
    """`save_file(tensors, filename)` of one of safetensors' modules."""
    return [SavePoint(sys.modules[module], "save_file", _describe, _PLACE.redirect, by_any_name=True)]


def _describe(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    name = _PLACE.given(args, kwargs)
    if name is None:
        return None
    path = Path(destination(str(name)))
    return Saved("safetensors", str(path.absolute()), path.stat().st_size, False)
