"""Executions added up by group: time, flop, bytes, occupancy, and what follows from them.

Arithmetic intensity is flop over bytes of the executions that know both; throughput is flop over the time of those that
know their flop; a group is memory-bound where its intensity lies below peak flop/s over memory bytes/s.

Source: XSP (IPDPS 2020), section III-D: arithmetic intensity, arithmetic throughput, occupancy weighted by latency.

Points below a roof: what a group of executions reached, and what the device could reach at its intensity.

Source: Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model" (2009): at an intensity of
I flop/byte a device reaches at most min(peak flop/s, I × memory bytes/s).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.groups import sum_by
from phasepoint.core.tables import Column
from phasepoint.core.units import PS_PER_S
from phasepoint.stack.shard.executions import Peaks
from phasepoint.stack.work.quantities import source_texts
from phasepoint.stack.work.work import Work

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


def quantity_data(work: Work, group: Int64s, device: Sequence[str], peaks: Peaks) -> dict[str, Any]:
    """Values of `QUANTITY_COLUMNS` and `KNOWN_COLUMN` by name.

    Args:
        work: the executions.
        group: `[n]` group of each execution.
        device: `[n_groups]` device of each group.
        peaks: the devices' peaks.
    """
    n_groups, found = len(device), work.quantities
    time_ps = sum_by(group, n_groups, work.time_ps)
    flop_time_ps = sum_by(group, n_groups, np.where(found.flop_known, work.time_ps, 0))
    both = found.flop_known & found.bytes_known
    flop_of_both = sum_by(group, n_groups, np.where(both, found.flop, 0))
    bytes_of_both = sum_by(group, n_groups, np.where(both, found.bytes, 0))
    intensity = _ratio(flop_of_both, bytes_of_both)
    flop = _sum_known(group, n_groups, found.flop, found.flop_known)
    rate = _ratio(sum_by(group, n_groups, np.where(found.flop_known, found.flop, 0)) * float(PS_PER_S), flop_time_ps)
    ridge = [_ridge(peaks, *pair) for pair in zip(device, element_types(work, group, n_groups), strict=True)]
    below = [None if i is None or r is None else i < r for i, r in zip(intensity, ridge, strict=True)]
    return {
        "flop": flop,
        "flop_source": _sources(group, n_groups, found.flop_source),
        "read_bytes": _sum_known(group, n_groups, found.read_bytes, found.read_known),
        "write_bytes": _sum_known(group, n_groups, found.write_bytes, found.write_known),
        "bytes": _sum_known(group, n_groups, found.bytes, found.bytes_known),
        "bytes_source": _sources(group, n_groups, found.bytes_source),
        "occupancy_ratio": _weighted_occupancy(work, group, n_groups),
        "occupancy_source": _sources(group, n_groups, found.occupancy_source),
        "flop_per_byte": intensity,
        "flop_per_s": rate,
        "is_memory_bound": below,
        "flop_known_ratio": _ratio(flop_time_ps, time_ps),
    }


def element_types(work: Work, group: Int64s, n_groups: int) -> list[str | None]:
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
    flop_per_s, bytes_per_s = peaks.flop_per_s(device, element_type), peaks.bytes_per_s(device)
    return None if flop_per_s is None or bytes_per_s is None else flop_per_s / bytes_per_s


def _sum_known(group: Int64s, n_groups: int, values: Int64s, known: Bools) -> pa.Array:
    sums = sum_by(group, n_groups, np.where(known, values, 0))
    return pa.array(sums, mask=~_any(group, n_groups, known))


def _any(group: Int64s, n_groups: int, flags: Bools) -> Bools:
    result = np.zeros(n_groups, np.bool_)
    result[group[flags]] = True
    return result


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> list[float | None]:
    return [a / b if b else None for a, b in zip(numerator.tolist(), denominator.tolist(), strict=True)]


def _sources(group: Int64s, n_groups: int, bits: Int64s) -> list[str | None]:
    result = np.zeros(n_groups, np.int64)
    np.bitwise_or.at(result, group, bits)
    return source_texts(result)


def _weighted_occupancy(work: Work, group: Int64s, n_groups: int) -> list[float | None]:
    found = work.quantities
    weight = np.where(found.occupancy_known, work.time_ps, 0).astype(np.float64)
    return _ratio(np.bincount(group, weight * found.occupancy, n_groups), np.bincount(group, weight, n_groups))


def ones_like(rows: Int64s) -> Int64s:
    """`[n]` ones, to be counted."""
    return np.ones(len(rows), np.int64)


_KEPT = ("flop", "flop_source", "bytes", "bytes_source", "flop_per_byte", "flop_per_s", "is_memory_bound")


def _rate(name: str, doc: str, unit: str) -> Column:
    return Column(name, pa.float64(), doc, unit, nullable=True)


ROOFLINE_COLUMNS = (
    Column("flop", pa.int64(), "floating-point operations", "flop"),
    Column("flop_source", pa.string(), "who says so: counter, compiler or formula"),
    Column("bytes", pa.int64(), "bytes read and written", "bytes"),
    Column("bytes_source", pa.string(), "who says so: counter, compiler or formula"),
    Column(
        "flop_per_byte",
        pa.float64(),
        "arithmetic intensity",
        "flop/byte",
    ),
    Column("flop_per_s", pa.float64(), "arithmetic throughput", "flop/s"),
    Column("element_type", pa.string(), "type of the operands that most of the time goes to", nullable=True),
    _rate("peak_flop_per_s", "dense peak of the device for that type; null where not known", "flop/s"),
    _rate("peak_bytes_per_s", "bandwidth of the device's memory; null where not known", "bytes/s"),
    _rate("roof_ratio", "throughput over the least of the peak and intensity times bandwidth", "ratio"),
    Column("is_memory_bound", pa.bool_(), "whether the bandwidth is the lower roof at this intensity", nullable=True),
)


def roofline_data(
    work: Work, group: Int64s, device: Sequence[str], peaks: Peaks
) -> tuple[dict[str, list[Any]], Int64s]:
    """Values of `ROOFLINE_COLUMNS` by name, and which groups they are of: those whose point is known `[n_points]`."""
    data = quantity_data(work, group, device, peaks)
    types = element_types(work, group, len(device))
    rates, intensities = data["flop_per_s"], data["flop_per_byte"]
    shown = [i for i in range(len(device)) if rates[i] and intensities[i]]
    rows = {name: [_plain(data[name][i]) for i in shown] for name in _KEPT}
    peak_flop = [peaks.flop_per_s(device[i], types[i]) for i in shown]
    peak_bytes = [peaks.bytes_per_s(device[i]) for i in shown]
    rows["element_type"] = [types[i] for i in shown]
    rows["peak_flop_per_s"], rows["peak_bytes_per_s"] = peak_flop, peak_bytes
    rows["roof_ratio"] = [
        None if flop is None or size is None else rates[i] / min(flop, intensities[i] * size)
        for i, flop, size in zip(shown, peak_flop, peak_bytes, strict=True)
    ]
    return rows, np.array(shown, np.int64)


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value
