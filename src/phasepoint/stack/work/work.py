"""What every execution on a shard's devices did: its time, layer, flop, bytes and occupancy, and who says so."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.stack.shard.executions import NO_DEVICE_NOTE, read_executions
from phasepoint.stack.shard.layers import DIRECTIONS, Layers, read_layers
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.quantities import SOURCES, Quantities, join_quantities
from phasepoint.stack.work.quantity_sources import (
    compiler_quantities,
    counter_quantities,
    first_of_instances,
    formula_quantities,
)


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """Executions on the devices of a shard, in the order of their spans. Arrays are `[n]`.

    Attributes:
        row: row of the shard's `spans`.
        start_ps: start, from the session's epoch.
        end_ps: end.
        time_ps: what is charged to it: a kernel's duration; of ops, which nest, the self time.
        device: index into `devices`.
        name: index into `names`.
        category: index into `categories`.
        layer: index into the layers' names, -1 where unattributed.
        direction: index into `DIRECTIONS`, -1 where unknown.
        op_begins: whether it is the first of the kernels that its op's execution ran as; true of ops themselves.
        quantities: flop, bytes and occupancy.
        devices, names, categories: the values.
        layers: the layers.
        notes: what is not known, and what would bring it.
    """

    row: Int64s
    start_ps: Int64s
    end_ps: Int64s
    time_ps: Int64s
    device: Int64s
    name: Int64s
    category: Int64s
    layer: Int64s
    direction: Int64s
    op_begins: NDArray[np.bool_]
    quantities: Quantities
    devices: tuple[str, ...]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    layers: Layers
    notes: tuple[str, ...]

    @property
    def used_devices(self) -> list[str]:
        """The devices that worked."""
        return [self.devices[code] for code in np.unique(self.device).tolist()]


def read_work(shard: StackShard) -> DeviceWork:
    """The executions of a shard with all that is known of them.

    Raises:
        StoreError: the tables cannot be read.
    """
    executions = shard.once(read_executions)
    spans, layers = shard.table("spans"), shard.once(read_layers)
    row = executions.row
    taken = spans.take(pa.array(row))
    is_kernel = pc.equal(taken["level"], "kernel").to_numpy()
    time_ps = np.where(is_kernel, taken["dur_ps"].to_numpy(), taken["self_ps"].to_numpy())
    device, devices = encode_column(taken["device"])
    name, names = encode_column(taken["name"])
    category, categories = encode_column(taken["category"])
    quantities = join_quantities(
        [
            counter_quantities(shard, row),
            compiler_quantities(shard, row, time_ps),
            formula_quantities(shard, row, time_ps),
        ]
    )
    notes = (*layers.notes, *_quantity_notes(quantities)) if len(row) else (NO_DEVICE_NOTE,)
    return DeviceWork(
        row=row,
        start_ps=executions.start_ps,
        end_ps=executions.end_ps,
        time_ps=time_ps,
        device=device,
        name=name,
        category=category,
        layer=layers.code[row],
        direction=layers.direction[row],
        op_begins=first_of_instances(taken),
        quantities=quantities,
        devices=tuple(devices),
        names=tuple(names),
        categories=tuple(categories),
        layers=layers,
        notes=notes,
    )


def layer_texts(work_layer: Int64s, layers: Layers) -> list[str | None]:
    """`[n]` names of layers by code, None where unattributed."""
    values = (*layers.names, None)
    return [values[code] for code in work_layer.tolist()]


def direction_texts(direction: Int64s) -> list[str | None]:
    """`[n]` directions by code, None where unknown."""
    values = (*DIRECTIONS, None)
    return [values[code] for code in direction.tolist()]


def _quantity_notes(quantities: Quantities) -> list[str]:
    notes = []
    if not quantities.flop.known.any():
        notes.append(
            "flop are not known: for PyTorch import a trace of torch.profiler with record_shapes=True (Phasepoint's "
            "windows leave shapes out, which cost time at every operator); counters come with CUPTI metrics or "
            "rocprofv3 --pmc; JAX has them from the program in the trace"
        )
    if not (quantities.bytes.source & SOURCES["counter"]).any():
        notes.append(
            "bytes are not measured: DRAM traffic takes hardware counters (dram__bytes_read.sum and "
            "dram__bytes_write.sum of CUPTI, FETCH_SIZE and WRITE_SIZE of rocprofv3); "
            "what stands here is what the source column says"
        )
    if not quantities.occupancy.known.any():
        notes.append(
            "occupancy is not known: it comes with launch parameters of CUDA kernels, or with hardware counters"
        )
    return notes
