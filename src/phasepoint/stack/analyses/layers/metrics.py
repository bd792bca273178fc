"""A12, GPU metrics aggregated by layer: shares of flop, traffic and time, and occupancy."""

import pyarrow as pa

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import DEVICE, DEVICE_TIME, HOST, INDEX, LAYER, TYPE, layer_names, shares
from phasepoint.stack.work.totals import KNOWN_COLUMN, QUANTITY_COLUMNS, quantity_data
from phasepoint.stack.work.work import read_work

_OF = {column.name: column for column in QUANTITY_COLUMNS}
_KEPT = ("read_bytes", "write_bytes", "bytes", "bytes_source", "occupancy_ratio", "occupancy_source", "flop_source")


def _share(name: str, of: str) -> Column:
    return Column(name, pa.float64(), f"share of the known {of} of all layers", "ratio", nullable=True)


COLUMNS = (
    HOST,
    DEVICE,
    INDEX,
    LAYER,
    TYPE,
    _OF["flop"],
    _share("flop_ratio", "flop"),
    _OF["flop_source"],
    KNOWN_COLUMN,
    _OF["read_bytes"],
    _OF["write_bytes"],
    _OF["bytes"],
    _share("bytes_ratio", "bytes"),
    _OF["bytes_source"],
    _OF["occupancy_ratio"],
    _OF["occupancy_source"],
    DEVICE_TIME,
    _share("time_ratio", "time"),
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each layer on each device of the shard, in order of execution; unattributed ones are a null layer."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    group, first = number_groups(work.device, work.layer)
    device = [work.devices[code] for code in work.device[first].tolist()]
    names, types = layer_names(work.layer[first], work.layers)
    time_ps = sum_by(group, len(first), work.time_ps)
    data = quantity_data(work, group, device, peaks)
    rows = {
        "host": [shard.host] * len(first),
        "device": device,
        "index": list(range(len(first))),
        "layer": names,
        "type": types,
        "flop": data["flop"],
        "flop_ratio": shares(data["flop"]),
        "flop_known_ratio": data["flop_known_ratio"],
        **{name: data[name] for name in _KEPT},
        "bytes_ratio": shares(data["bytes"]),
        "device_ps": time_ps,
        "time_ratio": shares(time_ps.tolist()),
    }
    return ShardRows(rows_of(COLUMNS, rows), work.notes)
