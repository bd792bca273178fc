"""Stretches of a session's time (checkpoints, evaluations) laid over its steps, and what of them lies between steps."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.intervals import IntervalSet, covered_ps, subtract, union
from phasepoint.phases.clock.steps import RunClock, SessionClock, sum_ps


@dataclass(frozen=True, eq=False)
class HeldTime:
    """Time held by something.

    Attributes:
        by_step: `[n_steps]` ps of each row of the clock.
        outside_ps: between steps.
    """

    by_step: Int64s
    outside_ps: int

    @property
    def total_ps(self) -> int:
        """All of it."""
        return sum_ps(self.by_step) + self.outside_ps


def held_time(clock: RunClock, stretches: pa.Table, *, skip_ps: Int64s | None = None) -> HeldTime:
    """The time that stretches cover, inside each step and outside all; what they cover twice counts once.

    Args:
        clock: the run's steps.
        stretches: `host`, `attempt`, `start_ps`, `dur_ps`.
        skip_ps: `[n]` taken off the start of each stretch.
    """
    by_step, outside_ps = np.zeros(clock.n_steps, np.int64), 0
    skipped = np.zeros(stretches.num_rows, np.int64) if skip_ps is None else skip_ps
    columns = {name: _numbers(stretches, name) for name in ("host", "attempt", "start_ps", "dur_ps")}
    for session in clock.sessions:
        mine = (columns["host"] == session.host) & (columns["attempt"] == session.attempt)
        end = columns["start_ps"][mine] + columns["dur_ps"][mine]
        begin = np.minimum(columns["start_ps"][mine] + skipped[mine], end)
        inside, outside = _of_session(clock, session, union(begin, end))
        by_step[session.rows] = inside
        outside_ps += outside
    return HeldTime(by_step, outside_ps)


def _of_session(clock: RunClock, session: SessionClock, held: IntervalSet) -> tuple[Int64s, int]:
    start, dur = clock.start_ps[session.rows], clock.dur_ps[session.rows]
    inside = np.minimum(covered_ps(held, start, start + dur), dur)
    return np.asarray(inside, np.int64), subtract(held, union(start, start + dur)).total_ps


def _numbers(table: pa.Table, name: str) -> Int64s:
    return np.asarray(pc.fill_null(table.column(name), 0).to_numpy(), np.int64)
