"""A3, layer latency: how long each layer took, in the order of execution."""

from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import (
    HOST,
    INDEX,
    LATENCY,
    LAYER,
    SHARE,
    STEP_LATENCY,
    STEPS,
    TYPE,
    layer_names,
    layer_times,
    nullable_steps,
    shares,
)

COLUMNS = (HOST, INDEX, LAYER, TYPE, LATENCY, SHARE, STEPS, STEP_LATENCY)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each layer of the shard; what belongs to no layer has one too, with a null layer."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    names, types = layer_names(times.layer, layers)
    steps, step_latency_ps = nullable_steps(times)
    data = {
        "host": [shard.host] * len(names),
        "index": list(range(len(names))),
        "layer": names,
        "type": types,
        "latency_ps": times.latency_ps,
        "share_ratio": shares(times.latency_ps.tolist()),
        "steps": steps,
        "step_latency_ps": step_latency_ps,
    }
    return ShardRows(rows_of(COLUMNS, data), layers.notes)
