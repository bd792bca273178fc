"""Techniques that can be left out of a step without another result: what `phasepoint scale what-if` compares with.

Its own file: all techniques ask it.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType

from phasepoint.learn.predict.tpu.compile import LEFT_OUT

CAN_BE_LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "weight-update-sharding": "every replica updates all of the weights",
        "two-level-all-reduce": "each gradient is added up by itself, over all devices at once",
        "space-to-depth": "the first convolution has the image's channels",
        "lstm-projection": "the input projection is inside the loop",
    }
)
"""By name: what the step does without it."""


def is_used(name: str) -> bool:
    """Whether a technique is used: `PHASEPOINT_WITHOUT` does not name it.

    Example:
        >>> is_used("space-to-depth")
        True
    """
    assert name in CAN_BE_LEFT_OUT
    return name not in os.environ.get(LEFT_OUT, "").split(",")
