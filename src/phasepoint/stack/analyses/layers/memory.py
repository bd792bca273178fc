"""The bytes that layers' work allocated, by layer and by type."""

from collections import defaultdict

import numpy as np
import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis
from phasepoint.stack.work.latency import INDEX, LAYER, SHARE, TYPE, layer_names, layer_times, shares
from phasepoint.stack.work.layer_memory import MEMORY, MEMORY_SOURCE, read_memory


@analysis(INDEX, LAYER, TYPE, MEMORY, SHARE, MEMORY_SOURCE)
def layer_memory(shard: StackShard) -> RowsAndNotes:
    """A4, layer memory allocation; what belongs to no layer has a row too, with a null layer."""
    layers, times, memory = shard.once(read_layers), shard.once(layer_times), shard.once(read_memory)
    ran = set(times.layer.tolist())
    codes = np.array([*times.layer.tolist(), *(code for code in sorted(memory.bytes) if code not in ran)], np.int64)
    names, types = layer_names(codes, layers)
    sizes = [memory.bytes.get(code) for code in codes.tolist()]
    rows = {
        "index": list(range(len(codes))),
        "layer": names,
        "type": types,
        "bytes": sizes,
        "share_ratio": shares(pa.array(sizes, pa.int64())),
        "bytes_source": [None if size is None else memory.source for size in sizes],
    }
    return rows, (*layers.notes, *memory.notes)


@analysis(
    TYPE, Column("layers", pa.int64(), "layers of this type that allocated", "layers"), MEMORY, SHARE, MEMORY_SOURCE
)
def layer_memory_by_type(shard: StackShard) -> RowsAndNotes:
    """A7, layer memory allocation aggregated by type, the most first; what belongs to no layer has a null type."""
    layers, memory = shard.once(read_layers), shard.once(read_memory)
    codes = np.array(list(memory.bytes), np.int64)
    sizes: defaultdict[str | None, list[int]] = defaultdict(list)
    for name, size in zip(layer_names(codes, layers)[1], memory.bytes.values(), strict=True):
        sizes[name].append(size)
    ranked = sorted(sizes.items(), key=lambda item: (-sum(item[1]), str(item[0])))
    totals = [sum(parts) for _, parts in ranked]
    rows = {
        "type": [name for name, _ in ranked],
        "layers": [len(parts) for _, parts in ranked],
        "bytes": totals,
        "share_ratio": shares(totals),
        "bytes_source": [memory.source] * len(ranked),
    }
    return rows, (*layers.notes, *memory.notes)
