"""Both sides of a comparison: the steps that replay and original have in common, and what each captured of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_rows, first_rows
from phasepoint.estimates.captured import Captured, read_captured
from phasepoint.estimates.op_columns import OpColumns, read_op_columns
from phasepoint.phases.clock.steps import StepSeries, read_series
from phasepoint.replay.folder import ReplayRecord
from phasepoint.replay.plan.ways import LEAD_STEPS
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis

WRITING = 2
"""How long writing a capture disturbs the job, over the processor time that writing takes.

On one core, where writing and the job take turns, PyTorch steps were slow again for 1 to 1.3 times that time after the
window (20 MB captures, 0.25 s, six replays, 2026-11-21).
"""

SETTLING_COLUMNS = ("start_ps", "dur_ps", "write_cost_ps")
"""Columns of `windows` that `settled_ps` needs."""


def settled_ps(window: Mapping[str, Any]) -> int:
    """When the job is itself again after a window, from the session's epoch."""
    return int(window["start_ps"] + window["dur_ps"] + WRITING * (window["write_cost_ps"] or 0))


CLEAR, CAPTURED, AFTER = 0, 1, 2
"""How a window stands to a step: not at all, it saw it, it was just closed or is being written (which costs time)."""


@dataclass(frozen=True, eq=False)
class CommonSteps:
    """Steps of the replay that the original has too, `[n]` each, by host and step.

    Attributes:
        host: rank.
        step: number.
        original: row in the original's steps table.
        replay: row in the replay's steps table.
        original_state, replay_state: CLEAR, CAPTURED or AFTER.
        of_phase: whether the original's step is of the replayed phase.
        target: whether it is one of the steps that the replay was made for.
        warm: whether the replay had run a few steps before, as the original had.
    """

    host: Int64s
    step: Int64s
    original: Int64s
    replay: Int64s
    original_state: Int64s
    replay_state: Int64s
    of_phase: Bools
    target: Bools
    warm: Bools

    @property
    def alike(self) -> Bools:
        """Steps whose times can be compared: a window stands to them in the same way on both sides."""
        return np.asarray(self.original_state == self.replay_state, np.bool_)


def match_steps(original: Analysis, replay: Run, record: ReplayRecord) -> CommonSteps:
    """Match the replay's steps with the original's: by host and number, in the attempt that was replayed.

    Raises:
        StoreError: a table cannot be read.
    """
    theirs = read_series(replay.table("steps"))
    attempt = {host: _attempt(original, record, host) for host in np.unique(theirs.host).tolist()}
    wanted = pa.table(
        {
            "host": pa.array(theirs.host),
            "attempt": pa.array([attempt[host] for host in theirs.host.tolist()], pa.int64()),
            "step": pa.array(theirs.step),
        }
    )
    row = original.clock.rows_of(wanted)
    both = np.flatnonzero(row >= 0)
    rows, step = row[both], theirs.step[both]
    return CommonSteps(
        host=theirs.host[both],
        step=step,
        original=rows,
        replay=both,
        original_state=window_states(original.clock, original.tables["windows"])[rows],
        replay_state=window_states(theirs, replay.table("windows"))[both],
        of_phase=original.labels[rows] == record.phase_id,
        target=(step >= record.target_first) & (step <= record.target_last),
        warm=np.full(len(step), record.checkpoint is None) | (step >= record.first_step + LEAD_STEPS),
    )


def window_states(steps: StepSeries, windows: pa.Table) -> Int64s:
    """How a window stands to each step, `[n_steps]`."""
    first, last = (np.asarray(windows.column(name).to_numpy(), np.int64) for name in ("first_step", "last_step"))
    length = np.maximum(last - first + 1, 0)
    window = np.repeat(np.arange(len(first)), length)
    within = np.arange(len(window)) - np.repeat(np.cumsum(length) - length, length)
    state = np.full(steps.n_steps, CLEAR, np.int64)
    saw = np.flatnonzero(length)
    after = _rows(steps, windows, saw, last[saw] + 1, missing=True)
    for place, row in zip(saw.tolist(), after.tolist(), strict=True):
        if row >= 0:
            state[row : _settled_row(steps, row, windows.slice(place, 1))] = AFTER
    state[_rows(steps, windows, window, first[window] + within)] = CAPTURED
    return state


def _settled_row(steps: StepSeries, row: int, window: pa.Table) -> int:
    """The first row, of those from `row` on, that a window does not disturb any more; one past `row` at least."""
    settled = settled_ps(window.select(SETTLING_COLUMNS).to_pylist()[0])
    start_ps, host, end = steps.start_ps, steps.host, row + 1
    while end < len(start_ps) and start_ps[row] < start_ps[end] < settled and host[end] == host[row]:
        end += 1
    return end


def _rows(steps: StepSeries, windows: pa.Table, window: Int64s, step: Int64s, *, missing: bool = False) -> Int64s:
    """Rows of steps by number in the host and attempt of a window each; those that the table has, or -1."""
    where = windows.select(["host", "attempt"]).take(pa.array(window))
    row = steps.rows_of(where.append_column("step", pa.array(step)))
    return row if missing else row[row >= 0]


def _attempt(original: Analysis, record: ReplayRecord, host: int) -> int:
    """The attempt of a host whose steps were replayed: the record's, or the host's last where it has none such."""
    attempts = [session.attempt for session in original.clock.of_host(host)]
    return record.attempt if record.attempt in attempts or not attempts else attempts[-1]


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
