"""A6, layer latency aggregated by type."""

import numpy as np
import pyarrow as pa

from phasepoint.core.encoding import encode_column
from phasepoint.core.groups import sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import HOST, SHARE, TYPE, layer_names, layer_times, shares

COLUMNS = (
    HOST,
    TYPE,
    Column("layers", pa.int64(), "layers of this type that ran", "layers"),
    Column("latency_ps", pa.int64(), "latencies of its layers added up", "ps"),
    SHARE,
    Column("device_ps", pa.int64(), "part of it in which a device worked for them", "ps"),
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each type of the shard, the longest first; what belongs to no layer has a null type."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    types = layer_names(times.layer, layers)[1]
    code, values = encode_column(pa.chunked_array([pa.array(types, pa.string())]))
    n_rows = len(values) + 1
    group = np.where(code < 0, len(values), code)
    latency_ps = sum_by(group, n_rows, times.latency_ps)
    device_ps = sum_by(group, n_rows, times.device_ps)
    count = sum_by(group, n_rows, np.ones(len(group), np.int64))
    names = [*values, None]
    order = [i for i in np.lexsort((np.arange(n_rows), -latency_ps)).tolist() if count[i]]
    data = {
        "host": [shard.host] * len(order),
        "type": [names[i] for i in order],
        "layers": count[order],
        "latency_ps": latency_ps[order],
        "share_ratio": shares(latency_ps[order].tolist()),
        "device_ps": device_ps[order],
    }
    return ShardRows(rows_of(COLUMNS, data), layers.notes)
