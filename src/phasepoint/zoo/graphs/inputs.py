"""What a graph takes, and arrays for it. NumPy alone.

Its own file: it also goes into a packed benchmark, which runs where nothing is installed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.zoo.architectures.architecture import SEED

MOST_INTEGER = 8
"""Integers are drawn below it: fewer than any vocabulary has words."""


@dataclass(frozen=True)
class GraphInput:
    """One input.

    Attributes:
        name: as the graph calls it.
        shape: of one sample, open dimensions filled in.
        dtype: NumPy's name of its type.
        has_batch: whether its first dimension is open.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    has_batch: bool


def make_graph_inputs(inputs: Sequence[GraphInput], batch: int) -> dict[str, Any]:
    """Arrays for a graph.

    Args:
        inputs: that it takes.
        batch: samples; inputs with a fixed first dimension stay as they are.
    """
    chance = np.random.default_rng(SEED)
    made = {}
    for one in inputs:
        shape = (batch, *one.shape[1:]) if one.has_batch else one.shape
        dtype = np.dtype(one.dtype)
        if dtype.kind == "f":
            made[one.name] = chance.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            made[one.name] = np.zeros(shape, dtype)
        else:
            value = chance.integers(0, MOST_INTEGER, shape) if shape else np.int64(_SAMPLING_RATE)
            made[one.name] = np.asarray(value, dtype)
    return made


_SAMPLING_RATE = 16_000
"""What a single integer is, in the graphs that packages ship: silero-vad's rate."""
