"""Where the steps of a Kineto capture begin and end."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.sources.kineto_events import KinetoEvents, step_number
from phasepoint.sources.kineto_names import OPTIMIZER_STEP, PROFILER_STEP, STEP_MARK

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class StepBounds:
    """Steps in order of time; they do not overlap. Arrays are `[n_steps]`, times in ps from the epoch."""

    step: Int64s
    start_ps: Int64s
    end_ps: Int64s

    def step_at(self, time_ps: Int64s) -> Int64s:
        """`[n]` index of the step in which each time falls, -1 outside every step."""
        index = np.searchsorted(self.start_ps, time_ps, side="right") - 1
        inside = index >= 0
        inside[inside] = time_ps[inside] < self.end_ps[index[inside]]
        return np.where(inside, index, -1)


def bounds_of_table(steps: pa.Table) -> StepBounds:
    """Bounds from rows with step, start_ps and dur_ps."""
    step, start_ps, dur_ps = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
    return _in_order(step, start_ps, start_ps + dur_ps)


def find_bounds(events: KinetoEvents) -> StepBounds:
    """Steps as the capture itself marks them.

    The recorder's marks where there are any, else PyTorch's `ProfilerStep#n`, else the ends of `Optimizer.step`, numbered
    from 0. A marked step lasts until the next mark if that is the next number, as the loop does nothing in between.
    """
    for pattern in (STEP_MARK, PROFILER_STEP):
        marks = [
            i for i, k in enumerate(events.kind) if pattern.fullmatch(events.kinds[k].name) and _is_mark(events, k)
        ]
        if marks:
            return _from_marks(events, marks)
    return _from_optimizer(events)


def _is_mark(events: KinetoEvents, kind: int) -> bool:
    return events.kinds[kind].level == "model"


def _from_marks(events: KinetoEvents, marks: list[int]) -> StepBounds:
    number = np.array([step_number(events.kinds[events.kind[i]].name) or 0 for i in marks], np.int64)
    start_ps, end_ps = events.start_ps[marks], events.end_ps[marks]
    next_is_next = np.diff(number) == 1
    end_ps = end_ps.copy()
    end_ps[:-1] = np.where(next_is_next, start_ps[1:], end_ps[:-1])
    return _in_order(number, start_ps, end_ps)


def _from_optimizer(events: KinetoEvents) -> StepBounds:
    """A step ends where the optimizer's step ends; of several optimizers the one that stepped most often counts."""
    names = Counter(events.kinds[k].name for k in events.kind if OPTIMIZER_STEP.fullmatch(events.kinds[k].name))
    if not names:
        return _in_order(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    chosen = max(names, key=lambda name: names[name])
    end_ps = np.sort(events.end_ps[[events.kinds[k].name == chosen for k in events.kind]])
    start_ps = np.concatenate((events.start_ps[:1], end_ps[:-1]))
    return _in_order(np.arange(len(end_ps), dtype=np.int64), start_ps, end_ps)


def _in_order(step: Int64s, start_ps: Int64s, end_ps: Int64s) -> StepBounds:
    """By start, each number once (the first), cut so that none reaches into the next."""
    order = np.argsort(start_ps, kind="stable")
    _, first = np.unique(step[order], return_index=True)
    order = order[np.sort(first)]
    step, start_ps, end_ps = step[order], start_ps[order], end_ps[order].copy()
    end_ps[:-1] = np.minimum(end_ps[:-1], start_ps[1:])
    return StepBounds(step, start_ps, end_ps)
