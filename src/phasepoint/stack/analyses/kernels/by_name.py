"""A10, GPU kernel information aggregated by name."""

import numpy as np
import pyarrow as pa

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.counters import COUNTED_NOTE, counted_kernels
from phasepoint.stack.work.latency import DEVICE_TIME, HOST, KERNELS, SHARE, shares
from phasepoint.stack.work.totals import KNOWN_COLUMN, QUANTITY_COLUMNS, ones_like, quantity_data
from phasepoint.stack.work.work import read_work

COLUMNS = (
    HOST,
    Column("device", pa.string(), "the device; null where counters know the kernel's name only", nullable=True),
    Column("name", pa.string(), "name as the profiler gave it"),
    Column("category", pa.string(), "compute, communication, data_movement or host", nullable=True),
    KERNELS,
    Column("device_ps", pa.int64(), f"{DEVICE_TIME.doc}; null where there are none", "ps", nullable=True),
    SHARE,
    Column("layers", pa.int64(), "layers that it worked for", "layers"),
    *QUANTITY_COLUMNS,
    KNOWN_COLUMN,
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each name on each device of the shard, the most time first."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    group, first = number_groups(work.device, work.name, work.category)
    n_rows = len(first)
    device = [work.devices[code] for code in work.device[first].tolist()]
    time_ps = sum_by(group, n_rows, work.time_ps)
    pair_first = number_groups(group, work.layer)[1]
    in_layer = pair_first[work.layer[pair_first] >= 0]
    rows = {
        "host": [shard.host] * n_rows,
        "device": device,
        "name": [work.names[code] for code in work.name[first].tolist()],
        "category": [work.categories[code] for code in work.category[first].tolist()],
        "kernels": sum_by(group, n_rows, ones_like(group)),
        "device_ps": time_ps,
        "share_ratio": shares(time_ps.tolist()),
        "layers": np.bincount(group[in_layer], minlength=n_rows),
        **quantity_data(work, group, device, peaks),
    }
    order = np.lexsort((np.arange(n_rows), -time_ps))
    table = rows_of(COLUMNS, rows).take(pa.array(order))
    notes = (*work.notes, *peaks.notes(work.used_devices))
    counted = counted_kernels(shard)
    if not counted:
        return ShardRows(table, notes)
    more = {column.name: [row.get(column.name) for row in counted] for column in COLUMNS}
    more |= {"host": [shard.host] * len(counted), "layers": [0] * len(counted)}
    return ShardRows(pa.concat_tables([table, rows_of(COLUMNS, more)]), (*notes, COUNTED_NOTE))
