"""Why a device was idle: every idle stretch between its first and last execution, split among causes exactly.

How a stretch is split: stack/shard/idle_gaps.py.
"""

import numpy as np
import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import NO_DEVICE_NOTE, read_executions
from phasepoint.stack.shard.hierarchy import NONE
from phasepoint.stack.shard.host_activity import read_host
from phasepoint.stack.shard.idle_gaps import CAUSES, IdleParts, find_gaps, split_gaps
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis


@analysis(
    Column("device", pa.string(), "the device"),
    Column("cause", pa.string(), ", ".join(CAUSES)),
    Column(
        "during",
        pa.string(),
        "what the launching thread was in, or which execution waited; null where no span was open",
        nullable=True,
    ),
    Column("idle_ps", pa.int64(), "idle time of this cause; over a device it adds up to its idle time", "ps"),
    Column("stretches", pa.int64(), "idle stretches that it had a part in", "stretches"),
    Column("longest_ps", pa.int64(), "its longest part of one stretch", "ps"),
    Column("share_ratio", pa.float64(), "idle_ps of the device's idle time", "ratio"),
)
def idle_causes(shard: StackShard) -> RowsAndNotes:
    """Why each device was idle: a row for each cause and what went on meanwhile, the longest first."""
    executions = shard.once(read_executions)
    if not len(executions.row):
        return [], (NO_DEVICE_NOTE,)
    host, names = shard.once(read_host), shard.table("spans")["name"]
    told = host.told_to_wait(executions.launch[executions.launch != NONE])
    rows, notes = [], []
    for device in executions.devices:
        mine = executions.of(device)
        gaps = find_gaps(mine)
        unlaunched = int(np.count_nonzero(~gaps.known))
        parts = split_gaps(gaps, mine, host, told)
        rows += [{"device": device, **row} for row in _rows(parts, names)]
        if unlaunched:
            notes.append(
                f"{device}: {unlaunched} of {len(gaps.known)} idle stretches end with an execution whose "
                "launch is not in the trace: record the host's runtime calls too, from before the first execution"
            )
    return rows, notes


def _rows(parts: IdleParts, names: pa.ChunkedArray) -> list[dict[str, object]]:
    """Rows of one device: parts of one stretch that share cause and name are one."""
    table = pa.table(
        {
            "gap": parts.gap,
            "cause": parts.cause,
            "during": names.cast(pa.string()).take(pa.array(parts.during, mask=parts.during == NONE)),
            "dur": parts.dur_ps,
        }
    )
    by_gap = table.group_by(["gap", "cause", "during"]).aggregate([("dur", "sum")])
    rows = by_gap.group_by(["cause", "during"]).aggregate([("dur_sum", "sum"), ("gap", "count"), ("dur_sum", "max")])
    rows = rows.sort_by([("dur_sum_sum", "descending"), ("cause", "ascending"), ("during", "ascending")])
    idle_ps = int(parts.dur_ps.sum())
    return [
        {
            "cause": CAUSES[row["cause"]],
            "during": row["during"],
            "idle_ps": row["dur_sum_sum"],
            "stretches": row["gap_count"],
            "longest_ps": row["dur_sum_max"],
            "share_ratio": row["dur_sum_sum"] / idle_ps,
        }
        for row in rows.to_pylist()
    ]
