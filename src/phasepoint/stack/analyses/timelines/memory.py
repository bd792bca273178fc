"""What the allocator had given out and held over time, and what held the memory at its peak.

Blocks are told by their address: a release belongs to the latest allocation there. Releases of blocks that were
allocated before the capture are unmatched and counted; memory that they held at the peak, with all else that the
capture did not see being allocated, is the row without an op.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.tables import Column
from phasepoint.stack.shard.hierarchy import NONE, find_rows, inherited
from phasepoint.stack.shard.host_activity import read_host
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis

STRETCHES = 500
"""Stretches of time of which samples are kept; more than a screen has columns for."""

NO_ALLOCATIONS = "no allocations were recorded: profile with memory on (torch.profiler: profile_memory=True)"

_DEVICE = Column("device", pa.string(), "the device, or host")


@analysis(
    _DEVICE,
    Column("time_ps", pa.int64(), "when, from the session's epoch", "ps"),
    Column("allocated_bytes", pa.int64(), "in use", "bytes"),
    Column("reserved_bytes", pa.int64(), "held by the allocator", "bytes", nullable=True),
    Column("is_peak", pa.bool_(), "whether it is the device's highest, the first of equals"),
)
def memory_timeline(shard: StackShard) -> RowsAndNotes:
    """Memory over time: what the allocator had given out and held, and when the peak was, in the order of time.

    A device's samples are thinned to the last and the highest of each of 500 equal stretches of time, so every peak
    stays.
    """
    rows: list[dict[str, object]] = []
    notes = []
    for device, mine in _devices(shard):
        time_ps, allocated, reserved = allocated_bytes(mine)
        kept, peak = _thin(time_ps, allocated), int(np.argmax(allocated))
        held = reserved.take(pa.array(kept)).to_pylist()
        samples = zip(kept.tolist(), time_ps[kept].tolist(), allocated[kept].tolist(), held, strict=True)
        rows += [
            {"device": device, "time_ps": at_ps, "allocated_bytes": used, "reserved_bytes": held, "is_peak": i == peak}
            for i, at_ps, used, held in samples
        ]
        if mine["allocated_bytes"].null_count:
            notes.append(f"{device}: the profiler gave no totals; bytes are counted from those in use when it began")
    return rows, notes if rows else (NO_ALLOCATIONS,)


@analysis(
    _DEVICE,
    Column("peak_ps", pa.int64(), "when the peak was, from the session's epoch", "ps"),
    Column("peak_bytes", pa.int64(), "in use at the peak", "bytes"),
    Column("layer", pa.string(), "layer that allocated", nullable=True),
    Column(
        "op",
        pa.string(),
        "outermost op, else annotation or call, that allocated; null for what was allocated unseen",
        nullable=True,
    ),
    Column("direction", pa.string(), "forward, backward or optimizer", nullable=True),
    Column("held_bytes", pa.int64(), "held at the peak; over a device it adds up to peak_bytes", "bytes"),
    Column("blocks", pa.int64(), "blocks held; null for what was allocated unseen", "blocks", nullable=True),
    Column("share_ratio", pa.float64(), "held_bytes of peak_bytes", "ratio", nullable=True),
)
def memory_peak(shard: StackShard) -> RowsAndNotes:
    """What held the memory at its peak: by layer, op and direction of the span that allocated it, the largest first."""
    rows: list[dict[str, object]] = []
    notes = []
    for device, mine in _devices(shard):
        time_ps, allocated, _ = allocated_bytes(mine)
        peak = int(np.argmax(allocated))
        block_end, unmatched = match_releases(mine["address"], mine["bytes"].to_numpy())
        taken = (mine["bytes"].to_numpy() > 0) & (np.arange(len(time_ps)) <= peak) & (block_end > peak)
        head = {"device": device, "peak_ps": int(time_ps[peak]), "peak_bytes": int(allocated[peak])}
        rows += [{**head, **row} for row in _holders(shard, mine.filter(pa.array(taken)), int(allocated[peak]))]
        if unmatched:
            notes.append(f"{device}: {unmatched} releases of blocks that were allocated before the capture")
    return rows, notes if rows else (NO_ALLOCATIONS,)


def _devices(shard: StackShard) -> Iterator[tuple[str, pa.Table]]:
    """The rows of `allocations` of each device, in the order of time."""
    allocations = shard.table("allocations")
    for device in sorted(pc.unique(allocations["device"]).to_pylist()):
        mine = allocations.filter(pc.equal(allocations["device"], device))
        yield device, mine.take(pc.sort_indices(mine["time_ps"]))


def allocated_bytes(mine: pa.Table) -> tuple[Int64s, Int64s, pa.ChunkedArray]:
    """Times, bytes in use and bytes held after each event of one device.

    Where the profiler gave no total in use, it is summed up from the events, from 0 at the first.

    Args:
        mine: rows of `allocations` of one device, in the order of time.
    """
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


def match_releases(address: pa.ChunkedArray, taken_bytes: Int64s) -> tuple[Int64s, int]:
    """When each block was released, and how many releases have no allocation.

    Args:
        address: `[n]` address of each event, in the order of time; null where not known.
        taken_bytes: `[n]` bytes taken, below 0 where released.

    Returns:
        `[n]` number of the event that released the block of each allocation, n where none did; releases unmatched.
    """
    n = len(taken_bytes)
    release = np.full(n, n)
    known = np.flatnonzero(address.is_valid().to_numpy())
    places = address.fill_null(0).to_numpy()
    order = known[np.lexsort((known, places[known]))]
    gives = taken_bytes[order] < 0
    follows = np.append(False, (places[order][1:] == places[order][:-1]) & ~gives[:-1])
    first, then = order[:-1][follows[1:]], order[1:][follows[1:]]  # an allocation's next event at its address ends it
    release[first] = then
    matched = int((gives & follows).sum())
    return release, int((taken_bytes < 0).sum()) - matched


def _holders(shard: StackShard, held: pa.Table, peak_bytes: int) -> list[dict[str, object]]:
    """Who allocated the blocks held, grouped; what is left of the peak was allocated unseen."""
    spans = shard.table("spans")
    known = held["span"].is_valid().to_numpy()
    row = find_rows(spans, held["window"].to_numpy(), held["span"].fill_null(0).to_numpy(), known)
    take = pa.array(row, mask=row == NONE)
    named = spans["name"].cast(pa.string()).take(pa.array(shard.once(read_host).naming.named))
    table = pa.table(
        {
            "layer": inherited(spans, "layer").cast(pa.string()).take(take),
            "op": named.take(take),
            "direction": inherited(spans, "direction").cast(pa.string()).take(take),
            "bytes": held["bytes"],
        }
    )
    keys = ["layer", "op", "direction"]
    groups = table.group_by(keys).aggregate([("bytes", "sum"), ("bytes", "count")])
    order = [("bytes_sum", "descending"), *((key, "ascending") for key in keys)]
    rows = [
        {**{key: row[key] for key in keys}, "held_bytes": row["bytes_sum"], "blocks": row["bytes_count"]}
        for row in groups.sort_by(order).to_pylist()
    ]
    unseen = peak_bytes - sum(row["held_bytes"] for row in rows)
    if unseen:
        rows.append({**dict.fromkeys(keys), "held_bytes": unseen, "blocks": None})
    return [{**row, "share_ratio": row["held_bytes"] / peak_bytes if peak_bytes > 0 else None} for row in rows]
