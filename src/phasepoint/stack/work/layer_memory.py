"""The bytes that each layer's work allocated.

From the allocator's events where there are any; of a compiled program the sizes of its instructions' results, which is
what the layer writes: the compiler gives results the same buffers one after another.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.groups import sum_by
from phasepoint.core.tables import Column
from phasepoint.hlo.shapes import ELEMENT_BYTES, parse_array
from phasepoint.stack.shard.executions import distinct_instructions
from phasepoint.stack.shard.hierarchy import NONE, find_rows
from phasepoint.stack.shard.layers import read_layers
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.work import read_work

MEMORY = Column("bytes", pa.int64(), "bytes allocated by its work in the captured steps", "bytes", nullable=True)
MEMORY_SOURCE = Column(
    "bytes_source",
    pa.string(),
    "counter: the allocator's events; compiler: sizes of results",
    nullable=True,
)

NO_MEMORY_NOTE = (
    "memory by layer is not known: torch.profiler records the allocator's events with profile_memory=True; "
    "JAX has the sizes of results in the program in the trace"
)

_ARRAYS = re.compile(r"[a-z][a-z0-9]*\[[0-9,<=]*\]")
_NO_RESULT = frozenset(
    {"while", "conditional", "call", "tuple", "get-tuple-element", "bitcast", "parameter", "constant"}
)


@dataclass(frozen=True)
class LayerMemory:
    """What layers allocated.

    Attributes:
        bytes: by layer code, -1 for what belongs to no layer; empty where nothing is known.
        source: counter or compiler, None where nothing is known.
        notes: what would bring it.
    """

    bytes: Mapping[int, int]
    source: str | None
    notes: tuple[str, ...]


def read_memory(shard: StackShard) -> LayerMemory:
    """The bytes that each layer allocated.

    Raises:
        StoreError: the tables cannot be read.
    """
    allocations = shard.table("allocations")
    if allocations.num_rows:
        return LayerMemory(_allocated(shard, allocations), "counter", ())
    found = _written(shard)
    return LayerMemory(found, "compiler", ()) if found else LayerMemory({}, None, (NO_MEMORY_NOTE,))


def _allocated(shard: StackShard, allocations: pa.Table) -> dict[int, int]:
    taken = allocations.filter(pc.greater(allocations["bytes"], 0))
    spans, layers = shard.table("spans"), shard.once(read_layers)
    known = taken["span"].is_valid().to_numpy()
    row = find_rows(spans, taken["window"].to_numpy(), taken["span"].fill_null(0).to_numpy(), known)
    code = np.append(layers.code, -1)[np.where(row == NONE, spans.num_rows, row)]
    return _sums(code, taken["bytes"].to_numpy())


def _written(shard: StackShard) -> dict[int, int]:
    """Sizes of the results of executed instructions; of one that ran as several kernels once."""
    work = shard.once(read_work)
    taken = shard.table("spans").take(pa.array(work.row))
    rows = np.flatnonzero(taken["program"].is_valid().to_numpy() & work.op_begins)
    if not len(rows):
        return {}
    instructions, number = distinct_instructions(taken.select(["program", "op", "name"]).take(pa.array(rows)))
    columns = shard.table("instructions", ["program", "op", "opcode", "shape"]).to_pydict().values()
    sizes = {
        (p, op): 0 if opcode in _NO_RESULT else result_bytes(shape)
        for p, op, opcode, shape in zip(*columns, strict=True)
    }
    size = np.array([sizes.get(instruction, -1) for instruction in instructions], np.int64)[number]
    return _sums(work.layer[rows][size >= 0], size[size >= 0])


def _sums(code: Int64s, size: Int64s) -> dict[int, int]:
    values, place = np.unique(code, return_inverse=True)
    return dict(zip(values.tolist(), sum_by(place.ravel(), len(values), size).tolist(), strict=True))


def result_bytes(shape: str) -> int:
    """Bytes of a result as HLO writes its shape; of a tuple those of its arrays. Types of unknown size count nothing.

    Example:
        >>> result_bytes("(f32[2,3]{1,0}, bf16[4])")
        32
    """
    arrays = [array for text in _ARRAYS.findall(shape) if (array := parse_array(text)) is not None]
    return sum(array.elements * ELEMENT_BYTES.get(array.element_type, 0) for array in arrays)
