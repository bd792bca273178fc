"""Where the steps of a capture begin and end, whatever its format is.

Its own file: readers, and what makes tables of events, share it.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import place_in
from phasepoint.core.tables import MOST_STEPS


@dataclass(frozen=True)
class StepBounds:
    """Steps of a capture, sorted by start, not overlapping. `[n_steps]` each.

    Attributes:
        step: step numbers.
        start_ps: starts, on the capture's clock.
        end_ps: ends.
        of_device: whether a device's line gave them, so that its work belongs to the step in which it ran.
        is_whole: whether nothing gave them: the capture from its first event to its last counts as one step.
    """

    step: Int64s
    start_ps: Int64s
    end_ps: Int64s
    of_device: bool = False
    is_whole: bool = False

    def index_at(self, time_ps: Int64s) -> NDArray[np.int32]:
        """`[n]` index of the step that holds each instant, -1 outside every step."""
        return place_in(time_ps, self.start_ps, self.end_ps)

    def among(self, steps: pa.Table | None) -> "StepBounds":
        """The marked steps whose numbers are in `steps`; all of them if none is.

        A mark may have no step: the loop asked for one more batch and there was none, or the row of the step was lost.
        """
        if steps is None:
            return self
        known = np.isin(self.step, steps.column("step").to_numpy())
        if known.all() or not known.any():
            return self
        return StepBounds(self.step[known], self.start_ps[known], self.end_ps[known], self.of_device)


def no_bounds() -> StepBounds:
    """Of a capture that holds no step in full: all its work belongs to no step."""
    none = np.empty(0, np.int64)
    return StepBounds(none, none, none)


def order_bounds(step: Int64s, start_ps: Int64s, end_ps: Int64s) -> StepBounds:
    """Bounds from marks in any order: the first of a number counts; a step ends where the next begins at the latest.

    A number that no job has is no step's: a run with it would not be read.
    """
    possible = (step >= 0) & (step < MOST_STEPS)
    step, start_ps, end_ps = step[possible], start_ps[possible], end_ps[possible]
    order = np.argsort(start_ps, kind="stable")
    _, first = np.unique(step[order], return_index=True)
    order = order[np.sort(first)]
    start = start_ps[order]
    end = np.minimum(end_ps[order], np.append(start[1:], np.iinfo(np.int64).max))
    return StepBounds(step[order].astype(np.int64), start.astype(np.int64), end.astype(np.int64))
