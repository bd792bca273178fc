"""What the model of operators sees: physical times of an operator on a device, and numbers of its shape alone.

A network that saw devices would remember five of them. So it sees shapes, and ratios that mean the same on each device
(tiles per multiprocessor); the device enters through physical times: products at the lanes' rate in whole waves of
tiles, steps of a tile's loop at their latency, compulsory bytes at the bandwidth, and energy at the board's power.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.learn.operators.work import PRODUCTS, OperatorWork

if TYPE_CHECKING:
    from phasepoint.devices import DeviceSpec

TILES = ((128, 128), (128, 64), (64, 64), (32, 32))
"""Tiles of a product of which libraries take one; the network weighs them. Source: kernel names in `gpu_ops`."""
_STEP = 8  # elements of k that a tile's loop takes at a time: sgemm kernels of cuBLAS
_STEP_CYCLES, _TILE_CYCLES = 60.0, 1500.0  # scales of a step's latency and of a tile's start and end; both are learned
_JOULE_PER_FLOP_NM, _JOULE_PER_BYTE = 1.05e-12, 6e-11
"""Energy of a product per nm of the process, and of a byte of memory; learned around these values. Source: T4 and P4
go on at 3 Tflop/s however large the product, and V100 nearly at its peak, measurements of `gpu_ops`."""
_POWER_SHARE, _IDLE_W = 0.9, 10.0
"""What a board's limit leaves to the chip's work: a share, less what it takes at rest. Source: as above."""
_LEAST_SHARE = 0.5  # of small boards; assumed
_MANY_ROWS, _LARGE_BYTES = 14e3, 35e6  # where half of `_read_again` is read again; read off P100 and P4
_VARIANT_NM = {12.0: 16.0}
"""Processes named after a density that are a variant of a larger one: the same energy (P4 and T4)."""
_NO_POWER_W = 1e6  # a board whose power is not published is taken to have enough
_TINY_S = 1e-12
"""In place of 0, which has no logarithm: far below any kernel."""
_LANES = 64.0
"""Multiprocessors are counted in units of so many lanes: one of 128 does as much as two (P4, left out: error of
convolutions 58 % as counted by the maker, 28 % so)."""
GENERATIONS, WITH_GENERATION = 2, ("bmm", "linear")
"""Numbers of a generation, the last of a shape's, and classes that have them. Convolutions did worse with them."""


@dataclass(frozen=True)
class Traits:
    """What the model takes of a device, in SI units."""

    name: str
    vendor: str
    multiprocessors: float
    lanes: float
    clock_hz: float
    bytes_per_s: float
    flop_per_s: float
    cache_bytes: float
    power_w: float
    process_nm: float
    generation: tuple[float, float]


@dataclass(frozen=True)
class Features:
    """Shape [n, …] each.

    Attributes:
        shape: float32 [n, inputs], of the shape and scale-free.
        terms: float32 [n, terms], natural logarithms of physical times, seconds.
        bound_s: float64 [n], the physical bound.
    """

    shape: npt.NDArray[np.float32]
    terms: npt.NDArray[np.float32]
    bound_s: Floats


def traits_of_device(spec: "DeviceSpec", dtype: str = "f32") -> Traits:
    """Traits of a device for one element type.

    Raises:
        ModelError: the table holds no chip, or no peak for the type.
    """
    if spec.chip is None:
        raise ModelError(
            f"{spec.name}: multiprocessors, clock and cache are not known, so operators cannot be predicted"
        )
    if dtype not in spec.flop_per_s:
        raise ModelError(f"{spec.name}: no peak is known for {dtype}; known are {', '.join(spec.flop_per_s)}")
    chip = spec.chip
    return Traits(
        spec.name,
        spec.vendor,
        chip.multiprocessors.value * chip.f32_lanes.value / _LANES,
        chip.f32_lanes.value,
        chip.clock_hz.value,
        spec.memory_bytes_per_s.value,
        spec.flop_per_s[dtype].value,
        chip.cache_bytes.value,
        _NO_POWER_W if chip.power_w is None else chip.power_w.value,
        chip.process_nm.value,
        _generation(spec),
    )


def _generation(spec: "DeviceSpec") -> tuple[float, float]:
    """Whose kernels a library takes: Maxwell's (0, 0), Volta's (1, 0), Ampere's and later ones' (1, 1)."""
    number = re.fullmatch(r"sm_(\d+)", spec.architecture or "")
    if number is None:
        return (1.0, 1.0)  # other makers' are of Ampere's time and later
    return (float(int(number[1]) >= 70), float(int(number[1]) >= 80))


def bound_of_work(work: OperatorWork, device: Traits) -> Floats:
    """The time that physics asks for at least: flop at the peak, compulsory bytes at the memory's bandwidth, seconds.

    Inputs are taken to lie in memory, not in a cache, as in a measurement of one operator alone.
    """
    return np.maximum(work.least_flop / device.flop_per_s, work.bytes / device.bytes_per_s)


def features_of_work(kind: str, work: OperatorWork, device: Traits) -> Features:
    """Features of operators of one class on one device."""
    make = _product_features if kind in PRODUCTS else _row_features
    shape, terms = make(work, device)
    if kind in WITH_GENERATION:
        shape = [*shape, *(np.full(len(work.m), step) for step in device.generation)]
    return Features(
        np.stack(shape, 1).astype(np.float32),
        np.log(np.maximum(np.stack(terms, 1), _TINY_S)).astype(np.float32),
        bound_of_work(work, device),
    )


def _row_features(work: OperatorWork, device: Traits) -> tuple[list[Floats], list[Floats]]:
    rows, length = work.batch, work.m
    terms = [
        work.bytes / device.bytes_per_s,
        work.flop / device.flop_per_s,
        rows / device.multiprocessors * 100.0 / device.clock_hz,
    ]
    doublings = np.log2(length)
    shape = [
        doublings / 4 - 2,
        np.ceil(doublings) - doublings,
        (length > 1024).astype(float),  # softmax and layer norm go over from a warp to a block per row
        (length % 4 == 0).astype(float),
        np.log2(np.maximum(work.flop, 1.0) / np.maximum(work.bytes, 1.0)) / 3,
        np.log2(np.maximum(work.read_bytes, 1.0) / np.maximum(work.write_bytes, 1.0)),
        np.log10(np.maximum(work.bytes, 1.0)) / 2 - 3.5,
    ]
    return shape, terms


def _product_features(work: OperatorWork, device: Traits) -> tuple[list[Floats], list[Floats]]:
    m, n, k = work.m, work.n, work.k
    per_flop_s = device.multiprocessors / device.flop_per_s  # of one multiprocessor
    steps = np.ceil(k / _STEP)
    compute, store, latency, over, energy = [], [], [], [], []
    for rows, columns in TILES:  # libraries count columns first: their rows are our n
        tiles = work.batch * np.ceil(n / rows) * np.ceil(m / columns)
        each = np.ceil(tiles / device.multiprocessors)
        area = float(rows * columns)
        at_once = max(2.0, min(8.0, 2 * 128 * 128 / area))
        waves = np.ceil(each / at_once)
        compute.append(each * area * 2 * k * per_flop_s)
        store.append(each * area / device.clock_hz)
        latency.append(waves * steps * _STEP_CYCLES / device.clock_hz)
        over.append(waves * _TILE_CYCLES / device.clock_hz)
        energy.append(_energy_s(2 * tiles * area * k, work.bytes, device))
    moved = (work.bytes, _panel_bytes(work, device), *_read_again(work, device))
    memory = [amount / device.bytes_per_s for amount in moved]
    return _product_shape(work, device), [*compute, *store, *latency, *over, *energy, *memory]


def _product_shape(work: OperatorWork, device: Traits) -> list[Floats]:
    m, n, k = work.m, work.n, work.k

    def fill(size: Floats, tile: int) -> Floats:
        return np.asarray(size / (np.ceil(size / tile) * tile))

    tiles = work.batch * np.ceil(n / 64) * np.ceil(m / 64)
    return [
        np.log2(m) / 4 - 2,
        np.log2(n) / 4 - 2,
        np.log2(k) / 4 - 2,
        *(fill(n, 128), fill(m, 128), fill(n, 32), fill(m, 32), fill(n, 64), fill(m, 64)),
        np.minimum(n, 128) / 128,
        np.minimum(m, 128) / 128,
        8 / (k + 8),
        (n % 4 == 0).astype(float),
        (k % 4 == 0).astype(float),
        (n % 2 == 0).astype(float),
        np.clip(np.log2(tiles / device.multiprocessors), -6, 8) / 4,
        np.log2(work.flop / work.least_flop),
        (work.kernel_size == 1).astype(float),
        (work.stride > 1).astype(float),
    ]


def _panel_bytes(work: OperatorWork, device: Traits) -> Floats:
    """What waves of tiles of 64 × 64 read beyond the compulsory bytes where the inputs do not stay in the cache."""
    rows, columns = np.ceil(work.n / 64), np.ceil(work.m / 64)
    at_once = np.minimum(work.batch * rows * columns, 6 * device.multiprocessors)
    high = np.minimum(rows, at_once)
    wide = np.minimum(columns, np.ceil(at_once / high))
    waves = work.batch * rows * columns / np.minimum(at_once, work.batch * rows * columns)
    read = 4 * waves * (high + wide) * 64 * work.k
    share = np.clip(1 - device.cache_bytes / work.bytes, 0, 1)
    return np.asarray(np.maximum(read - work.read_bytes, 0) * share)


def _read_again(work: OperatorWork, device: Traits) -> tuple[Floats, Floats]:
    """What GPUs before Volta read again of weights: of many rows, a little of each at a time; and of large ones.

    Source: P100 and P4 in `gpu_ops` fall from 16 thousand rows on, both by the same multiple of these bytes. P4 (128
    lanes, GDDR5) falls with the size of the weights, too. Later GPUs do neither.
    """
    old = device.vendor == "NVIDIA" and device.generation == (0.0, 0.0)
    read = 4 * work.batch * work.n * work.k * np.ceil(work.m / 64) * old
    rows, size = (work.n / _MANY_ROWS) ** 2, (4 * work.n * work.k / _LARGE_BYTES) ** 2
    return read * rows / (1 + rows), read * size / (1 + size) * (device.lanes > _LANES)


def _energy_s(flop: Floats, moved: Floats, device: Traits) -> Floats:
    """Seconds that the board's power lasts for: whole tiles take energy, filled or not."""
    per_flop = _JOULE_PER_FLOP_NM * _VARIANT_NM.get(device.process_nm, device.process_nm)
    power_w = max(_POWER_SHARE * device.power_w - _IDLE_W, _LEAST_SHARE * device.power_w)
    return np.asarray((per_flop * flop + _JOULE_PER_BYTE * moved) / power_w)
