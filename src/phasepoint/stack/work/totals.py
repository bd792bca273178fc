"""Executions added up by group: time, flop, bytes, occupancy, and what follows from them.

Arithmetic intensity is flop over bytes of the executions that know both; throughput is flop over the time of those that
know their flop; a group is memory-bound where its intensity lies below peak flop/s over memory bytes/s.

Source: XSP (IPDPS 2020), section III-D: arithmetic intensity, arithmetic throughput, occupancy weighted by latency.

Points below a roof: what a group of executions reached, and what the device could reach at its intensity.

Source: Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model" (2009): at an intensity of
I flop/byte a device reaches at most min(peak flop/s, I × memory bytes/s).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.groups import number_groups, sum_by
from phasepoint.core.tables import Column
from phasepoint.core.units import PS_PER_S
from phasepoint.stack.shard.executions import Peaks, read_peaks
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.quantities import Quantity, source_texts
from phasepoint.stack.work.work import DeviceWork, read_work

_WHO = "who says so: counter, compiler or formula; null where unknown"


def _number(name: str, doc: str, unit: str) -> Column:
    return Column(name, pa.float64(), doc, unit, nullable=True)


QUANTITY_COLUMNS = (
    Column("flop", pa.int64(), "floating-point operations, as far as they are known", "flop", nullable=True),
    Column("flop_source", pa.string(), _WHO, nullable=True),
    Column("read_bytes", pa.int64(), "bytes read from memory, as far as they are known", "bytes", nullable=True),
    Column("write_bytes", pa.int64(), "bytes written to memory, as far as they are known", "bytes", nullable=True),
    Column("bytes", pa.int64(), "bytes read and written, as far as they are known", "bytes", nullable=True),
    Column("bytes_source", pa.string(), _WHO, nullable=True),
    _number("occupancy_ratio", "share of the warps that a processor can hold, weighted by time", "ratio"),
    Column("occupancy_source", pa.string(), _WHO, nullable=True),
    _number("flop_per_byte", "arithmetic intensity, of the executions whose flop and bytes are known", "flop/byte"),
    _number("flop_per_s", "arithmetic throughput, of the executions whose flop are known", "flop/s"),
    Column(
        "is_memory_bound",
        pa.bool_(),
        "whether the intensity lies below the device's peak flop/s over bytes/s",
        nullable=True,
    ),
)
KNOWN_COLUMN = Column(
    "flop_known_ratio", pa.float64(), "share of the time whose flop are known", "ratio", nullable=True
)


@dataclass(frozen=True, eq=False)
class WorkGroups:
    """Executions of a shard that are added up together.

    Attributes:
        work: the executions.
        peaks: of the devices.
        group: `[n]` group of each execution, from 0 in the order of their first ones.
        first: `[n_groups]` the first execution of each.
    """

    work: DeviceWork
    peaks: Peaks
    group: Int64s
    first: Int64s

    @cached_property
    def device(self) -> list[str]:
        """`[n_groups]` the device of each."""
        return [self.work.devices[code] for code in self.work.device[self.first].tolist()]

    @cached_property
    def time_ps(self) -> Int64s:
        """`[n_groups]` time of each."""
        return sum_by(self.group, len(self.first), self.work.time_ps)

    @property
    def count(self) -> Int64s:
        """`[n_groups]` executions of each."""
        return np.bincount(self.group, minlength=len(self.first))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of the work, and devices without known peaks."""
        return (*self.work.notes, *self.peaks.notes(self.work.used_devices))

    def quantities(self) -> dict[str, Any]:
        """`quantity_data` of the groups."""
        return quantity_data(self.work, self.group, self.device, self.peaks)

    def rooflines(self) -> tuple[dict[str, list[Any]], Int64s]:
        """`roofline_data` of the groups."""
        return roofline_data(self.work, self.group, self.device, self.peaks)


def group_work(shard: StackShard, *keys: str) -> WorkGroups:
    """The executions of a shard by device and other codes.

    Args:
        shard: the shard.
        keys: `device` first; `name`, `category`, `layer`.

    Raises:
        StoreError: the tables cannot be read.
    """
    work = shard.once(read_work)
    group, first = number_groups(*(getattr(work, key) for key in keys))
    return WorkGroups(work, shard.once(read_peaks), group, first)


def quantity_data(work: DeviceWork, group: Int64s, device: Sequence[str], peaks: Peaks) -> dict[str, Any]:
    """Values of `QUANTITY_COLUMNS` and `KNOWN_COLUMN` by name.

    Args:
        work: the executions.
        group: `[n]` group of each execution.
        device: `[n_groups]` device of each group.
        peaks: the devices' peaks.
    """
    n_groups, done = len(device), work.quantities
    flop, moved = done.flop, done.bytes
    flop_time_ps = sum_by(group, n_groups, np.where(flop.known, work.time_ps, 0))
    both = flop.known & moved.known
    flop_of_both = sum_by(group, n_groups, np.where(both, flop.value, 0))
    bytes_of_both = sum_by(group, n_groups, np.where(both, moved.value, 0))
    intensity = _ratio(flop_of_both, bytes_of_both)
    rate = _ratio(sum_by(group, n_groups, flop.value) * float(PS_PER_S), flop_time_ps)
    ridge = [_ridge(peaks, *pair) for pair in zip(device, element_types(work, group, n_groups), strict=True)]
    below = [None if i is None or r is None else i < r for i, r in zip(intensity, ridge, strict=True)]
    return {
        "flop": _sum_known(group, n_groups, flop),
        "flop_source": _sources(group, n_groups, flop),
        "read_bytes": _sum_known(group, n_groups, done.read_bytes),
        "write_bytes": _sum_known(group, n_groups, done.write_bytes),
        "bytes": _sum_known(group, n_groups, moved),
        "bytes_source": _sources(group, n_groups, moved),
        "occupancy_ratio": _weighted_occupancy(work, group, n_groups),
        "occupancy_source": _sources(group, n_groups, done.occupancy),
        "flop_per_byte": intensity,
        "flop_per_s": rate,
        "is_memory_bound": below,
        "flop_known_ratio": _ratio(flop_time_ps, sum_by(group, n_groups, work.time_ps)),
    }


def element_types(work: DeviceWork, group: Int64s, n_groups: int) -> list[str | None]:
    """`[n_groups]` the element type in which each group spends most of its time, None where none is known."""
    code, values = encode_column(pa.chunked_array([pa.array(work.quantities.element_type, pa.string())]))
    if not values or not n_groups:
        return [None] * n_groups
    known = code >= 0
    times = sum_by(np.where(known, group * len(values) + code, -1), n_groups * len(values), np.maximum(work.time_ps, 1))
    by_group = times.reshape(n_groups, len(values))
    best = by_group.argmax(axis=1).tolist()
    has_any = np.asarray(by_group.any(axis=1)).tolist()
    return [values[one] if has else None for one, has in zip(best, has_any, strict=True)]


def _ridge(peaks: Peaks, device: str, element_type: str | None) -> float | None:
    """The intensity below which memory is the limit: peak flop/s over bytes/s; None where one is not known."""
    flop_per_s, bytes_per_s = peaks.flop_per_s(device, element_type), peaks.bytes_per_s(device)
    return None if flop_per_s is None or bytes_per_s is None else flop_per_s / bytes_per_s


def _sum_known(group: Int64s, n_groups: int, quantity: Quantity) -> pa.Array:
    """`[n_groups]` sums of what is known, null where nothing is."""
    known = np.bincount(group[quantity.known], minlength=n_groups)
    return pa.array(sum_by(group, n_groups, quantity.value), mask=known == 0)


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> list[float | None]:
    return [a / b if b else None for a, b in zip(numerator.tolist(), denominator.tolist(), strict=True)]


def _sources(group: Int64s, n_groups: int, quantity: Quantity) -> list[str | None]:
    """`[n_groups]` who says it, of all executions of a group."""
    bits = np.zeros(n_groups, np.int64)
    np.bitwise_or.at(bits, group, quantity.source)
    return source_texts(bits)


def _weighted_occupancy(work: DeviceWork, group: Int64s, n_groups: int) -> list[float | None]:
    """`[n_groups]` the mean of the known occupancies, weighted by time."""
    occupancy = work.quantities.occupancy
    weight = np.where(occupancy.known, work.time_ps, 0).astype(np.float64)
    return _ratio(np.bincount(group, weight * occupancy.value, n_groups), np.bincount(group, weight, n_groups))


_KEPT = ("flop", "flop_source", "bytes", "bytes_source", "flop_per_byte", "flop_per_s", "is_memory_bound")


ROOFLINE_COLUMNS = (
    Column("flop", pa.int64(), "floating-point operations", "flop"),
    Column("flop_source", pa.string(), "who says so: counter, compiler or formula"),
    Column("bytes", pa.int64(), "bytes read and written", "bytes"),
    Column("bytes_source", pa.string(), "who says so: counter, compiler or formula"),
    Column("flop_per_byte", pa.float64(), "arithmetic intensity", "flop/byte"),
    Column("flop_per_s", pa.float64(), "arithmetic throughput", "flop/s"),
    Column("element_type", pa.string(), "type of the operands that most of the time goes to", nullable=True),
    _number("peak_flop_per_s", "dense peak of the device for that type; null where not known", "flop/s"),
    _number("peak_bytes_per_s", "bandwidth of the device's memory; null where not known", "bytes/s"),
    _number("roof_ratio", "throughput over the least of the peak and intensity times bandwidth", "ratio"),
    Column("is_memory_bound", pa.bool_(), "whether the bandwidth is the lower roof at this intensity", nullable=True),
)


def roofline_data(
    work: DeviceWork, group: Int64s, device: Sequence[str], peaks: Peaks
) -> tuple[dict[str, list[Any]], Int64s]:
    """Values of `ROOFLINE_COLUMNS` by name, and which groups they are of: those whose point is known `[n_points]`."""
    data = quantity_data(work, group, device, peaks)
    types = element_types(work, group, len(device))
    rates, intensities = data["flop_per_s"], data["flop_per_byte"]
    shown = [i for i in range(len(device)) if rates[i] and intensities[i]]
    listed = {name: data[name].to_pylist() if isinstance(data[name], pa.Array) else data[name] for name in _KEPT}
    rows = {name: [values[i] for i in shown] for name, values in listed.items()}
    peak_flop = [peaks.flop_per_s(device[i], types[i]) for i in shown]
    peak_bytes = [peaks.bytes_per_s(device[i]) for i in shown]
    rows["element_type"] = [types[i] for i in shown]
    rows["peak_flop_per_s"], rows["peak_bytes_per_s"] = peak_flop, peak_bytes
    rows["roof_ratio"] = [
        None if flop is None or size is None else rates[i] / min(flop, intensities[i] * size)
        for i, flop, size in zip(shown, peak_flop, peak_bytes, strict=True)
    ]
    return rows, np.array(shown, np.int64)
