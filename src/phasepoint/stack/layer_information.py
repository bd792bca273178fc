"""A2, layer information: every layer in the order of execution, with type, shape, latency and memory."""

import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.latency import layer_names, layer_times, nullable_steps
from phasepoint.stack.layer_columns import HOST, INDEX, LATENCY, LAYER, STEP_LATENCY, STEPS, TYPE
from phasepoint.stack.layer_memory import MEMORY, MEMORY_SOURCE, read_memory
from phasepoint.stack.layer_shapes import layer_shapes
from phasepoint.stack.layers import read_layers
from phasepoint.stack.result import ShardRows, rows_of
from phasepoint.stack.shard import StackShard

COLUMNS = (
    HOST,
    INDEX,
    LAYER,
    TYPE,
    Column("source", pa.string(), "module, or op where operations of the framework stand for layers", nullable=True),
    Column(
        "shape",
        pa.string(),
        "types and shapes into its first op; of a program, the largest result",
        nullable=True,
    ),
    STEPS,
    LATENCY,
    STEP_LATENCY,
    MEMORY,
    MEMORY_SOURCE,
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each layer of the shard, in order of execution; what belongs to no layer has none."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    memory = shard.once(read_memory)
    kept = times.layer >= 0
    codes = times.layer[kept]
    names, types = layer_names(codes, layers)
    steps, step_latency_ps = (column.filter(pa.array(kept)) for column in nullable_steps(times))
    shapes = layer_shapes(shard)
    data = {
        "host": [shard.host] * len(codes),
        "index": list(range(len(codes))),
        "layer": names,
        "type": types,
        "source": [layers.source] * len(codes),
        "shape": [shapes.get(code) for code in codes.tolist()],
        "steps": steps,
        "latency_ps": times.latency_ps[kept],
        "step_latency_ps": step_latency_ps,
        "bytes": [memory.bytes.get(code) for code in codes.tolist()],
        "bytes_source": [memory.source if code in memory.bytes else None for code in codes.tolist()],
    }
    return ShardRows(rows_of(COLUMNS, data), (*layers.notes, *memory.notes))
