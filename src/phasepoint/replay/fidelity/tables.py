"""One side's captured ops and programs, read once: what op vectors and program sets are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_rows, first_rows
from phasepoint.estimates.captured import Captured, read_captured
from phasepoint.estimates.op_columns import OpColumns, read_op_columns
from phasepoint.phases.clock.steps import StepSeries, read_series
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis

TABLES_COMPARED = ("steps", "windows", "breakdowns", "ops", "programs")

_PROGRAM = ("host", "attempt", "program")
ProgramId = tuple[int, int, int]
"""Host, attempt and number: what a program's number means."""


@dataclass(frozen=True)
class ProgramIdentity:
    """A compiled program, as two runs can compare it.

    Attributes:
        name: of the module.
        fingerprint: hash of its instructions; null where it has none.
    """

    name: str
    fingerprint: str | None


class ProgramOp(NamedTuple):
    """An instruction of a program: its name, its opcode, its shape, and whether it stands in the entry."""

    op: str
    opcode: str
    shape: str
    is_entry: bool


@dataclass(frozen=True, eq=False)
class SideTables:
    """The tables of one side.

    Attributes:
        run: where they are from.
        steps: of the run.
        tables: those of `TABLES_COMPARED`, by name.
    """

    run: Run
    steps: StepSeries
    tables: Mapping[str, pa.Table]

    @classmethod
    def of_analysis(cls, analysis: Analysis) -> "SideTables":
        """The tables of an analysed run."""
        return cls(analysis.run, analysis.clock, analysis.tables)

    @classmethod
    def of_run(cls, run: Run) -> "SideTables":
        """The tables of a run.

        Raises:
            StoreError: a table cannot be read.
        """
        tables = {name: run.table(name) for name in TABLES_COMPARED}
        return cls(run, read_series(tables["steps"]), tables)

    @cached_property
    def captured(self) -> Captured:
        """The steps that a window saw."""
        return read_captured(self.steps, self.tables["windows"], self.tables["breakdowns"])

    @cached_property
    def columns(self) -> OpColumns:
        """Device work of the captured steps."""
        return read_op_columns(self.tables["ops"], self.tables["programs"], self.steps, self.captured)

    @cached_property
    def programs(self) -> dict[ProgramId, ProgramIdentity]:
        """All programs of the run."""
        rows = self.tables["programs"].select([*_PROGRAM, "name", "fingerprint"]).to_pylist()
        return {_program_id(row): ProgramIdentity(row["name"], row["fingerprint"]) for row in rows}

    def is_captured(self, rows: Int64s) -> Int64s:
        """Those of some rows of `steps` that a window saw."""
        return rows[np.isin(rows, self.captured.row)]

    def program_times(self, rows: Int64s) -> dict[ProgramIdentity, int]:
        """Self time in ps of the programs within some rows of `steps`."""
        ops = self.tables["ops"]
        within = np.isin(self.steps.rows_of(ops), rows) & pc.is_valid(ops.column("program")).to_numpy()
        ops = ops.filter(pa.array(within))
        code = encode_rows(ops, _PROGRAM)
        first = ops.take(pa.array(first_rows(code))).select(_PROGRAM).to_pylist()
        times = np.zeros(len(first), np.int64)
        np.add.at(times, code, ops.column("self_ps").to_numpy())
        found: dict[ProgramIdentity, int] = {}
        for row, time_ps in zip(first, times.tolist(), strict=True):
            program = self.programs.get(_program_id(row))
            if program is not None:
                found[program] = found.get(program, 0) + time_ps
        return found

    @cached_property
    def instructions(self) -> dict[ProgramIdentity, list[ProgramOp]]:
        """Instructions of every program in the order in which they were written."""
        columns = ["program", *ProgramOp._fields]
        found: dict[ProgramIdentity, list[ProgramOp]] = {}
        written: dict[ProgramIdentity, ProgramId] = {}
        for row in self.run.table("instructions", columns=columns).to_pylist():
            key = _program_id(row)
            program = self.programs.get(key)
            if program is not None and written.setdefault(program, key) == key:
                one = ProgramOp(*(row[name] for name in ProgramOp._fields))
                found.setdefault(program, []).append(one)
        return found


def _program_id(row: Mapping[str, int]) -> ProgramId:
    return row["host"], row["attempt"], row["program"]


def renamed_ops(original: SideTables, replay: SideTables) -> dict[tuple[str, str], str]:
    """Ops of the replay whose name differs in the original although the program is equal, by program name and op.

    XLA numbers its instructions; equal programs have their instructions in the same places.
    """
    found: dict[tuple[str, str], str] = {}
    theirs = original.instructions
    for program, mine in replay.instructions.items():
        base = theirs.get(program)
        if program.fingerprint is None or base is None or [one.opcode for one in base] != [one.opcode for one in mine]:
            continue
        for here, there in zip(base, mine, strict=True):
            if here.op != there.op:
                found[program.name, there.op] = here.op
    return found
