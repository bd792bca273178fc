"""Which steps of a phase a replay can compare, and how far it has to run for enough of them."""

import numpy as np

from phasepoint.phases.clock import Int64s
from phasepoint.replay.course import Course
from phasepoint.replay.targets import BRIDGE, Bools, Target

_MOST_CAPTURED = 0.5
"""Where more of a phase's steps were captured, the others are too few to compare with, and all of them are compared."""


class ComparedSteps:
    """The steps of one phase in one session."""

    def __init__(self, course: Course, mine: Bools, captured: Bools) -> None:
        """Take the session's steps, which of them `[n]` are of the phase, and which were captured."""
        plain = mine & ~captured
        if plain.sum() < (1 - _MOST_CAPTURED) * mine.sum():
            plain = mine
        self._course = course
        self._counts: Int64s = np.concatenate(([0], np.cumsum(plain))).astype(np.int64)
        self._rows: Int64s = np.flatnonzero(mine).astype(np.int64)
        # Positions in `_rows` of the last step before more than `BRIDGE` others, and of the last of all.
        cuts = np.flatnonzero(np.diff(self._rows) > BRIDGE + 1)
        self._lasts: Int64s = np.append(cuts, len(self._rows) - 1).astype(np.int64)

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
        stop = self._end_of_stretch(end - 1)
        last = min(int(np.searchsorted(counts, counts[end] + wanted - before)), stop)
        return int(course.step[last - 1]), before + int(counts[last] - counts[end])

    def _end_of_stretch(self, row: int) -> int:
        """One past the last step of the phase that is reached from one with no more than `BRIDGE` others between."""
        place = int(np.searchsorted(self._rows, row))
        return int(self._rows[self._lasts[np.searchsorted(self._lasts, place)]]) + 1
