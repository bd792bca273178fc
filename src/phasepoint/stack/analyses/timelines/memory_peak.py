"""What held the memory at its peak: by layer, op and direction of the span in which each block was allocated.

Blocks are told by their address: a release belongs to the latest allocation there. Releases of blocks that were
allocated before the capture are unmatched and counted; memory that they held at the peak, with all else that the
capture did not see being allocated, is the row without an op.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.tables import Column
from phasepoint.stack.analyses.timelines.memory_timeline import NO_ALLOCATIONS, allocated_bytes
from phasepoint.stack.shard.hierarchy import NONE, find_rows, inherited
from phasepoint.stack.shard.host_activity import host_activity, name_activity, tracks_of
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of

COLUMNS = (
    Column("host", pa.int64(), "rank of the process"),
    Column("device", pa.string(), "the device, or host"),
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


def of_shard(shard: StackShard) -> ShardRows:
    """For each device, what held its peak; the largest first."""
    allocations = shard.table("allocations")
    rows, notes = [], []
    for device in sorted(pc.unique(allocations["device"]).to_pylist()):
        mine = allocations.filter(pc.equal(allocations["device"], device))
        mine = mine.take(pc.sort_indices(mine["time_ps"]))
        time_ps, allocated, _ = allocated_bytes(mine)
        peak = int(np.argmax(allocated))
        block_end, unmatched = match_releases(mine["address"], mine["bytes"].to_numpy())
        taken = (mine["bytes"].to_numpy() > 0) & (np.arange(len(time_ps)) <= peak) & (block_end > peak)
        head = {"host": shard.host, "device": device, "peak_ps": int(time_ps[peak]), "peak_bytes": int(allocated[peak])}
        rows += [{**head, **row} for row in _holders(shard, mine.filter(pa.array(taken)), int(allocated[peak]))]
        if unmatched:
            notes.append(f"{device}: {unmatched} releases of blocks that were allocated before the capture")
    data = {column.name: [row[column.name] for row in rows] for column in COLUMNS}
    return ShardRows(rows_of(COLUMNS, data), tuple(notes) if rows else (NO_ALLOCATIONS,))


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
    naming = name_activity(spans, host_activity(spans, tracks_of(spans)).above)
    named = spans["name"].cast(pa.string()).take(pa.array(naming.named))
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
