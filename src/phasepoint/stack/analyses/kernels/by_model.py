"""A15, GPU kernel information aggregated by model: all that a device did, in one row."""

import pyarrow as pa

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import DEVICE, HOST, KERNELS
from phasepoint.stack.work.totals import KNOWN_COLUMN, QUANTITY_COLUMNS, ones_like, quantity_data
from phasepoint.stack.work.work import read_work

COLUMNS = (
    HOST,
    DEVICE,
    KERNELS,
    Column("device_ps", pa.int64(), "durations of all executions (self times of ops) added up", "ps"),
    Column("attributed_ps", pa.int64(), "part of it that belongs to a layer", "ps"),
    Column("unattributed_ps", pa.int64(), "device_ps less attributed_ps", "ps"),
    Column("names", pa.int64(), "different kernels", "kernels"),
    *QUANTITY_COLUMNS,
    KNOWN_COLUMN,
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each device of the shard, by name."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    group, first = number_groups(work.device)
    n_rows = len(first)
    device = [work.devices[code] for code in work.device[first].tolist()]
    time_ps = sum_by(group, n_rows, work.time_ps)
    in_layer = sum_by(group, n_rows, (work.layer >= 0) * work.time_ps)
    name_first = number_groups(group, work.name)[1]
    rows = {
        "host": [shard.host] * n_rows,
        "device": device,
        "kernels": sum_by(group, n_rows, ones_like(group)),
        "device_ps": time_ps,
        "attributed_ps": in_layer,
        "unattributed_ps": time_ps - in_layer,
        "names": sum_by(group[name_first], n_rows, ones_like(name_first)),
        **quantity_data(work, group, device, peaks),
    }
    order = sorted(range(n_rows), key=device.__getitem__)
    return ShardRows(
        rows_of(COLUMNS, rows).take(pa.array(order, pa.int64())), (*work.notes, *peaks.notes(work.used_devices))
    )
