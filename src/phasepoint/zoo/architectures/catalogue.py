"""All architectures by name, and the shorter list of a quick look."""

from functools import partial
from importlib import import_module
from typing import Any

from phasepoint.zoo.architectures.architecture import Architecture, Inputs, floats, integers, seeded

LIBRARIES = ("torchvision", "timm", "transformers")
"""Modules of this folder whose `architectures` gives a library's."""


def _both(*parts: Inputs) -> Inputs:
    """Several arguments by place."""

    def make(batch: int) -> tuple[Any, ...]:
        made = [part(batch) for part in parts]
        return tuple(value[0] if isinstance(value, tuple) else value for value in made)

    return make


_WRITTEN: dict[str, tuple[str, Inputs]] = {
    "gnmt": ("translation", _both(integers(25, 32_000), integers(25, 32_000))),
    "lstm-language-model": ("language", _both(integers(35, 10_000))),
    "deepspeech2": ("speech", floats(1, 161, 200)),
    "wavenet": ("speech", floats(1, 8_000)),
    "qanet": ("language", _both(integers(400, 30_000), integers(50, 30_000))),
    "dlrm": ("recommendation", _both(floats(13), integers(26, 20_000))),
    "ncf": ("recommendation", _both(integers(1, 6_040), integers(1, 3_706))),
    "pointnet": ("point cloud", floats(3, 1024)),
    "dcgan": ("generation", floats(100, 1, 1)),
    "edsr": ("super-resolution", floats(3, 96, 96)),
    "fsrcnn": ("super-resolution", floats(1, 120, 120)),
    "unet": ("segmentation", floats(3, 256, 256)),
    "ddpm-unet": ("diffusion", _both(floats(3, 32, 32), floats(1))),
    "gcn": ("graph", floats(2_708, 1_433)),
}

QUICK = (
    *("alexnet", "resnet18", "resnet50", "densenet121", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small"),
    *("shufflenet_v2_x1_0", "efficientnet_b0", "regnet_y_800mf", "convnext_tiny", "vit_b_16", "swin_t"),
    *("lraspp_mobilenet_v3_large", "ssdlite320_mobilenet_v3_large", "gnmt", "lstm-language-model", "dlrm", "dcgan"),
    *("fsrcnn", "ddpm-unet", "pointnet"),
)
"""Of every task, none that takes long: what torchvision and we define."""


def all_architectures() -> dict[str, Architecture]:
    """By name, in the order of libraries and tasks; nothing is imported before one is built.

    Example:
        >>> all_architectures()["resnet50"].task
        'classification'
    """
    rows = [
        row for library in LIBRARIES for row in import_module(f"phasepoint.zoo.architectures.{library}").architectures()
    ]
    rows += [
        Architecture(name, task, "phasepoint", seeded(partial(_build_written, name)), inputs, batches=name != "gcn")
        for name, (task, inputs) in _WRITTEN.items()
    ]
    return {row.name: row for row in rows}


def _build_written(name: str) -> Any:
    module = import_module("phasepoint.zoo.architectures.written")
    return module.WRITTEN[name]()
