"""How long layers took: the time in which a layer's own work was under way, on the host or on a device.

A layer is the innermost one around its work, so a block's time is what it does between its parts. What runs on the host
counts while nothing nested in it runs; a kernel counts from its start to its end, also after the host has gone on.

Columns that tables of layers have in common.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column, encode_rows
from phasepoint.core.groups import medians_by, number_groups, sum_by, union_by
from phasepoint.core.nesting import nest_spans
from phasepoint.core.tables import Column
from phasepoint.stack.shard.layers import Layers, read_layers
from phasepoint.stack.shard.shard import StackShard

DEVICE = Column("device", pa.string(), "the device: gpu:0, tpu:0, cpu:0")
LAYER = Column("layer", pa.string(), "module path; null for what belongs to no layer", nullable=True)
TYPE = Column("type", pa.string(), "class of the layer: Conv2d, Linear", nullable=True)
INDEX = Column("index", pa.int64(), "place in the order in which the layers first ran")
STEPS = Column("steps", pa.int64(), "captured steps in which it ran, where steps are known", "steps", nullable=True)
LATENCY = Column(
    "latency_ps", pa.int64(), "time in which its own work was under way, host or device, over the captured steps", "ps"
)
STEP_LATENCY = Column("step_latency_ps", pa.int64(), "median of one step", "ps", nullable=True)
SHARE = Column("share_ratio", pa.float64(), "share of the column before it in the host's sum", "ratio", nullable=True)
KERNELS = Column("kernels", pa.int64(), "executions on the device", "executions")
DEVICE_TIME = Column("device_ps", pa.int64(), "durations of its kernels (self times of ops, which nest) added up", "ps")


def shares(values: "pa.Array | list[int]") -> list[float | None]:
    """Each value over the sum of all, None where that is 0."""
    listed = values.to_pylist() if isinstance(values, pa.Array) else [int(value) for value in values]
    total = sum(value or 0 for value in listed)
    return [None if value is None or not total else value / total for value in listed]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Stretches of work of layers. Arrays are `[n]`.

    Attributes:
        start_ps: start.
        end_ps: end.
        layer: index into the layers' names, -1 where unattributed.
        direction: index into `DIRECTIONS`, -1 where unknown.
        step: step, -1 outside every step.
        on_device: whether a device works; else the host does.
    """

    start_ps: Int64s
    end_ps: Int64s
    layer: Int64s
    direction: Int64s
    step: Int64s
    on_device: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """Times by layer, or by layer and direction, in the order in which they first ran. Arrays are `[n]`.

    Attributes:
        layer: index into the layers' names, -1 for what belongs to no layer.
        direction: index into `DIRECTIONS`, -1 where unknown; all -1 where directions are not told apart.
        latency_ps: time in which its work was under way, added over the captured steps.
        device_ps: the part of it in which a device worked.
        steps: captured steps in which it ran, 0 where steps are not known.
        step_latency_ps: median over these steps; of an even number the lower middle.
    """

    layer: Int64s
    direction: Int64s
    latency_ps: Int64s
    device_ps: Int64s
    steps: Int64s
    step_latency_ps: Int64s


def read_intervals(shard: StackShard) -> Intervals:
    """The stretches of work of a shard; marks of steps are none, nor is what the host does outside every layer.

    Raises:
        StoreError: the tables cannot be read.
    """
    spans, layers = shard.table("spans"), shard.once(read_layers)
    start_ps = spans["start_ps"].to_numpy()
    end_ps = start_ps + spans["dur_ps"].to_numpy()
    level, levels = encode_column(spans["level"])
    device, devices = encode_column(spans["device"])
    of_level = {name: level == code for code, name in enumerate(levels)}
    nothing = np.zeros(len(level), np.bool_)
    on_device = device != (devices.index("host") if "host" in devices else -1)
    is_kernel = of_level.get("kernel", nothing) & on_device
    nested = np.flatnonzero(~is_kernel & ~of_level.get("model", nothing))
    nesting = nest_spans(encode_rows(spans, ("window", "track"))[nested], start_ps[nested], end_ps[nested])
    kernels = np.flatnonzero(is_kernel)
    row = np.concatenate((nested[nesting.segment_span], kernels))
    works = on_device & (is_kernel | of_level.get("op", nothing))
    kept = works[row] | (layers.code[row] >= 0)
    row = row[kept]
    return Intervals(
        start_ps=np.concatenate((nesting.segment_start_ps, start_ps[kernels]))[kept],
        end_ps=np.concatenate((nesting.segment_end_ps, end_ps[kernels]))[kept],
        layer=layers.code[row],
        direction=layers.direction[row],
        step=pc.fill_null(spans["step"], -1).to_numpy()[row],
        on_device=works[row],
    )


def layer_times(shard: StackShard) -> LayerTimes:
    """Times by layer."""
    return _times(shard, by_direction=False)


def direction_times(shard: StackShard) -> LayerTimes:
    """Times by layer and direction."""
    return _times(shard, by_direction=True)


def _times(shard: StackShard, *, by_direction: bool) -> LayerTimes:
    parts = shard.once(read_intervals)
    order = np.argsort(parts.start_ps, kind="stable")
    layer, step = parts.layer[order], parts.step[order]
    direction = parts.direction[order] if by_direction else np.full(len(order), -1, np.int64)
    start_ps, end_ps, on_device = parts.start_ps[order], parts.end_ps[order], parts.on_device[order]
    cell, first = number_groups(layer, direction, step)
    latency_ps = union_by(cell, len(first), start_ps, end_ps)
    device_ps = union_by(np.where(on_device, cell, -1), len(first), start_ps, end_ps)
    owner, first_cell = number_groups(layer[first], direction[first])
    n_rows = len(first_cell)
    in_step = step[first] >= 0
    ran, medians_ps = medians_by(owner[in_step], latency_ps[in_step])
    step_latency_ps = np.zeros(n_rows, np.int64)
    step_latency_ps[ran] = medians_ps
    return LayerTimes(
        layer=layer[first][first_cell],
        direction=direction[first][first_cell],
        latency_ps=sum_by(owner, n_rows, latency_ps),
        device_ps=sum_by(owner, n_rows, device_ps),
        steps=sum_by(owner, n_rows, in_step.astype(np.int64)),
        step_latency_ps=step_latency_ps,
    )


def nullable_steps(times: LayerTimes) -> tuple[pa.Array, pa.Array]:
    """Steps, and the median latency of one, null where steps are not known."""
    unknown = times.steps == 0
    return pa.array(times.steps, mask=unknown), pa.array(times.step_latency_ps, mask=unknown)


def layer_names(codes: Int64s, layers: Layers) -> tuple[list[str | None], list[str | None]]:
    """Names and types of layers by code, None for what belongs to no layer."""
    names, types = (*layers.names, None), (*layers.types, None)
    return [names[code] for code in codes.tolist()], [types[code] for code in codes.tolist()]
