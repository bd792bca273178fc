"""Networks of torchvision, with its published numbers of parameters and multiply-accumulates."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from phasepoint.zoo.architectures.architecture import SEED, Architecture, Published, floats, seeded
from phasepoint.zoo.architectures.missing_operators import import_torchvision

CLASSIFICATION = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "googlenet"),
    *("inception_v3", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "mnasnet1_0"),
    *("shufflenet_v2_x1_0", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_800mf", "convnext_tiny", "vit_b_16"),
    *("swin_t", "swin_v2_t", "maxvit_t"),
)
SEGMENTATION = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
DETECTION = (
    *("fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn"),
    *("fcos_resnet50_fpn", "ssd300_vgg16", "ssdlite320_mobilenet_v3_large", "maskrcnn_resnet50_fpn"),
)
VIDEO = ("r3d_18", "r2plus1d_18")
CLIP = (3, 16, 112, 112)
"""Channels, frames and pixels for which torchvision's numbers of the two are given (its reference for Kinetics)."""
SEGMENTED_SIDE = 520  # as torchvision's published numbers
DETECTED_SIDE = 480
"""A choice: pictures as cameras give them; each detector scales them to its own size."""
FLOW = (3, 520, 960)  # as torchvision's published numbers of RAFT

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"init_weights": False},
    "fcn_resnet50": {"aux_loss": True, "weights_backbone": None},
    "deeplabv3_mobilenet_v3_large": {"aux_loss": True, "weights_backbone": None},
    "lraspp_mobilenet_v3_large": {"weights_backbone": None},
}


def architectures() -> list[Architecture]:
    """All of them; nothing is imported before one is built."""
    rows = [_architecture(name, "classification", partial(_picture, name)) for name in CLASSIFICATION]
    rows += [_architecture(name, "segmentation", floats(3, SEGMENTED_SIDE, SEGMENTED_SIDE)) for name in SEGMENTATION]
    rows += [_architecture(name, "video", floats(*CLIP)) for name in VIDEO]
    flow = partial(_published, "raft_small", counts_macs=False)  # its number is of fewer refinements than it makes
    rows.append(
        Architecture(
            "raft_small", "optical flow", "torchvision", seeded(partial(_build, "raft_small")), _two_pictures, flow
        )
    )
    for name in DETECTION:
        build = seeded(partial(_build_detector, name))
        published = partial(_published, name, counts_macs=False)
        rows.append(Architecture(name, "detection", "torchvision", build, _pictures_alone, published))
    return rows


def _architecture(name: str, task: str, inputs: Any) -> Architecture:
    return Architecture(
        name, task, "torchvision", seeded(partial(_build, name)), inputs, partial(_published, name, counts_macs=True)
    )


def _build(name: str) -> Any:
    return import_torchvision().models.get_model(name, weights=None, **_OPTIONS.get(name, {}))


def _build_detector(name: str) -> Any:
    """With the normalisation of the backbone frozen, as in the detectors that torchvision publishes."""
    from torch import nn

    models = import_torchvision().models
    from torchvision.ops import FrozenBatchNorm2d

    def freeze(module: Any) -> None:
        for child_name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, child_name, FrozenBatchNorm2d(child.num_features, child.eps))
            else:
                freeze(child)

    model = models.get_model(name, weights=None, weights_backbone=None)
    if "resnet50" in name or "rcnn" in name:
        freeze(model.backbone)
    return model


def _published(name: str, *, counts_macs: bool) -> Published:
    meta = import_torchvision().models.get_model_weights(name).DEFAULT.meta
    return Published(meta["num_params"], 1e9 * meta["_ops"] if counts_macs else None)


def _picture(name: str, batch: int) -> Any:
    """At the size for which the numbers are published."""
    size = import_torchvision().models.get_model_weights(name).DEFAULT.transforms.keywords["crop_size"]
    side = size if isinstance(size, int) else size[0]
    return floats(3, side, side)(batch)


def _two_pictures(batch: int) -> tuple[Any, ...]:
    first = next(iter(floats(*FLOW)(batch)))
    return first, first.roll(4, dims=-1)


def _pictures_alone(batch: int) -> tuple[Any, ...]:
    """A detector takes a list of pictures, each with values in `[0, 1]`."""
    import torch

    chance = torch.Generator().manual_seed(SEED)
    return ([torch.rand(3, DETECTED_SIDE, DETECTED_SIDE, generator=chance) for _ in range(batch)],)
