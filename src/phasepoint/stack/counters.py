"""Hardware counters and profilers' statistics that say what a kernel did, by the names that profilers give them."""

from typing import Literal, NamedTuple


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
