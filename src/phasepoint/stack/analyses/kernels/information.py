"""A8, GPU kernel information: every execution on a device with its layer, flop, bytes and occupancy."""

import numpy as np
import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import DEVICE, HOST, LAYER
from phasepoint.stack.work.totals import QUANTITY_COLUMNS, quantity_data
from phasepoint.stack.work.work import direction_texts, layer_texts, read_work

COLUMNS = (
    HOST,
    DEVICE,
    Column("name", pa.string(), "name as the profiler gave it"),
    Column("category", pa.string(), "compute, communication, data_movement or host"),
    LAYER,
    Column("direction", pa.string(), "forward, backward or optimizer", nullable=True),
    Column("start_ps", pa.int64(), "start, from the session's epoch", "ps"),
    Column("time_ps", pa.int64(), "duration of a kernel; self time of an op, which may hold others", "ps"),
    *QUANTITY_COLUMNS,
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each execution of the shard, the longest first."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    n_rows = len(work.row)
    device = [work.devices[code] for code in work.device.tolist()]
    data = quantity_data(work, np.arange(n_rows), device, peaks)
    rows = {
        "host": [shard.host] * n_rows,
        "device": device,
        "name": [work.names[code] for code in work.name.tolist()],
        "category": [work.categories[code] for code in work.category.tolist()],
        "layer": layer_texts(work.layer, work.layers),
        "direction": direction_texts(work.direction),
        "start_ps": work.start_ps,
        "time_ps": work.time_ps,
        **{column.name: data[column.name] for column in QUANTITY_COLUMNS},
    }
    order = np.lexsort((np.arange(n_rows), work.start_ps, -work.time_ps))
    return ShardRows(rows_of(COLUMNS, rows).take(pa.array(order)), (*work.notes, *peaks.notes(work.used_devices)))
