"""Every layer with its type, latency, memory, and the shape that stands for its size."""

import numpy as np
import pyarrow as pa

from phasepoint.core.encoding import encode_column
from phasepoint.core.tables import Column
from phasepoint.hlo.shapes import parse_array
from phasepoint.stack.shard.executions import distinct_instructions
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis
from phasepoint.stack.work.latency import (
    INDEX,
    LATENCY,
    LAYER,
    STEP_LATENCY,
    STEPS,
    TYPE,
    layer_names,
    layer_times,
    nullable_steps,
)
from phasepoint.stack.work.layer_memory import MEMORY, MEMORY_SOURCE, read_memory


@analysis(
    INDEX,
    LAYER,
    TYPE,
    Column("source", pa.string(), "module, or op where operations of the framework stand for layers", nullable=True),
    Column(
        "shape",
        pa.string(),
        "types and shapes into its first op, out of a convolution; of a program, the largest result",
        nullable=True,
    ),
    STEPS,
    LATENCY,
    STEP_LATENCY,
    MEMORY,
    MEMORY_SOURCE,
)
def layer_information(shard: StackShard) -> RowsAndNotes:
    """A2, layer information: every layer in the order of execution; what belongs to no layer has no row."""
    layers, times = shard.once(read_layers), shard.once(layer_times)
    memory = shard.once(read_memory)
    kept = times.layer >= 0
    codes = times.layer[kept]
    names, types = layer_names(codes, layers)
    steps, step_latency_ps = (column.filter(pa.array(kept)) for column in nullable_steps(times))
    shapes = layer_shapes(shard)
    rows = {
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
    return rows, (*layers.notes, *memory.notes)


def layer_shapes(shard: StackShard) -> dict[int, str]:
    """Shape by layer code: of what goes into its first op, else the largest result of its programs' instructions."""
    return _of_operands(shard) or _of_results(shard)


def _of_operands(shard: StackShard) -> dict[int, str]:
    spans, layers = shard.table("spans"), shard.once(read_layers)
    shape, shapes = encode_column(spans["shape"])
    rows = np.flatnonzero((shape >= 0) & (layers.code >= 0))
    rows = rows[[bool(shapes[code]) for code in shape[rows].tolist()]] if len(rows) else rows
    rows = rows[np.argsort(spans["start_ps"].to_numpy()[rows], kind="stable")]
    codes, first = np.unique(layers.code[rows], return_index=True)
    return dict(zip(codes.tolist(), [shapes[code] for code in shape[rows[first]].tolist()], strict=True))


def _of_results(shard: StackShard) -> dict[int, str]:
    spans, layers = shard.table("spans"), shard.once(read_layers)
    rows = np.flatnonzero(spans["program"].is_valid().to_numpy() & (layers.code >= 0))
    if not len(rows):
        return {}
    instructions, number = distinct_instructions(spans.select(["program", "op", "name"]).take(pa.array(rows)))
    columns = shard.table("instructions", ["program", "op", "shape"]).to_pydict().values()
    known = {(program, op): shape for program, op, shape in zip(*columns, strict=True)}
    found: dict[int, tuple[int, str]] = {}
    for layer, of_layer in sorted(set(zip(layers.code[rows].tolist(), number.tolist(), strict=True))):
        text = known.get(instructions[of_layer])
        array = parse_array(text) if text else None
        if array is not None and array.elements > found.get(layer, (-1, ""))[0]:
            found[layer] = array.elements, f"{array.element_type}[{','.join(map(str, array.dims))}]"
    return {layer: text for layer, (_, text) in found.items()}
