"""Hardware counters and profilers' statistics that say what a kernel did, by the names that profilers give them.

Counters of kernels that are told by name alone: profilers that replay kernels to count leave no executions.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.groups import number_groups
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.quantities import Quantities, Quantity, no_quantities, source_texts


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


def add_counters(quantities: Quantities, metrics: pa.Table, place: Int64s) -> Int64s:
    """Add what counters say to quantities: values of one counter add up, those of an occupancy are averaged.

    Args:
        quantities: `[n]` of executions, or of kernels.
        metrics: `[m]` rows of `metrics`.
        place: `[m]` which execution or kernel each row is of, below 0 for none.

    Returns:
        `[n]` the most values that any counter has of each.
    """
    n = len(quantities.element_type)
    name, names = encode_column(metrics["name"])
    value, most = metrics["value"].to_numpy(), np.zeros(n, np.int64)
    for code, text in enumerate(names):
        counter = COUNTERS.get(text)
        mine = np.flatnonzero((name == code) & (place >= 0))
        if counter is None or not len(mine):
            continue
        count = np.bincount(place[mine], minlength=n)
        rows = np.flatnonzero(count)
        scaled = np.bincount(place[mine], value[mine], n)[rows] * counter.scale
        quantity: Quantity = getattr(quantities, counter.quantity)
        is_count = counter.quantity != "occupancy"
        said = quantity.value[rows] + np.round(scaled).astype(np.int64) if is_count else scaled / count[rows]
        quantity.learn(rows, said, counter.source)
        most = np.maximum(most, count)
    read, written = quantities.read_bytes, quantities.write_bytes
    both = read.known & written.known & ~quantities.bytes.known
    quantities.bytes.learn(both, (read.value + written.value)[both], read.source[both])
    return most


def counted_kernels(shard: StackShard) -> dict[str, list[Any]]:
    """What counters say of each kernel of which they know the name only, by column; empty where there is none.

    Raises:
        StoreError: the table cannot be read.
    """
    metrics = shard.table("metrics")
    is_known = pc.is_in(metrics["name"].cast(pa.string()), value_set=pa.array(list(COUNTERS)))
    metrics = metrics.filter(pc.and_(is_known, pc.and_(metrics["span"].is_null(), metrics["of"].is_valid())))
    if not metrics.num_rows:
        return {}
    kernel, names = encode_column(metrics["of"])
    number, first = number_groups(kernel)
    found = no_quantities(len(first))
    executions = add_counters(found, metrics, number)
    known = {
        name: pa.array(quantity.value, mask=~quantity.known).to_pylist()
        for name, quantity in vars(found).items()
        if isinstance(quantity, Quantity)
    }
    return {
        "name": [names[code] for code in kernel[first].tolist()],
        "kernels": executions.tolist(),
        "layers": [0] * len(first),
        "occupancy_ratio": known.pop("occupancy"),
        **known,
        **{f"{name}_source": source_texts(getattr(found, name).source) for name in ("flop", "bytes", "occupancy")},
        "flop_per_byte": [
            flop / size if size and flop is not None else None
            for flop, size in zip(known["flop"], known["bytes"], strict=True)
        ],
    }
