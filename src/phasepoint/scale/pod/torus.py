"""How long collectives take on a torus of chips, in closed form.

A ring of n chips sends both ways at once, so every byte passes a chip once: gathering V bytes takes
V · (n - 1) / n / W, where W is what a chip sends along the axis in both directions. Along several axes a collective
is split, and each axis carries a part. An axis whose ends are not joined has one way for every byte: W / 2. Each hop
takes a microsecond, which is what small collectives on many chips cost.

Source: "How to Scale Your Model", 2025, chapter 3 (https://jax-ml.github.io/scaling-book/sharding).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from phasepoint.core.errors import UsageError
from phasepoint.devices.specs import device_spec
from phasepoint.learn.predict.tpu.topology import Topology

HOP_S = 1e-6
"""Of one hop between neighbours (the same source)."""

IN_A_RING = 4
"""Chips along an axis from which on its ends are joined in v4 and v5p: slices are made of cubes of 4 × 4 × 4
("TPU v4", Jouppi et al., 2023, section 2.2). On two axes only an axis as long as the pod's is joined."""


@dataclass(frozen=True)
class Axis:
    """One axis of a torus.

    Attributes:
        size: chips along it.
        is_ring: whether its ends are joined.
        bytes_per_s: that a chip sends along it, both ways together.
    """

    size: int
    is_ring: bool
    bytes_per_s: float

    @property
    def rate(self) -> float:
        """Bytes per second that a collective moves along it."""
        return self.bytes_per_s if self.is_ring else self.bytes_per_s / 2

    @property
    def hops(self) -> int:
        """From a chip to the one that is farthest."""
        return self.size // 2 if self.is_ring else self.size - 1


def axes_of(topology: Topology) -> tuple[Axis, ...]:
    """The axes of a slice with more than one chip along them.

    Raises:
        UsageError: the links of this generation are not known.

    Example:
        >>> from phasepoint.learn.predict.tpu.topology import parse_topology
        >>> [(axis.size, axis.is_ring, axis.hops) for axis in axes_of(parse_topology("tpu-v3:32x16"))]
        [(32, True, 16), (16, False, 15)]
    """
    generation = topology.generation
    spec = device_spec(generation.device)
    ici = None if spec is None else spec.link_bytes_per_s.get("ici")
    if spec is None or ici is None:
        raise UsageError(f"the links of {generation.device} are not known; see `phasepoint devices`")
    sent = ici.value * spec.devices_per_chip / 2 / generation.axes
    joined = generation.most if generation.axes == 2 else IN_A_RING
    return tuple(
        Axis(size, size % joined == 0 if generation.axes > 2 else size == joined, sent)
        for size in topology.shape
        if size > 1
    )


def axes_of_group(axes: Sequence[Axis], chips: int) -> tuple[Axis, ...]:
    """The part of a torus that a group of neighbouring chips is: as square as its axes allow, with open ends.

    Args:
        axes: of the slice.
        chips: of the group; as many as the slice has, or more: the slice itself.

    Example:
        >>> pod = [Axis(32, True, 7e10), Axis(32, True, 7e10)]
        >>> [(axis.size, axis.is_ring) for axis in axes_of_group(pod, 8)]
        [(2, False), (4, False)]
    """
    if chips >= math.prod(axis.size for axis in axes):
        return tuple(axes)
    left, found = chips, []
    for number, axis in enumerate(axes):
        side = round(left ** (1 / (len(axes) - number)))
        size = max((one for one in range(1, min(side, axis.size) + 1) if left % one == 0), default=1)
        if number == len(axes) - 1:
            size = min(left, axis.size)
        left = -(-left // size)
        if size > 1:
            found.append(replace(axis, size=size, is_ring=axis.is_ring and size == axis.size))
    return tuple(found)


def gather_s(volume: float, axes: Sequence[Axis]) -> float:
    """Seconds of an all-gather, or a reduce-scatter.

    Args:
        volume: bytes that every chip has in the end (of a reduce-scatter: at the beginning).
        axes: along which it goes.
    """
    chips = math.prod(axis.size for axis in axes)
    if chips < 2:
        return 0.0
    moved = volume * (chips - 1) / chips
    return moved / sum(axis.rate for axis in axes) + HOP_S * sum(axis.hops for axis in axes)


def reduce_s(volume: float, axes: Sequence[Axis]) -> float:
    """Seconds of an all-reduce: a reduce-scatter and an all-gather."""
    return 2 * gather_s(volume, axes)


def exchange_s(volume: float, axes: Sequence[Axis]) -> float:
    """Seconds of an all-to-all: on a ring a quarter of a gathering's bytes pass each link.

    Args:
        volume: bytes that a chip has, times the chips: what a gathering would give.
        axes: along which it goes.
    """
    chips = math.prod(axis.size for axis in axes)
    if chips < 2:
        return 0.0
    return volume / 4 / sum(axis.rate for axis in axes) + HOP_S * sum(axis.hops for axis in axes)


def shift_s(volume: float, axes: Sequence[Axis]) -> float:
    """Seconds of a collective-permute between neighbours: one hop along one axis, one way."""
    return volume / (max(axis.bytes_per_s for axis in axes) / 2) + HOP_S if axes else 0.0


COLLECTIVE_S: Mapping[str, Callable[[float, Sequence[Axis]], float]] = MappingProxyType(
    {
        "all-reduce": reduce_s,
        "all-gather": gather_s,
        "reduce-scatter": gather_s,
        "all-to-all": exchange_s,
        "collective-permute": shift_s,
    }
)
"""Seconds of a collective by its opcode, from its bytes (the larger of what goes in and what comes out)."""
