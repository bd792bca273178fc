"""A9, GPU kernel roofline: a point for each kernel of each layer whose flop and bytes are known."""

import pyarrow as pa

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import DEVICE, HOST, KERNELS, LAYER
from phasepoint.stack.work.totals import ROOFLINE_COLUMNS, ones_like, roofline_data
from phasepoint.stack.work.work import layer_texts, read_work

COLUMNS = (
    HOST,
    DEVICE,
    Column("name", pa.string(), "name of the kernel, as the profiler gave it"),
    LAYER,
    KERNELS,
    Column("time_ps", pa.int64(), "durations of its executions (self times of ops) added up", "ps"),
    *ROOFLINE_COLUMNS,
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each point of the shard, the most time first."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    group, first = number_groups(work.device, work.name, work.layer)
    device = [work.devices[code] for code in work.device[first].tolist()]
    points, shown = roofline_data(work, group, device, peaks)
    time_ps = sum_by(group, len(first), work.time_ps)
    rows = {
        "host": [shard.host] * len(shown),
        "device": [device[i] for i in shown.tolist()],
        "name": [work.names[code] for code in work.name[first[shown]].tolist()],
        "layer": layer_texts(work.layer[first[shown]], work.layers),
        "kernels": sum_by(group, len(first), ones_like(group))[shown],
        "time_ps": time_ps[shown],
        **points,
    }
    table = rows_of(COLUMNS, rows)
    order = sorted(range(len(shown)), key=lambda i: -int(time_ps[shown[i]]))
    return ShardRows(table.take(pa.array(order, pa.int64())), (*work.notes, *peaks.notes(work.used_devices)))
