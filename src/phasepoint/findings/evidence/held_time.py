"""Stretches of a session's time (checkpoints, evaluations) laid over its steps, and what of them lies between steps.

Its own file: three rules (checkpoints, evaluations, slow steps) lay stretches over steps in the same way.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.core.intervals import covered_ps, subtract, union
from phasepoint.phases.clock.steps import RunClock, read_numbers, sum_ps


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
    stretches = stretches.append_column("skip_ps", pa.array(skipped))
    for session, mine in zip(clock.sessions, clock.split(stretches), strict=True):
        begin_ps, dur_ps, skip = (read_numbers(mine, name) for name in ("start_ps", "dur_ps", "skip_ps"))
        held = union(begin_ps + np.minimum(skip, dur_ps), begin_ps + dur_ps)
        start, dur = clock.start_ps[session.rows], clock.dur_ps[session.rows]
        by_step[session.rows] = np.minimum(covered_ps(held, start, start + dur), dur)
        outside_ps += subtract(held, union(start, start + dur)).total_ps
    return HeldTime(by_step, outside_ps)
