"""Hardware counters and profilers' statistics that say what a kernel did, by the names that profilers give them.

Counters of kernels that are told by name alone: profilers that replay kernels to count leave no executions.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.encoding import encode_column
from phasepoint.core.groups import number_groups
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.quantities import SOURCES, source_texts


class Counter(NamedTuple):
    """What a counter says.

    Attributes:
        quantity: flop, read_bytes, write_bytes, bytes or occupancy; several of one quantity add up.
        scale: by what its value is multiplied.
        source: counter, or compiler where the profiler hands on the compiler's cost analysis.
    """

    quantity: Literal["flop", "read_bytes", "write_bytes", "bytes", "occupancy"]
    scale: float
    source: Literal["counter", "compiler"]


def _instructions(kind: str) -> dict[str, Counter]:
    """Floating-point instructions of one width that threads executed: an fma is two operations."""
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    return {
        name.format(f"{kind}{op}"): Counter("flop", scale, "counter")
        for op, scale in (("add", 1), ("mul", 1), ("fma", 2))
    }


COUNTERS: dict[str, Counter] = {
    # NVIDIA, Nsight Compute and CUPTI: Nsight Compute documentation, metrics reference.
    **_instructions("f"),
    **_instructions("d"),
    **_instructions("h"),
    "dram__bytes_read.sum": Counter("read_bytes", 1, "counter"),
    "dram__bytes_write.sum": Counter("write_bytes", 1, "counter"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": Counter("occupancy", 0.01, "counter"),
    # NVIDIA, nvprof and CUPTI before Volta: CUPTI documentation, metrics reference; the four that XSP takes.
    "flop_count_sp": Counter("flop", 1, "counter"),
    "flop_count_dp": Counter("flop", 1, "counter"),
    "flop_count_hp": Counter("flop", 1, "counter"),
    "dram_read_bytes": Counter("read_bytes", 1, "counter"),
    "dram_write_bytes": Counter("write_bytes", 1, "counter"),
    "achieved_occupancy": Counter("occupancy", 1, "counter"),
    # AMD, rocprofv3: derived counters, in units of 1,024 bytes.
    "FETCH_SIZE": Counter("read_bytes", 1024, "counter"),
    "WRITE_SIZE": Counter("write_bytes", 1024, "counter"),
    "OccupancyPercent": Counter("occupancy", 0.01, "counter"),
    # XPlane of TPUs: xla/tsl/profiler/utils/xplane_schema.cc, statistics of XLA ops from the compiler's cost analysis.
    "flops": Counter("flop", 1, "compiler"),
    "bytes_accessed": Counter("bytes", 1, "compiler"),
}
"""By name as `metrics.name` has it."""


COUNTED_NOTE = (
    "counters were recorded by kernel name without executions, so their rows have no time and no device: "
    "CUPTI counts kernels in ranges of their own; record the kernels too, in a run without counters"
)

_BITS = ("flop", "bytes", "occupancy")


def counted_kernels(shard: StackShard) -> list[dict[str, Any]]:
    """What counters say of each kernel of which they know the name only: name, kernels, and quantities by column.

    Raises:
        StoreError: the table cannot be read.
    """
    metrics = shard.table("metrics")
    metrics = metrics.filter(pc.and_(metrics["span"].is_null(), metrics["of"].is_valid()))
    metric, metrics_named = encode_column(metrics["name"])
    known = np.array([name in COUNTERS for name in metrics_named], np.bool_)[metric] if len(metric) else metric > 0
    metrics = metrics.filter(pa.array(known))
    metric, metrics_named = encode_column(metrics["name"])
    kernel, kernels = encode_column(metrics["of"])
    pair, first = number_groups(kernel, metric)
    value = np.bincount(pair, metrics["value"].to_numpy(), len(first)) if len(first) else np.empty(0)
    count = np.bincount(pair, minlength=len(first))
    rows: dict[int, dict[str, Any]] = {}
    for i, row in enumerate(first.tolist()):
        code = int(kernel[row])
        found = rows.setdefault(code, {"name": kernels[code], "kernels": 0, "bits": dict.fromkeys(_BITS, 0)})
        found["kernels"] = max(found["kernels"], int(count[i]))
        _add(found, metrics_named[metric[row]], float(value[i]), int(count[i]))
    return [_finished(found) for found in rows.values()]


def _add(found: dict[str, Any], name: str, total: float, count: int) -> None:
    counter = COUNTERS[name]
    if counter.quantity == "occupancy":
        found["occupancy_ratio"] = total * counter.scale / count
    else:
        found[counter.quantity] = found.get(counter.quantity, 0) + round(total * counter.scale)
    what = counter.quantity if counter.quantity in _BITS else "bytes"
    found["bits"][what] |= SOURCES[counter.source]


def _finished(found: dict[str, Any]) -> dict[str, Any]:
    bits = found.pop("bits")
    if "read_bytes" in found and "write_bytes" in found:
        found.setdefault("bytes", found["read_bytes"] + found["write_bytes"])
    for what in _BITS:
        found[f"{what}_source"] = source_texts(np.array([bits[what]]))[0]
    if "bytes" not in found:
        found["bytes_source"] = None
    if found.get("bytes") and "flop" in found:
        found["flop_per_byte"] = found["flop"] / found["bytes"]
    return found
