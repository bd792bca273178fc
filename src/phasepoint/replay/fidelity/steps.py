"""The steps that a replay and its original both did, number by number, and how a window stood to each.

How long a capture window disturbs the steps after it: until what it captured has been written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.phases.clock.steps import StepSeries, read_series
from phasepoint.replay.plan.ways import LEAD_STEPS
from phasepoint.replay.record import ReplayRecord
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
