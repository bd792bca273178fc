"""A13, GPU versus non-GPU latency per layer, forward and backward apart.

Latency is the time in which the layer's own work was under way; the device's part of it is the union of its executions,
the rest is the host alone. Where the device's queue is full the host's part is hidden behind earlier layers.
"""

import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of
from phasepoint.stack.work.latency import HOST, INDEX, LATENCY, LAYER, TYPE, direction_times, layer_names
from phasepoint.stack.work.work import direction_texts

COLUMNS = (
    HOST,
    INDEX,
    LAYER,
    TYPE,
    Column("direction", pa.string(), "forward, backward or optimizer; null where unknown", nullable=True),
    LATENCY,
    Column("device_ps", pa.int64(), "part of it in which a device worked for the layer", "ps"),
    Column("non_device_ps", pa.int64(), "latency_ps less device_ps", "ps"),
    Column("device_ratio", pa.float64(), "device_ps over latency_ps", "ratio", nullable=True),
)

NO_DIRECTION_NOTE = (
    "forward and backward are not told apart: PyTorch's traces do by sequence numbers or fwdbwd flows, "
    "JAX's by jvp and transpose in the names of operations"
)


def of_shard(shard: StackShard) -> ShardRows:
    """A row for each layer and direction of the shard, in order of execution; a null layer is what belongs to none."""
    layers, times = shard.once(read_layers), shard.once(direction_times)
    names, types = layer_names(times.layer, layers)
    latency, device = times.latency_ps.tolist(), times.device_ps.tolist()
    data = {
        "host": [shard.host] * len(names),
        "index": list(range(len(names))),
        "layer": names,
        "type": types,
        "direction": direction_texts(times.direction),
        "latency_ps": times.latency_ps,
        "device_ps": times.device_ps,
        "non_device_ps": times.latency_ps - times.device_ps,
        "device_ratio": [a / b if b else None for a, b in zip(device, latency, strict=True)],
    }
    untold = () if (times.direction >= 0).any() else (NO_DIRECTION_NOTE,)
    return ShardRows(rows_of(COLUMNS, data), (*layers.notes, *untold))
