"""Device time: what each device did between its first execution and its last, by exact interval unions.

An instant goes to compute if any compute runs, else to exposed communication, else to memory:
span = compute + exposed communication + memory + idle, and busy = span - idle, to the picosecond. Executions whose
launch is not in the trace count like all others, and are told apart as orphans. On a CPU, whose ops are its executions,
what they do for the host's own ends (allocating memory) counts as compute: every execution is somewhere.
"""

import numpy as np
import pyarrow as pa

from phasepoint.core.intervals import partition, union
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import NO_DEVICE_NOTE, Executions, read_executions
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis
from phasepoint.stack.work.latency import DEVICE

_INT = pa.int64()

_BESIDE_COMPUTE = ("communication", "data_movement")
"""Categories in the order in which they are charged, after compute, which is everything else."""


@analysis(
    DEVICE,
    Column("span_ps", _INT, "from its first execution's start to its last one's end", "ps"),
    Column("busy_ps", _INT, "union of all its executions", "ps"),
    Column("compute_ps", _INT, "union of whatever is neither communication nor a copy", "ps"),
    Column("communication_ps", _INT, "union of communication, hidden or not", "ps"),
    Column("exposed_communication_ps", _INT, "communication while nothing computes", "ps"),
    Column("memory_ps", _INT, "copies and fills while nothing computes or communicates", "ps"),
    Column("idle_ps", _INT, "span_ps less busy_ps", "ps"),
    Column("orphan_ps", _INT, "union of executions whose launch is not in the trace, part of busy_ps", "ps"),
    Column("orphan_events", _INT, "executions whose launch is not in the trace", "executions"),
    Column("events", _INT, "executions", "executions"),
)
def device_time(shard: StackShard) -> RowsAndNotes:
    """Device time: what each device did between its first execution and its last, by name of the device."""
    executions = shard.once(read_executions)
    rows = [_device_row(device, executions.of(device)) for device in executions.devices]
    return rows, () if rows else (NO_DEVICE_NOTE,)


def _device_row(device: str, executions: Executions) -> dict[str, int | str]:
    start_ps, end_ps = executions.start_ps, executions.end_ps
    low, high = int(start_ps.min()), int(end_ps.max())
    communication, copies = (executions.category == category for category in _BESIDE_COMPUTE)
    sets = [union(start_ps, end_ps, where=chosen) for chosen in (~(communication | copies), communication, copies)]
    compute, exposed, memory, idle = partition(sets, np.array([low]), np.array([high]))[0].tolist()
    orphans = union(start_ps, end_ps, where=executions.orphan)
    return {
        "device": device,
        "span_ps": high - low,
        "busy_ps": high - low - idle,
        "compute_ps": compute,
        "communication_ps": sets[1].total_ps,
        "exposed_communication_ps": exposed,
        "memory_ps": memory,
        "idle_ps": idle,
        "orphan_ps": orphans.total_ps,
        "orphan_events": int(executions.orphan.sum()),
        "events": len(start_ps),
    }
