"""Slices of TPUs: their names, what they are made of, and how fast a core's clock runs."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phasepoint.core.errors import UsageError


@dataclass(frozen=True)
class Generation:
    """What the compiler's slices of a generation are made of.

    Attributes:
        name: as the compiler calls it.
        device: as `phasepoint devices` calls it.
        axes: of its torus.
        clock_hz: of a core.
        cycle_ratio: time over cycles / clock: how far the compiler's cycles are off, measured; 1 where nothing was.
        error: of a program's time by cycles, as a ratio: nine of ten lie within it.
        config: how the compiler sees a chip: "megacore" where two cores are one device.
        most: chips along an axis of the largest pod.
        source: of the clock.
    """

    name: str
    device: str
    axes: int
    clock_hz: float
    cycle_ratio: float
    error: float
    config: str
    most: int
    source: str


_PAPER = "Jouppi et al., TPU v4: An Optically Reconfigurable Supercomputer, 2023, table 4"
_NORRIE = "Norrie et al., The Design Process for Google's Training Chips: TPUv2 and TPUv3, 2021, table 1"
_PEAK = "published peak over two flop in each of four 128 × 128 (from v6e on 256 × 256) matrix units a core"

GENERATIONS: Mapping[str, Generation] = MappingProxyType(
    {
        row.name: row
        for row in (
            Generation("v2", "TPU v2", 2, 700e6, 1.0, 1.4, "default", 16, _NORRIE),
            Generation("v3", "TPU v3", 2, 940e6, 1.0, 1.4, "default", 32, _NORRIE),
            Generation("v4", "TPU v4", 3, 1050e6, 1.0, 1.4, "megacore", 16, _PAPER),
            Generation("v5e", "TPU v5e", 2, 1500e6, 1.0, 1.4, "default", 16, _PEAK),
            Generation("v5p", "TPU v5p", 3, 1750e6, 1.0, 1.4, "default", 28, _PEAK),
            Generation("v6e", "TPU v6e", 2, 1750e6, 0.909, 1.2, "default", 16, _PEAK),
            Generation("tpu7x", "TPU7x", 3, 2200e6, 1.0, 1.4, "default", 24, _PEAK),
        )
    }
)
"""v6e: 84 products measured on one chip (`tpu_gemm`) fit 125 µs for a call and 0.909 of the cycles at 1.75 GHz, off by
4.8 % in the mean and 16 % at worst. Others were not measured: a factor of 1.4 either way is an assumption."""

_NAME = re.compile(r"(?:tpu-?)?(v2|v3|v4|v5e|v5p|v5|v6e|v7x|7x)(?::([0-9]+(?:x[0-9]+)*))?", re.IGNORECASE)


@dataclass(frozen=True)
class Topology:
    """A slice: chips of one generation along the axes of a torus.

    Attributes:
        generation: of its chips.
        shape: chips along each axis.
    """

    generation: Generation
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        """In all."""
        return math.prod(self.shape)

    @property
    def name(self) -> str:
        """As the compiler takes it: `v3:32x32`."""
        return f"{self.generation.name}:{'x'.join(map(str, self.shape))}"


def parse_topology(text: str) -> Topology:
    """A slice by its name: `tpu-v3:32x32`, `v5p:4x4x8`, `tpu7x:2x2x1`; without a shape one chip.

    Raises:
        UsageError: no such generation, or a shape that its torus cannot have.

    Example:
        >>> parse_topology("tpu-v3:32x32").chips
        1024
    """
    match = _NAME.fullmatch(text.strip())
    if match is None:
        known = ", ".join(f"tpu-{name.removeprefix('tpu')}" for name in GENERATIONS)
        raise UsageError(f"{text!r} is no slice of TPUs; expected a generation and chips along each axis, as in "
                         f"tpu-v3:32x32; there are {known}")  # fmt: skip
    short = match[1].lower()
    generation = GENERATIONS[{"v5": "v5p", "v7x": "tpu7x", "7x": "tpu7x"}.get(short, short)]
    if match[2] is None:
        return Topology(generation, (1,) * generation.axes)
    shape = tuple(map(int, match[2].split("x")))
    if len(shape) != generation.axes or not all(1 <= size <= generation.most for size in shape):
        example = "x".join(["4"] * generation.axes)
        raise UsageError(
            f"{text}: the torus of {generation.device} has {generation.axes} axes of 1 to {generation.most} chips; "
            f"expected something like tpu-{generation.name.removeprefix('tpu')}:{example}"
        )
    return Topology(generation, shape)


def generation_of_device(device: str) -> Generation | None:
    """The generation of a device of `phasepoint devices`; None where the compiler has none."""
    return next((row for row in GENERATIONS.values() if row.device == device), None)


def topology_of_device(device: str) -> Topology:
    """One chip of a device.

    Raises:
        UsageError: the compiler does not know it.
    """
    generation = generation_of_device(device)
    if generation is None:
        raise UsageError(
            f"the TPU compiler has no {device!r}; it has {', '.join(r.device for r in GENERATIONS.values())}"
        )
    return Topology(generation, (1,) * generation.axes)
