"""Where a replay can start: the checkpoints of one process in the order of its steps, and the time between any two."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.phases.clock.steps import RunClock, SessionClock, StepSeries
from phasepoint.replay.checkpoints import IndexedCheckpoint, refusal


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
        first, end = self.index_of(first_step), self.end_of(last_step)
        return int(self._dur_sums[end] - self._dur_sums[first]) if end > first else 0

    def input_before_ps(self, step: int) -> int:
        """Wait for the batches of all steps before `step`."""
        return int(self._input_sums[self.index_of(step)])

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
    def _dur_sums(self) -> NDArray[np.uint64]:
        return _running_sums(self.dur_ps)

    @cached_property
    def _input_sums(self) -> NDArray[np.uint64]:
        return _running_sums(self.input_ps)


def steps_of_session(clock: RunClock, session: SessionClock) -> SessionSteps:
    """The steps of one session of a run."""
    return SessionSteps(**vars(clock.take(session.rows)), session=session)


def _running_sums(values: Int64s) -> NDArray[np.uint64]:
    """Sums of the first 0, 1, …, n values `[n + 1]`, exact up to 213 days; a session's int64 clock ends after 107."""
    return np.append(np.uint64(0), np.cumsum(values.astype(np.uint64)))


BEFORE_ALL = -1
"""Stands for the state before the first step."""


@dataclass(frozen=True)
class RestartPoint:
    """A checkpoint and the step after which it stands; `BEFORE_ALL` where it was written before the first."""

    after_step: int
    checkpoint: IndexedCheckpoint


@dataclass(frozen=True)
class RestartPoints:
    """One attempt's checkpoints.

    Attributes:
        usable: by `after_step`; of several at one step the fittest is last.
        refused: those that are gone, broken or hold no model, by `after_step`.
    """

    usable: tuple[RestartPoint, ...]
    refused: tuple[RestartPoint, ...]

    def newest_before(self, first_step: int) -> RestartPoint | None:
        """The newest usable checkpoint whose replay does `first_step` or begins with it; None where there is none."""
        return next((point for point in reversed(self.usable) if point.after_step < first_step), None)

    def refused_between(self, after_step: int, first_step: int) -> tuple[RestartPoint, ...]:
        """Checkpoints that cannot be used and would have been nearer to `first_step` than one after `after_step`."""
        return tuple(point for point in self.refused if after_step < point.after_step < first_step)


def find_restart_points(
    checkpoints: Iterable[IndexedCheckpoint], sessions: Mapping[tuple[int, int], SessionSteps]
) -> dict[tuple[int, int], RestartPoints]:
    """By host and attempt, the checkpoints from which that process can be started again.

    Ranks of one job write a checkpoint together, or one of them writes for all: a checkpoint of any host counts for
    every host of its attempt, its own before others.

    Args:
        checkpoints: of the index.
        sessions: steps by host and attempt.
    """
    points = [(RestartPoint(_after_step(one, sessions), one), one) for one in checkpoints]
    found = {}
    for host, attempt in sessions:
        mine = [point for point, one in points if one.attempt == attempt]
        mine.sort(key=lambda point: (point.after_step, _fitness(point.checkpoint, host)))
        usable = tuple(point for point in mine if refusal(point.checkpoint) is None)
        refused = tuple(point for point in mine if refusal(point.checkpoint) is not None)
        found[host, attempt] = RestartPoints(usable, refused)
    return found


def count_refused(points: Iterable[RestartPoint]) -> str:
    """`2 missing, 1 corrupt`."""
    counted = Counter(refusal(point.checkpoint) or "" for point in points)
    return ", ".join(f"{count} {why}" for why, count in sorted(counted.items()))


def _after_step(checkpoint: IndexedCheckpoint, sessions: Mapping[tuple[int, int], SessionSteps]) -> int:
    """The step whose result it holds: that in progress when it was noted, else the last that had ended."""
    if checkpoint.step is not None:
        return checkpoint.step
    steps = sessions.get((checkpoint.host, checkpoint.attempt))
    ended = steps.last_step_before_ps(checkpoint.start_ps - steps.session.offset_ps) if steps else None
    return BEFORE_ALL if ended is None else ended


def _fitness(checkpoint: IndexedCheckpoint, host: int) -> tuple[bool, bool, bool, bool, int]:
    """Sorts checkpoints of one step, the fittest last."""
    parts = (checkpoint.has_model, checkpoint.has_optimizer, checkpoint.has_iterator)
    known = sum(part is True for part in parts)
    is_own = checkpoint.host == host
    return (
        checkpoint.state == "whole",
        checkpoint.has_model is True,
        is_own,
        checkpoint.iterator_state is not None,
        known,
    )
