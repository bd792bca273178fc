"""A5, layer type distribution: how many layers there are of each type."""

from collections import Counter

import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import HOST, SHARE, TYPE, layer_names, layer_times, shares

COLUMNS = (HOST, TYPE, Column("layers", pa.int64(), "layers of this type that ran", "layers"), SHARE)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each type of the shard, the most frequent first."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    types = Counter(layer_names(times.layer[times.layer >= 0], layers)[1])
    ranked = sorted(types.items(), key=lambda item: (-item[1], str(item[0])))
    counts = [count for _, count in ranked]
    data = {
        "host": [shard.host] * len(ranked),
        "type": [name for name, _ in ranked],
        "layers": counts,
        "share_ratio": shares(counts),
    }
    return ShardRows(rows_of(COLUMNS, data), layers.notes)
