"""How long layers took: each one, those of a type together, and how much of it a device worked for them."""

from collections import Counter

import numpy as np
import pyarrow as pa

from phasepoint.core.encoding import encode_column
from phasepoint.core.groups import sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis
from phasepoint.stack.work.latency import (
    INDEX,
    LATENCY,
    LAYER,
    SHARE,
    STEP_LATENCY,
    STEPS,
    TYPE,
    direction_times,
    layer_names,
    layer_times,
    nullable_steps,
    shares,
)
from phasepoint.stack.work.work import direction_texts


@analysis(INDEX, LAYER, TYPE, LATENCY, SHARE, STEPS, STEP_LATENCY)
def layer_latency(shard: StackShard) -> RowsAndNotes:
    """A3, layer latency: how long each layer took, in the order of execution; a null layer is what belongs to none."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    names, types = layer_names(times.layer, layers)
    steps, step_latency_ps = nullable_steps(times)
    rows = {
        "index": list(range(len(names))),
        "layer": names,
        "type": types,
        "latency_ps": times.latency_ps,
        "share_ratio": shares(times.latency_ps.tolist()),
        "steps": steps,
        "step_latency_ps": step_latency_ps,
    }
    return rows, layers.notes


@analysis(TYPE, Column("layers", pa.int64(), "layers of this type that ran", "layers"), SHARE)
def layer_types(shard: StackShard) -> RowsAndNotes:
    """A5, layer type distribution: how many layers there are of each type, the most frequent first."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    types = Counter(layer_names(times.layer[times.layer >= 0], layers)[1])
    ranked = sorted(types.items(), key=lambda item: (-item[1], str(item[0])))
    counts = [count for _, count in ranked]
    return {"type": [name for name, _ in ranked], "layers": counts, "share_ratio": shares(counts)}, layers.notes


@analysis(
    TYPE,
    Column("layers", pa.int64(), "layers of this type that ran", "layers"),
    Column("latency_ps", pa.int64(), "latencies of its layers added up", "ps"),
    SHARE,
    Column("device_ps", pa.int64(), "part of it in which a device worked for them", "ps"),
)
def layer_latency_by_type(shard: StackShard) -> RowsAndNotes:
    """A6, layer latency aggregated by type, the longest first; what belongs to no layer has a null type."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    types = layer_names(times.layer, layers)[1]
    code, values = encode_column(pa.chunked_array([pa.array(types, pa.string())]))
    n_rows = len(values) + 1
    group = np.where(code < 0, len(values), code)
    latency_ps, device_ps = (sum_by(group, n_rows, time_ps) for time_ps in (times.latency_ps, times.device_ps))
    count = np.bincount(group, minlength=n_rows)
    names = [*values, None]
    order = [i for i in np.lexsort((np.arange(n_rows), -latency_ps)).tolist() if count[i]]
    rows = {
        "type": [names[i] for i in order],
        "layers": count[order],
        "latency_ps": latency_ps[order],
        "share_ratio": shares(latency_ps[order].tolist()),
        "device_ps": device_ps[order],
    }
    return rows, layers.notes


NO_DIRECTION_NOTE = (
    "forward and backward are not told apart: PyTorch's traces do by sequence numbers or fwdbwd flows, "
    "JAX's by jvp and transpose in the names of operations"
)


@analysis(
    INDEX,
    LAYER,
    TYPE,
    Column("direction", pa.string(), "forward, backward or optimizer; null where unknown", nullable=True),
    LATENCY,
    Column("device_ps", pa.int64(), "part of it in which a device worked for the layer", "ps"),
    Column("non_device_ps", pa.int64(), "latency_ps less device_ps", "ps"),
    Column("device_ratio", pa.float64(), "device_ps over latency_ps", "ratio", nullable=True),
)
def device_share(shard: StackShard) -> RowsAndNotes:
    """A13, GPU versus non-GPU latency per layer, forward and backward apart, in order of execution.

    Latency is the time in which the layer's own work was under way; the device's part of it is the union of its
    executions, the rest is the host alone. Where the device's queue is full the host's part is hidden behind earlier
    layers. A null layer is what belongs to none.
    """
    layers, times = shard.once(read_layers), shard.once(direction_times)
    names, types = layer_names(times.layer, layers)
    latency, device = times.latency_ps.tolist(), times.device_ps.tolist()
    rows = {
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
    return rows, (*layers.notes, *untold)
