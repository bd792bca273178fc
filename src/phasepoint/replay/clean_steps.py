"""Step times that can be held against each other: no captured steps, none that compile, save or still warm up."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.intervals import IntervalSet, union
from phasepoint.phases.accounting import checkpoint_time_in_steps
from phasepoint.phases.checkpoint_time import checkpoint_stretches
from phasepoint.phases.clock import RunClock
from phasepoint.replay.settling import SETTLING_COLUMNS, settled_ps
from phasepoint.replay.ways import LEAD_STEPS


@dataclass(frozen=True, eq=False)
class CleanSteps:
    """A run's steps, with what of them was the step itself.

    Attributes:
        host: `[n_steps]`.
        attempt: `[n_steps]`.
        step: `[n_steps]`.
        own_ps: `[n_steps]`, the step's time less what it compiled and what checkpoints held it.
        clean: `[n_steps]`, whether the step neither compiled, nor held a checkpoint, nor stands in or beside a capture
            window, nor among the first steps of a replay.
        settled: `[n_steps]`, the same with capture windows counted in.
    """

    host: Int64s
    attempt: Int64s
    step: Int64s
    own_ps: Int64s
    clean: NDArray[np.bool_]
    settled: NDArray[np.bool_]


def read_clean_steps(clock: RunClock, tables: Mapping[str, pa.Table], *, lead: bool) -> CleanSteps:
    """The steps of a run.

    Args:
        clock: its steps.
        tables: `windows`, `checkpoints` and `checkpoint_waits` as `Run.table` gives them.
        lead: whether the first steps of each session are left out, as of a replay.
    """
    saved_ps = np.zeros(clock.n_steps, np.int64)
    clean = clock.compile_ps == 0
    stretches = checkpoint_stretches(tables)
    for session in clock.sessions:
        saved_ps[session.rows] = checkpoint_time_in_steps(
            clock, session, _union_of(stretches, session.host, session.attempt)
        )
        if lead:
            clean[session.rows] &= ~_lead(clock.compile_ps[session.rows])
    settled = clean & (saved_ps == 0)
    clean = settled & ~_beside_windows(clock, tables["windows"])
    return CleanSteps(clock.host, clock.attempt, clock.step, clock.dur_ps - clock.compile_ps - saved_ps, clean, settled)


def _lead(compile_ps: Int64s) -> NDArray[np.bool_]:
    """The first steps, and those after them that compile without a break."""
    settled = np.flatnonzero(compile_ps[LEAD_STEPS:] == 0)
    end = LEAD_STEPS + int(settled[0]) if len(settled) else len(compile_ps)
    return np.arange(len(compile_ps)) < end


def _beside_windows(clock: RunClock, windows: pa.Table) -> NDArray[np.bool_]:
    """Steps in a capture window or next to one, where opening and closing it fall, and while the capture is written."""
    found = np.zeros(clock.n_steps, bool)
    for row in windows.select(_WINDOW_COLUMNS).to_pylist():
        session = clock.session(row["host"], row["attempt"])
        if session is not None and row["last_step"] >= row["first_step"]:
            begin, end = np.searchsorted(clock.step[session.rows], (row["first_step"] - 1, row["last_step"] + 2))
            end = max(end, np.searchsorted(clock.start_ps[session.rows], settled_ps(row)))
            found[session.rows][begin:end] = True
    return found


_WINDOW_COLUMNS = ("host", "attempt", "first_step", "last_step", *SETTLING_COLUMNS)


def _union_of(stretches: pa.Table, host: int, attempt: int) -> IntervalSet:
    columns = [
        np.asarray(stretches.column(name).to_numpy(), np.int64) for name in ("host", "attempt", "start_ps", "dur_ps")
    ]
    mine = (columns[0] == host) & (columns[1] == attempt)
    return union(columns[2][mine], columns[2][mine] + columns[3][mine])
