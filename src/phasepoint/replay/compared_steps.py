"""Which steps of a phase a replay can compare, and how far it has to run for enough of them."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.clock import Int64s
from phasepoint.replay.course import Course
from phasepoint.replay.targets import BRIDGE, Target

Bools = NDArray[np.bool_]

_MOST_CAPTURED = 0.5
"""Where more of a phase's steps were captured, the others are too few to compare with, and all of them are compared."""


class ComparedSteps:
    """Which steps of a phase a replay can compare, and how far it must go for enough of them."""

    def __init__(self, course: Course, mine: Bools, captured: Bools) -> None:
        plain = mine & ~captured
        if plain.sum() < (1 - _MOST_CAPTURED) * mine.sum():
            plain = mine
        self._course, self._mine = course, mine
        self._counts: Int64s = np.concatenate(([0], np.cumsum(plain))).astype(np.int64)

    def extend(self, from_step: int, target: Target, wanted: int) -> tuple[int, int]:
        """The last step to run, and how many steps from `from_step` on can then be compared.

        Args:
            from_step: first step that runs warm.
            target: steps that are captured and therefore not compared.
            wanted: steps to compare; the stretch of the phase that holds the target is not left for more.
        """
        course, counts = self._course, self._counts
        begin, end = course.index_of(target.first_step), course.end_of(target.last_step)
        first = min(course.index_of(from_step), begin)
        before = int(counts[begin] - counts[first])
        if before >= wanted:
            return target.last_step, before
        stop = self._end_of_stretch(end)
        reached = int(np.searchsorted(counts[: stop + 1], counts[end] + wanted - before))
        last = min(reached, stop)
        return int(course.step[last - 1]), before + int(counts[last] - counts[end])

    def _end_of_stretch(self, end: int) -> int:
        """One past the last step of the phase that is reached from `end` with no more than `BRIDGE` others between."""
        where = np.flatnonzero(self._mine[end:])
        if not len(where):
            return end
        gaps = np.diff(np.concatenate(([-1], where)))
        stops = np.flatnonzero(gaps > BRIDGE + 1)
        if len(stops):
            where = where[: stops[0]]
        return end + int(where[-1]) + 1 if len(where) else end
