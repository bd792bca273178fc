"""A11, GPU kernel information aggregated by layer."""

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import (
    DEVICE,
    DEVICE_TIME,
    HOST,
    INDEX,
    KERNELS,
    LAYER,
    SHARE,
    TYPE,
    layer_names,
    shares,
)
from phasepoint.stack.work.totals import KNOWN_COLUMN, QUANTITY_COLUMNS, ones_like, quantity_data
from phasepoint.stack.work.work import read_work

COLUMNS = (HOST, DEVICE, INDEX, LAYER, TYPE, KERNELS, DEVICE_TIME, SHARE, *QUANTITY_COLUMNS, KNOWN_COLUMN)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each layer on each device of the shard, in order of execution; unattributed ones are a null layer."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    group, first = number_groups(work.device, work.layer)
    n_rows = len(first)
    device = [work.devices[code] for code in work.device[first].tolist()]
    names, types = layer_names(work.layer[first], work.layers)
    time_ps = sum_by(group, n_rows, work.time_ps)
    rows = {
        "host": [shard.host] * n_rows,
        "device": device,
        "index": list(range(n_rows)),
        "layer": names,
        "type": types,
        "kernels": sum_by(group, n_rows, ones_like(group)),
        "device_ps": time_ps,
        "share_ratio": shares(time_ps.tolist()),
        **quantity_data(work, group, device, peaks),
    }
    return ShardRows(rows_of(COLUMNS, rows), (*work.notes, *peaks.notes(work.used_devices)))
