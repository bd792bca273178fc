"""Networks of timm: designs that torchvision lacks.

Its own file: a library, beside the others.
"""

from functools import partial
from importlib import import_module
from typing import Any

from phasepoint.zoo.architectures.architecture import Architecture, floats, seeded
from phasepoint.zoo.architectures.missing_operators import import_torchvision

NAMES = (
    *("mixer_b16_224", "resmlp_12_224", "gmlp_s16_224", "convmixer_768_32", "poolformer_s12"),  # no attention
    *("ghostnet_100", "mobilenetv4_conv_small", "lcnet_100", "tinynet_a", "rexnet_100", "hardcorenas_a"),  # for phones
    *("mobileone_s1", "repvgg_a2", "fastvit_t8", "efficientformer_l1"),  # branches that are merged to infer
    *("mobilevit_s", "levit_128s", "edgenext_small", "visformer_small", "coat_tiny"),  # both
    *("deit_tiny_patch16_224", "beit_base_patch16_224", "cait_xxs24_224", "crossvit_tiny_240", "pit_s_224"),
    *("dla34", "hrnet_w18", "res2net50_26w_4s", "resnest50d", "skresnet18", "xception41", "nf_resnet50"),
)


def architectures() -> list[Architecture]:
    """All of them; nothing is imported before one is built."""
    return [
        Architecture(name, "classification", "timm", seeded(partial(_build, name)), partial(_picture, name))
        for name in NAMES
    ]


def _timm() -> Any:
    """The module, which imports torchvision."""
    import_torchvision()
    return import_module("timm")


def _build(name: str) -> Any:
    return _timm().create_model(name, pretrained=False)


def _picture(name: str, batch: int) -> Any:
    """At the size that the network was published for."""
    return floats(*_timm().get_pretrained_cfg(name).input_size)(batch)
