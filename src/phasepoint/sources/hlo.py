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
from phasepoint.sources.hlo_category import categories_of_module
from phasepoint.sources.hlo_cost import ModuleCost, cost_of_module
from phasepoint.sources.hlo_fingerprint import fingerprint_module
from phasepoint.sources.hlo_layers import layers_of_module
from phasepoint.sources.hlo_module import Module, parse_module
from phasepoint.sources.hlo_packed import pack_hlo

_PROGRAM_COLUMNS, _INSTRUCTION_COLUMNS = (
    tuple(column.name for column in TABLES[name].columns) for name in ("programs", "instructions")
)


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
    instructions: list[tuple[Any, ...]] = []
    for program, data in sorted(protos.items()):
        try:
            module = parse_module(data)
        except SourceError as error:
            raise SourceError(f"program {program} of window {window}: {error}") from error
        cost = cost_of_module(module)
        programs.append({**_program_row(program, module, cost, window), "hlo": pack_hlo(data)})
        instructions += _instruction_rows(program, module, cost)
    columns = zip(*instructions, strict=True) if instructions else ([] for _ in _INSTRUCTION_COLUMNS)
    return HloTables(
        table_from_columns("programs", {name: [row[name] for row in programs] for name in _PROGRAM_COLUMNS}),
        table_from_columns("instructions", dict(zip(_INSTRUCTION_COLUMNS, columns, strict=True))),
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
    layers = iter(layers_of_module(module, cost))
    categories = iter(categories_of_module(module))
    for computation in module.computations:
        is_entry = computation is module.entry
        for one in computation.instructions:
            own = next(costs)
            file, line = one.source or (None, None)
            yield (
                program,
                computation.name,
                one.name,
                one.opcode,
                next(categories),
                one.shape.text,
                [operand.name for operand in one.operands],
                [callee.name for callee in one.called],
                one is computation.root,
                is_entry,
                own.flop,
                own.bytes,
                own.transcendentals,
                next(layers),
                one.op_name or None,
                file,
                line,
            )
