"""HLO programs of a capture → `programs` and `instructions`.

XLA's profiler puts every compiled program that ran into the trace, on TPU, GPU and CPU alike, so that the program's
instructions, their arithmetic and their module paths need no annotation and no JAX.

Programs already in a shard: decoded once, written once, however many windows carry their protos.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.hlo.categories import categories_of_module
from phasepoint.hlo.cost import ModuleCost, cost_of_module
from phasepoint.hlo.fingerprint import fingerprint_module
from phasepoint.hlo.layers import directions_of_module, layers_of_module
from phasepoint.hlo.module import Module, pack_hlo, parse_module
from phasepoint.sources.events.capture import Capture
from phasepoint.store import Run

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
    directions = iter(directions_of_module(module))
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
                next(directions),
            )


class KnownPrograms:
    """The programs of one shard, growing as windows bring new ones."""

    def __init__(self, programs: pa.Table, instructions: pa.Table) -> None:
        self._tables = HloTables(programs, instructions)
        self._written = set(programs.column("program").to_pylist())
        self._known = set(self._written)

    @classmethod
    def of_shard(cls, run: Run, shard: str) -> "KnownPrograms":
        """The programs that the shard's tables hold already."""
        tables = [
            run.table(name, shard=shard).select([c.name for c in TABLES[name].columns])
            for name in ("programs", "instructions")
        ]
        return cls(*tables)

    def read(self, protos: Mapping[int, bytes], *, window: int) -> HloTables:
        """All programs known with this capture; only those never seen are decoded.

        Most captures carry no program, since the recorder asks for each one once; their ops are those of programs
        that an earlier window brought.

        Raises:
            SourceError: a proto cannot be decoded.
        """
        missing = {program: proto for program, proto in protos.items() if program not in self._known}
        if missing:
            read = read_programs(missing, window=window)
            self._tables = HloTables(
                _append(self._tables.programs, read.programs), _append(self._tables.instructions, read.instructions)
            )
            self._known |= missing.keys()
        return self._tables

    def take_new(self, capture: Capture) -> HloTables:
        """The capture's programs that no part of the shard holds yet; from now on they count as written."""
        programs = set(capture.programs.column("program").to_pylist()) - self._written
        self._written |= programs
        return HloTables(_of(capture.programs, programs), _of(capture.instructions, programs))


def _append(table: pa.Table, rows: pa.Table) -> pa.Table:
    return pa.concat_tables([table, rows]).unify_dictionaries().combine_chunks()


def _of(table: pa.Table, programs: set[int]) -> pa.Table:
    wanted = pa.array(np.array(sorted(programs), np.int64))
    return table.filter(pc.is_in(table.column("program"), value_set=wanted))
