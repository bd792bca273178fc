"""`save_file` of safetensors as a checkpoint, for PyTorch, NumPy and Flax, under whatever name it is called."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_function
from phasepoint.recorder.seam.redirection import destination
from phasepoint.recorder.seam.session import Remove


def hook_safetensors(module: str, wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap `save_file` of one of safetensors' modules, which must have been imported."""
    return [patch_function(importlib.import_module(module), "save_file", wrap(describe_safetensors_save))]


def describe_safetensors_save(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """What `save_file(tensors, filename)` wrote."""
    name = args[1] if len(args) > 1 else kwargs.get("filename")
    if name is None:
        return None
    path = Path(destination(str(name)))
    return Saved("safetensors", str(path.absolute()), path.stat().st_size, False)
