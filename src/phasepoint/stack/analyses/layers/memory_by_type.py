"""A7, layer memory allocation aggregated by type."""

from collections import defaultdict

import numpy as np
import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.analyses.layers.memory import MEMORY, MEMORY_SOURCE, read_memory
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import HOST, SHARE, TYPE, layer_names, shares

COLUMNS = (
    HOST,
    TYPE,
    Column("layers", pa.int64(), "layers of this type that allocated", "layers"),
    MEMORY,
    SHARE,
    MEMORY_SOURCE,
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each type of the shard, the most bytes first; what belongs to no layer has a null type."""
    layers, memory = shard.once(read_layers), shard.once(read_memory)
    codes = np.array(list(memory.bytes), np.int64)
    sizes: defaultdict[str | None, list[int]] = defaultdict(list)
    for name, size in zip(layer_names(codes, layers)[1], memory.bytes.values(), strict=True):
        sizes[name].append(size)
    ranked = sorted(sizes.items(), key=lambda item: (-sum(item[1]), str(item[0])))
    totals = [sum(parts) for _, parts in ranked]
    data = {
        "host": [shard.host] * len(ranked),
        "type": [name for name, _ in ranked],
        "layers": [len(parts) for _, parts in ranked],
        "bytes": totals,
        "share_ratio": shares(totals),
        "bytes_source": [memory.source] * len(ranked),
    }
    return ShardRows(rows_of(COLUMNS, data), (*layers.notes, *memory.notes))
