"""Pauses of Python's garbage collector: which steps they fell into, and when the long ones were."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.intervals import IntervalSet, union
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import SessionClock, sum_ps

PAUSE, LONG_PAUSE = "gc.pause", "gc.pause.long"
"""Counters of recorder/clock/gc_clock.py: all pauses since the sample before, and the long ones one by one."""


@dataclass(frozen=True, eq=False)
class Pauses:
    """Long pauses of a run.

    Attributes:
        by_step: `[n_steps]` ps of each step.
        outside_ps: ps between steps.
        count: how many.
        longest_ps: the longest of them.
    """

    by_step: Int64s
    outside_ps: int
    count: int
    longest_ps: int


def long_pauses(view: FindingsView) -> Pauses:
    """The pauses that were recorded one by one, each in the step in which it began."""
    clock, rows = view.clock, pause_rows(view, LONG_PAUSE)
    by_step, outside_ps = np.zeros(clock.n_steps, np.int64), 0
    for session in clock.sessions:
        began_ps, pause_ps = in_session(rows, session)
        row = np.searchsorted(clock.start_ps[session.rows], began_ps, side="right") - 1 + session.first_row
        inside = row >= session.first_row
        inside[inside] &= began_ps[inside] < clock.start_ps[row[inside]] + clock.dur_ps[row[inside]]
        np.add.at(by_step, row[inside], pause_ps[inside])
        outside_ps += sum_ps(pause_ps[~inside])
    values = pause_values(rows)
    return Pauses(np.minimum(by_step, clock.dur_ps), outside_ps, len(values), int(values.max(initial=0)))


def long_pause_times(view: FindingsView, session: SessionClock) -> IntervalSet:
    """When a session's long pauses were."""
    began_ps, pause_ps = in_session(pause_rows(view, LONG_PAUSE), session)
    return union(began_ps, began_ps + pause_ps)


def pause_rows(view: FindingsView, name: str) -> pa.Table:
    """Rows of `counters` that hold one of the two."""
    table = view.table("counters")
    return table.filter(pc.equal(table.column("name").cast(pa.string()), name))


def in_session(rows: pa.Table, session: SessionClock) -> tuple[Int64s, Int64s]:
    """Times and values of a session's rows, in order of time."""
    mine = session.own(rows).sort_by("time_ps")
    return np.asarray(mine.column("time_ps").to_numpy(), np.int64), pause_values(mine)


def pause_values(rows: pa.Table) -> Int64s:
    """`[n]` ps."""
    return np.asarray(np.rint(rows.column("value").to_numpy()), np.int64)
