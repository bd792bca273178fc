"""HLO programs of a capture → `programs` and `instructions`.

XLA's profiler puts every compiled program that ran into the trace, on TPU, GPU and CPU alike, so that the program's
instructions, their arithmetic and their module paths need no annotation and no JAX.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.sources.categories import category_of_opcode
from phasepoint.sources.hlo_cost import Cost, ModuleCost, cost_of_module
from phasepoint.sources.hlo_fingerprint import fingerprint_module
from phasepoint.sources.hlo_layers import layer_of_op_name
from phasepoint.sources.hlo_module import Computation, Instruction, Module, parse_module

_NEUTRAL = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "iota", "after-all"})
"""Opcodes that say nothing about what a fusion does: they name, count or forward values."""

_PROGRAM_COLUMNS, _INSTRUCTION_COLUMNS = (
    tuple(column.name for column in TABLES[name].columns) for name in ("programs", "instructions")
)

_WRAPPERS = frozenset({"fusion", "call", "async-start", "async-update", "async-done", "while", "conditional"})
"""Opcodes that are what stands inside them."""


@dataclass(frozen=True)
class HloTables:
    """Programs of one capture, as the tables of a run.

    Attributes:
        programs: rows of `programs`, one a program.
        instructions: rows of `instructions`, in the modules' order.
    """

    programs: pa.Table
    instructions: pa.Table


def read_programs(protos: Mapping[int, bytes], *, window: int) -> HloTables:
    """Decode the HLO protos of a capture.

    Args:
        protos: serialised `HloProto` by program id.
        window: number of the window in which the programs were seen.

    Raises:
        SourceError: a proto cannot be decoded; the message names the program and the reason.
    """
    programs: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {name: [] for name in _INSTRUCTION_COLUMNS}
    for program, data in sorted(protos.items()):
        try:
            module = parse_module(data)
        except SourceError as error:
            raise SourceError(f"program {program} of window {window}: {error}") from error
        cost = cost_of_module(module)
        programs.append(_program_row(program, module, cost, window))
        for row in _instruction_rows(program, module, cost):
            for name, value in zip(_INSTRUCTION_COLUMNS, row, strict=True):
                columns[name].append(value)
    return HloTables(
        table_from_columns("programs", {name: [row[name] for row in programs] for name in _PROGRAM_COLUMNS}),
        table_from_columns("instructions", columns),
    )


def _program_row(program: int, module: Module, cost: ModuleCost, window: int) -> dict[str, Any]:
    return {
        "program": program,
        "name": module.name,
        "fingerprint": fingerprint_module(module),
        "first_window": window,
        "instructions": sum(len(computation.instructions) for computation in module.computations),
        "flop": cost.total.flop,
        "bytes": cost.total.bytes,
        "transcendentals": cost.total.transcendentals,
        "notes": "; ".join(cost.notes) or None,
    }


def _instruction_rows(program: int, module: Module, cost: ModuleCost) -> Iterator[tuple[Any, ...]]:
    """Values in the order of `_INSTRUCTION_COLUMNS`."""
    costs = iter(cost.instructions)
    layers = _Layers(module, cost)
    categories: dict[Computation, str | None] = {}
    for computation in module.computations:
        categories[computation] = _category_of_computation(computation, categories)
        is_entry = computation is module.entry
        for one in computation.instructions:
            own = next(costs)
            file, line = one.source or (None, None)
            yield (
                program,
                computation.name,
                one.name,
                one.opcode,
                _category_of_instruction(one, categories) or category_of_opcode(one.opcode),
                one.shape.text,
                [operand.name for operand in one.operands],
                [callee.name for callee in one.called],
                one is computation.root,
                is_entry,
                own.flop,
                own.bytes,
                own.transcendentals,
                layers.of(one),
                one.op_name or None,
                file,
                line,
            )


def _category_of_instruction(one: Instruction, inside: dict[Computation, str | None]) -> str | None:
    """Category of an instruction, None for one that is neutral. A wrapper has the category of what it wraps."""
    if one.opcode in _NEUTRAL:
        return None
    if one.opcode in _WRAPPERS and one.called:
        found = {inside[callee] for callee in one.called} - {None}
        if one.opcode != "fusion" and "compute" in found:
            return "compute"
        return next((c for c in ("communication", "compute", "data_movement") if c in found), "data_movement")
    return category_of_opcode(one.opcode)


def _category_of_computation(computation: Computation, inside: dict[Computation, str | None]) -> str | None:
    """What a computation does: exchange if it exchanges, else compute if anything computes, else moving data."""
    found = {_category_of_instruction(one, inside) for one in computation.instructions}
    if computation.instructions and "communication" in found:
        return "communication"
    return next((c for c in ("compute", "data_movement") if c in found), None)


class _Layers:
    """Layer of an instruction: its own, or for a wrapper without a name that of the heaviest instruction inside."""

    def __init__(self, module: Module, cost: ModuleCost) -> None:
        instructions = (one for computation in module.computations for one in computation.instructions)
        self._cost_of = {id(one): cost for one, cost in zip(instructions, cost.instructions, strict=True)}

    def of(self, instruction: Instruction) -> str | None:
        if instruction.op_name:
            return layer_of_op_name(instruction.op_name)
        if instruction.opcode not in _WRAPPERS or not instruction.called:
            return None
        return self._of_body(instruction.called[0])

    def _of_body(self, body: Computation) -> str | None:
        """The root's layer; where the root has none, that of the named instruction with most operations."""
        if body.root.op_name:
            return layer_of_op_name(body.root.op_name)
        named = [one for one in body.instructions if layer_of_op_name(one.op_name)]
        heaviest = max(named, key=lambda one: _weight(self._cost_of[id(one)]), default=None)
        return layer_of_op_name(heaviest.op_name) if heaviest else None


def _weight(cost: Cost) -> tuple[int, int]:
    return (cost.flop or 0) + (cost.transcendentals or 0), cost.bytes or 0
