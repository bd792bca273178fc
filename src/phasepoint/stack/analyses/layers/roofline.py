"""A14, layer roofline: a point for each layer whose flop and bytes are known."""

import pyarrow as pa

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import DEVICE, DEVICE_TIME, HOST, LAYER, TYPE, layer_names
from phasepoint.stack.work.totals import ROOFLINE_COLUMNS, roofline_data
from phasepoint.stack.work.work import read_work

COLUMNS = (HOST, DEVICE, LAYER, TYPE, DEVICE_TIME, *ROOFLINE_COLUMNS)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each point of the shard, the most time first; a null layer is what belongs to none."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    group, first = number_groups(work.device, work.layer)
    device = [work.devices[code] for code in work.device[first].tolist()]
    points, shown = roofline_data(work, group, device, peaks)
    names, types = layer_names(work.layer[first[shown]], work.layers)
    time_ps = sum_by(group, len(first), work.time_ps)[shown]
    rows = {
        "host": [shard.host] * len(shown),
        "device": [device[i] for i in shown.tolist()],
        "layer": names,
        "type": types,
        "device_ps": time_ps,
        **points,
    }
    order = sorted(range(len(shown)), key=lambda i: -int(time_ps[i]))
    return ShardRows(
        rows_of(COLUMNS, rows).take(pa.array(order, pa.int64())), (*work.notes, *peaks.notes(work.used_devices))
    )
