"""Points below a roof: what a group of executions reached, and what the device could reach at its intensity.

Source: Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model" (2009): at an intensity of
I flop/byte a device reaches at most min(peak flop/s, I × memory bytes/s).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.core.tables import Column
from phasepoint.stack.peaks import Peaks
from phasepoint.stack.totals import element_types, quantity_data
from phasepoint.stack.work import Work

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
