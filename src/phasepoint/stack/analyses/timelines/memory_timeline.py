"""Memory over time: what the allocator had given out and held, and when the peak was.

A device's samples are thinned to the last and the highest of each of 500 equal stretches of time, so every peak stays.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.tables import Column
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of

STRETCHES = 500
"""Stretches of time of which samples are kept; more than a screen has columns for."""

NO_ALLOCATIONS = "no allocations were recorded: profile with memory on (torch.profiler: profile_memory=True)"

COLUMNS = (
    Column("host", pa.int64(), "rank of the process"),
    Column("device", pa.string(), "the device, or host"),
    Column("time_ps", pa.int64(), "when, from the session's epoch", "ps"),
    Column("allocated_bytes", pa.int64(), "in use", "bytes"),
    Column("reserved_bytes", pa.int64(), "held by the allocator", "bytes", nullable=True),
    Column("is_peak", pa.bool_(), "whether it is the device's highest, the first of equals"),
)


def of_shard(shard: StackShard) -> ShardRows:
    """Samples of each device in the order of time."""
    allocations = shard.table("allocations")
    parts, notes = [], []
    for device in sorted(pc.unique(allocations["device"]).to_pylist()):
        mine = allocations.filter(pc.equal(allocations["device"], device))
        time_ps, allocated, reserved = allocated_bytes(mine)
        kept = _thin(time_ps, allocated)
        n = len(kept)
        columns = {
            "host": pa.array(np.full(n, shard.host)),
            "device": pa.array([device] * n, pa.string()),
            "time_ps": pa.array(time_ps[kept]),
            "allocated_bytes": pa.array(allocated[kept]),
            "reserved_bytes": reserved.take(pa.array(kept)),
            "is_peak": pa.array(kept == int(np.argmax(allocated))),
        }
        parts.append(rows_of(COLUMNS, columns))
        if mine["allocated_bytes"].null_count:
            notes.append(f"{device}: the profiler gave no totals; bytes are counted from those in use when it began")
    empty = rows_of(COLUMNS, {column.name: [] for column in COLUMNS})
    return ShardRows(pa.concat_tables([empty, *parts]), tuple(notes) if parts else (NO_ALLOCATIONS,))


def allocated_bytes(mine: pa.Table) -> tuple[Int64s, Int64s, pa.ChunkedArray]:
    """Times, bytes in use and bytes held after each event of one device, in the order of time.

    Where the profiler gave no total in use, it is summed up from the events, from 0 at the first.

    Args:
        mine: rows of `allocations` of one device.
    """
    mine = mine.take(pc.sort_indices(mine["time_ps"]))
    counted = np.cumsum(mine["bytes"].to_numpy())
    given = mine["allocated_bytes"]
    allocated = counted if given.null_count else given.to_numpy()
    return mine["time_ps"].to_numpy(), allocated, mine["reserved_bytes"]


def _thin(time_ps: Int64s, allocated: Int64s) -> Int64s:
    """Rows to keep: the first of the highest and the last of each stretch."""
    low, high = int(time_ps[0]), int(time_ps[-1])
    width = max(-(-(high - low + 1) // STRETCHES), 1)
    stretch = (time_ps - low) // width
    last = np.append(np.flatnonzero(stretch[1:] != stretch[:-1]), len(stretch) - 1)
    order = np.lexsort((np.arange(len(stretch)), -allocated, stretch))
    highest = order[np.append(0, np.flatnonzero(np.diff(stretch[order])) + 1)]
    return np.union1d(highest, last)
