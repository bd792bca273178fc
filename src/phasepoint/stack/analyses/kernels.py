"""What ran on devices: every execution, and executions added up by name, layer and device."""

import numpy as np
import pyarrow as pa

from phasepoint.core.groups import number_groups, sum_by
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import read_peaks
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis
from phasepoint.stack.work.counters import COUNTED_NOTE, counted_kernels
from phasepoint.stack.work.latency import DEVICE, DEVICE_TIME, INDEX, KERNELS, LAYER, SHARE, TYPE, layer_names, shares
from phasepoint.stack.work.totals import KNOWN_COLUMN, QUANTITY_COLUMNS, group_work, quantity_data
from phasepoint.stack.work.work import direction_texts, layer_texts, read_work


@analysis(
    DEVICE,
    Column("name", pa.string(), "name as the profiler gave it"),
    Column("category", pa.string(), "compute, communication, data_movement or host"),
    LAYER,
    Column("direction", pa.string(), "forward, backward or optimizer", nullable=True),
    Column("start_ps", pa.int64(), "start, from the session's epoch", "ps"),
    Column("time_ps", pa.int64(), "duration of a kernel; self time of an op, which may hold others", "ps"),
    *QUANTITY_COLUMNS,
    order=[("time_ps", "descending"), ("start_ps", "ascending")],
)
def kernel_information(shard: StackShard) -> RowsAndNotes:
    """A8, GPU kernel information: every execution on a device, the longest first."""
    work, peaks = shard.once(read_work), shard.once(read_peaks)
    device = [work.devices[code] for code in work.device.tolist()]
    quantities = quantity_data(work, np.arange(len(work.row)), device, peaks)
    rows = {
        "device": device,
        "name": [work.names[code] for code in work.name.tolist()],
        "category": [work.categories[code] for code in work.category.tolist()],
        "layer": layer_texts(work.layer, work.layers),
        "direction": direction_texts(work.direction),
        "start_ps": work.start_ps,
        "time_ps": work.time_ps,
        **{column.name: quantities[column.name] for column in QUANTITY_COLUMNS},
    }
    return rows, (*work.notes, *peaks.notes(work.used_devices))


@analysis(
    Column("device", pa.string(), "the device; null where counters know the kernel's name only", nullable=True),
    Column("name", pa.string(), "name as the profiler gave it"),
    Column("category", pa.string(), "compute, communication, data_movement or host", nullable=True),
    KERNELS,
    Column("device_ps", pa.int64(), f"{DEVICE_TIME.doc}; null where there are none", "ps", nullable=True),
    SHARE,
    Column("layers", pa.int64(), "layers that it worked for", "layers"),
    *QUANTITY_COLUMNS,
    KNOWN_COLUMN,
    order=[("device_ps", "descending")],
)
def kernels_by_name(shard: StackShard) -> RowsAndNotes:
    """A10, GPU kernel information aggregated by name, the most time first."""
    groups = group_work(shard, "device", "name", "category")
    work, n_groups = groups.work, len(groups.first)
    pair_first = number_groups(groups.group, work.layer)[1]
    in_layer = pair_first[work.layer[pair_first] >= 0]
    rows = {
        "device": groups.device,
        "name": [work.names[code] for code in work.name[groups.first].tolist()],
        "category": [work.categories[code] for code in work.category[groups.first].tolist()],
        "kernels": groups.count,
        "device_ps": groups.time_ps,
        "share_ratio": shares(groups.time_ps.tolist()),
        "layers": np.bincount(groups.group[in_layer], minlength=n_groups),
        **groups.quantities(),
    }
    counted = counted_kernels(shard)
    if not counted:
        return rows, groups.notes
    unknown = [None] * len(counted["name"])
    for column, values in rows.items():
        rows[column] = [*pa.array(values).to_pylist(), *counted.get(column, unknown)]
    return rows, (*groups.notes, COUNTED_NOTE)


@analysis(DEVICE, INDEX, LAYER, TYPE, KERNELS, DEVICE_TIME, SHARE, *QUANTITY_COLUMNS, KNOWN_COLUMN)
def layer_kernels(shard: StackShard) -> RowsAndNotes:
    """A11, GPU kernel information aggregated by layer, in order of execution; unattributed ones are a null layer."""
    groups = group_work(shard, "device", "layer")
    names, types = layer_names(groups.work.layer[groups.first], groups.work.layers)
    rows = {
        "device": groups.device,
        "index": list(range(len(names))),
        "layer": names,
        "type": types,
        "kernels": groups.count,
        "device_ps": groups.time_ps,
        "share_ratio": shares(groups.time_ps.tolist()),
        **groups.quantities(),
    }
    return rows, groups.notes


def _share(name: str, of: str) -> Column:
    return Column(name, pa.float64(), f"share of the known {of} of all layers", "ratio", nullable=True)


_OF = {column.name: column for column in QUANTITY_COLUMNS}


@analysis(
    DEVICE,
    INDEX,
    LAYER,
    TYPE,
    _OF["flop"],
    _share("flop_ratio", "flop"),
    _OF["flop_source"],
    KNOWN_COLUMN,
    _OF["read_bytes"],
    _OF["write_bytes"],
    _OF["bytes"],
    _share("bytes_ratio", "bytes"),
    _OF["bytes_source"],
    _OF["occupancy_ratio"],
    _OF["occupancy_source"],
    DEVICE_TIME,
    _share("time_ratio", "time"),
)
def layer_metrics(shard: StackShard) -> RowsAndNotes:
    """A12, GPU metrics aggregated by layer: shares of flop, traffic and time, and occupancy, in order of execution."""
    groups = group_work(shard, "device", "layer")
    names, types = layer_names(groups.work.layer[groups.first], groups.work.layers)
    quantities = groups.quantities()
    rows = {
        "device": groups.device,
        "index": list(range(len(names))),
        "layer": names,
        "type": types,
        "flop_ratio": shares(quantities["flop"]),
        "bytes_ratio": shares(quantities["bytes"]),
        "device_ps": groups.time_ps,
        "time_ratio": shares(groups.time_ps.tolist()),
        **{name: value for name, value in quantities.items() if name not in _LEFT_OUT},
    }
    return rows, groups.work.notes


_LEFT_OUT = ("flop_per_byte", "flop_per_s", "is_memory_bound")
"""Quantities of a layer that its roofline shows."""


@analysis(
    DEVICE,
    KERNELS,
    Column("device_ps", pa.int64(), "durations of all executions (self times of ops) added up", "ps"),
    Column("attributed_ps", pa.int64(), "part of it that belongs to a layer", "ps"),
    Column("unattributed_ps", pa.int64(), "device_ps less attributed_ps", "ps"),
    Column("names", pa.int64(), "different kernels", "kernels"),
    *QUANTITY_COLUMNS,
    KNOWN_COLUMN,
    order=[("device", "ascending")],
)
def kernels_by_model(shard: StackShard) -> RowsAndNotes:
    """A15, GPU kernel information aggregated by model: all that a device did, in one row."""
    groups = group_work(shard, "device")
    work, n_groups = groups.work, len(groups.first)
    in_layer_ps = sum_by(groups.group, n_groups, (work.layer >= 0) * work.time_ps)
    name_first = number_groups(groups.group, work.name)[1]
    rows = {
        "device": groups.device,
        "kernels": groups.count,
        "device_ps": groups.time_ps,
        "attributed_ps": in_layer_ps,
        "unattributed_ps": groups.time_ps - in_layer_ps,
        "names": np.bincount(groups.group[name_first], minlength=n_groups),
        **groups.quantities(),
    }
    return rows, groups.notes
