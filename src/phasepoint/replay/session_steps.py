"""One session's steps in order: which step stands where, and the exact time of any stretch of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.phases.clock.steps import RunClock, SessionClock, StepSeries

_LOW = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class SessionSteps(StepSeries):
    """The steps that one process made: their numbers rise; one may be missing where a part of the run was lost.

    Attributes:
        session: whose they are.
    """

    session: SessionClock

    def index_of(self, step: int) -> int:
        """Position of the first recorded step whose number is `step` or higher."""
        return int(np.searchsorted(self.step, step))

    def end_of(self, step: int) -> int:
        """One past the position of the last recorded step whose number is `step` or lower."""
        return int(np.searchsorted(self.step, step, side="right"))

    def dur_between_ps(self, first_step: int, last_step: int) -> int:
        """Time of the recorded steps `first_step`–`last_step`."""
        return _between(self._dur_sums, self.index_of(first_step), self.end_of(last_step))

    def input_before_ps(self, step: int) -> int:
        """Wait for the batches of all steps before `step`."""
        return _between(self._input_sums, 0, self.index_of(step))

    def outside_between_ps(self, first_step: int, last_step: int) -> int:
        """Time between the steps `first_step`–`last_step` that belongs to none of them."""
        first, end = self.index_of(first_step), self.end_of(last_step)
        if end - first < 2:
            return 0
        elapsed_ps = int(self.start_ps[end - 1]) + int(self.dur_ps[end - 1]) - int(self.start_ps[first])
        return max(elapsed_ps - self.dur_between_ps(first_step, last_step), 0)

    def missing_between(self, first_step: int, last_step: int) -> int:
        """Steps `first_step`–`last_step` of which nothing was recorded."""
        return last_step - first_step + 1 - (self.end_of(last_step) - self.index_of(first_step))

    def last_step_before_ps(self, time_ps: int) -> int | None:
        """The newest step that had ended at a time of the session, None where none had."""
        ended = int(np.searchsorted(self.start_ps + self.dur_ps, time_ps, side="right"))
        return int(self.step[ended - 1]) if ended else None

    @cached_property
    def _dur_sums(self) -> tuple[Int64s, Int64s]:
        return _running_sums(self.dur_ps)

    @cached_property
    def _input_sums(self) -> tuple[Int64s, Int64s]:
        return _running_sums(self.input_ps)


def steps_of_session(clock: RunClock, session: SessionClock) -> SessionSteps:
    """The steps of one session of a run."""
    return SessionSteps(**vars(clock.take(session.rows)), session=session)


def _running_sums(values: Int64s) -> tuple[Int64s, Int64s]:
    """Running sums of the high and the low 32 bits: exact where the sum itself would leave int64 (after 107 days)."""
    high, low = (np.zeros(len(values) + 1, np.int64) for _ in range(2))
    np.cumsum(values >> 32, out=high[1:])
    np.cumsum(values & _LOW, out=low[1:])
    return high, low


def _between(sums: tuple[Int64s, Int64s], first: int, end: int) -> int:
    if end <= first:
        return 0
    high, low = sums
    return (int(high[end] - high[first]) << 32) + int(low[end] - low[first])
