"""The checkpoints from which a replay can start, in the order of the steps after which they stand."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phasepoint.replay.checkpoints import IndexedCheckpoint
from phasepoint.replay.course import Course

USABLE = ("whole", "unknown")
"""States of a checkpoint from which a replay may try to start; `unknown`: it cannot be reached from here."""

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
    checkpoints: Iterable[IndexedCheckpoint], courses: Mapping[tuple[int, int], Course]
) -> dict[tuple[int, int], RestartPoints]:
    """By host and attempt, the checkpoints from which that process can be started again.

    Ranks of one job write a checkpoint together, or one of them writes for all: a checkpoint of any host counts for
    every host of its attempt, its own before others.

    Args:
        checkpoints: of the index.
        courses: steps by host and attempt.
    """
    points = [(RestartPoint(_after_step(one, courses), one), one) for one in checkpoints]
    found = {}
    for host, attempt in courses:
        mine = [point for point, one in points if one.attempt == attempt]
        mine.sort(key=lambda point: (point.after_step, _fitness(point.checkpoint, host)))
        usable = tuple(point for point in mine if refusal(point.checkpoint) is None)
        refused = tuple(point for point in mine if refusal(point.checkpoint) is not None)
        found[host, attempt] = RestartPoints(usable, refused)
    return found


def refusal(checkpoint: IndexedCheckpoint) -> str | None:
    """Why no replay can start from it, in a word or two; None where one can."""
    if checkpoint.state not in USABLE:
        return checkpoint.state
    return "holds no model" if checkpoint.has_model is False else None


def count_refused(points: Iterable[RestartPoint]) -> str:
    """`2 missing, 1 corrupt`."""
    counted = Counter(refusal(point.checkpoint) or "" for point in points)
    return ", ".join(f"{count} {why}" for why, count in sorted(counted.items()))


def _after_step(checkpoint: IndexedCheckpoint, courses: Mapping[tuple[int, int], Course]) -> int:
    """The step whose result it holds: that in progress when it was noted, else the last that had ended."""
    if checkpoint.step is not None:
        return checkpoint.step
    course = courses.get((checkpoint.host, checkpoint.attempt))
    ended = course.last_step_before_ps(checkpoint.start_ps - course.session.offset_ps) if course else None
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
