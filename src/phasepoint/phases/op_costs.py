"""What the captured ops of every phase cost: self time, and flop and bytes where the compiled program states them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.phases.analysis import Analysis
from phasepoint.phases.captured import Captured
from phasepoint.phases.op_columns import OpColumns, OpKey, read_op_columns

_KEYS = ("host", "attempt", "program")


@dataclass(frozen=True)
class OpCost:
    """One op of one phase, added over its captured steps, devices and threads.

    Attributes:
        op: name as the profiler gives it.
        category: compute, communication, data_movement or host.
        layer: module path; of the op, else of its instruction; None where neither is known.
        count: executions.
        self_ps: self time.
        flop: floating-point operations of all executions, None where unknown.
        bytes: bytes accessed by all executions, None where unknown.
    """

    op: str
    category: str
    layer: str | None
    count: int
    self_ps: int
    flop: int | None
    bytes: int | None


@dataclass(frozen=True)
class _Instruction:
    layer: str | None
    flop: int | None
    bytes: int | None


_UNKNOWN = _Instruction(None, None, None)


def read_op_costs(analysis: Analysis) -> Mapping[int, tuple[OpCost, ...]]:
    """By phase id, the ops of its captured steps, the most self time first; a phase without captured ops is absent.

    An op of two programs (two batch sizes compile into two) is two rows: they differ in flop and bytes.
    """
    rows = np.flatnonzero(analysis.estimates.captured).astype(np.int64)
    if not len(rows):
        return {}
    none = np.empty(0)
    captured = Captured(rows, analysis.estimates.window[rows], none, none.astype(np.int64))
    programs = _by_id(analysis.tables["programs"])
    columns = read_op_columns(analysis.tables["ops"], programs, analysis.keys, captured)
    if not len(columns.index):
        return {}
    instructions = _read_instructions(analysis, columns)
    phases, group = np.unique(analysis.labels[rows], return_inverse=True)
    self_ps = columns.sums(group.ravel(), len(phases), columns.self_ps)
    count = columns.sums(group.ravel(), len(phases), columns.count)
    return {
        phase: _costs(columns.keys, instructions, self_ps[i], count[i])
        for i, phase in enumerate(phases.tolist())
        if count[i].any()
    }


def _costs(
    keys: tuple[OpKey, ...], instructions: Mapping[tuple[str, str], _Instruction], self_ps: Int64s, count: Int64s
) -> tuple[OpCost, ...]:
    costs = []
    for i in np.flatnonzero(count | self_ps).tolist():
        key, times = keys[i], int(count[i])
        known = instructions.get((key.program or "", key.op), _UNKNOWN)
        flop = None if known.flop is None else known.flop * times
        size = None if known.bytes is None else known.bytes * times
        layer = key.layer or known.layer
        costs.append(OpCost(key.op, key.category, layer, times, int(self_ps[i]), flop, size))
    return tuple(sorted(costs, key=lambda cost: (-cost.self_ps, cost.op)))


def _by_id(programs: pa.Table) -> pa.Table:
    """The programs table with names that are unique, so that ops of two programs of one name stay apart."""
    names = [_program_key(row) for row in programs.select(_KEYS).to_pylist()]
    index = programs.schema.get_field_index("name")
    return programs.set_column(index, "name", pa.array(names, pa.string()))


def _program_key(row: Mapping[str, int]) -> str:
    return "/".join(str(row[name]) for name in _KEYS)


def _read_instructions(analysis: Analysis, columns: OpColumns) -> dict[tuple[str, str], _Instruction]:
    """Instructions of the captured ops by program and name; null costs stay unknown."""
    wanted = pa.array(sorted({key.op for key in columns.keys}), pa.string())
    table = analysis.run.table("instructions", columns=["program", "op", "layer", "flop", "bytes"])
    table = table.filter(pc.is_in(table.column("op").cast(pa.string()), value_set=wanted))
    return {
        (_program_key(row), row["op"]): _Instruction(row["layer"], row["flop"], row["bytes"])
        for row in table.to_pylist()
    }
