"""Rooflines: a point for each kernel or layer whose flop and bytes are known, the most time first."""

import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis
from phasepoint.stack.work.latency import DEVICE, DEVICE_TIME, KERNELS, LAYER, TYPE, layer_names
from phasepoint.stack.work.totals import ROOFLINE_COLUMNS, group_work
from phasepoint.stack.work.work import layer_texts


@analysis(
    DEVICE,
    Column("name", pa.string(), "name of the kernel, as the profiler gave it"),
    LAYER,
    KERNELS,
    Column("time_ps", pa.int64(), "durations of its executions (self times of ops) added up", "ps"),
    *ROOFLINE_COLUMNS,
    order=[("time_ps", "descending")],
)
def kernel_roofline(shard: StackShard) -> RowsAndNotes:
    """A9, GPU kernel roofline: a point for each kernel of each layer."""
    groups = group_work(shard, "device", "name", "layer")
    points, shown = groups.rooflines()
    work, first = groups.work, groups.first[shown]
    rows = {
        "device": [groups.device[i] for i in shown.tolist()],
        "name": [work.names[code] for code in work.name[first].tolist()],
        "layer": layer_texts(work.layer[first], work.layers),
        "kernels": groups.count[shown],
        "time_ps": groups.time_ps[shown],
        **points,
    }
    return rows, groups.notes


@analysis(DEVICE, LAYER, TYPE, DEVICE_TIME, *ROOFLINE_COLUMNS, order=[("device_ps", "descending")])
def layer_roofline(shard: StackShard) -> RowsAndNotes:
    """A14, layer roofline: a point for each layer; a null layer is what belongs to none."""
    groups = group_work(shard, "device", "layer")
    points, shown = groups.rooflines()
    names, types = layer_names(groups.work.layer[groups.first[shown]], groups.work.layers)
    rows = {
        "device": [groups.device[i] for i in shown.tolist()],
        "layer": names,
        "type": types,
        "device_ps": groups.time_ps[shown],
        **points,
    }
    return rows, groups.notes
