"""torchvision, also where it was built for another PyTorch than the one that is there.

Its own operators are missing then, and it refuses to be imported for the sake of one of them: with it timm, which
imports it. Networks that use none of them are as they are anywhere; those that do (detectors) fail when they run, and
say so.

Its own file: what two libraries need before they can be imported.
"""

import sys
from importlib import import_module
from typing import Any

_DECLARED: list[Any] = []
"""Operators that were declared in torchvision's place: they go with the object that holds them."""


def import_torchvision() -> Any:
    """The module, with `models` and `ops`.

    Raises:
        ImportError: it is not installed.
    """
    import torch

    try:
        return _import()
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):  # what torchvision's import asks for, up to 0.29
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DECLARED.append(library)
    return _import()


def _import() -> Any:
    import_module("torchvision.models")
    return import_module("torchvision")
