"""Where the steps of a Kineto capture begin and end."""

import re
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

    def index_at(self, time_ps: Int64s) -> Int64s:
        """`[n]` index of the step in which each time falls, -1 outside every step."""
        index = np.searchsorted(self.start_ps, time_ps, side="right") - 1
        inside = index >= 0
        inside[inside] = time_ps[inside] < self.end_ps[index[inside]]
        return np.where(inside, index, -1)


def find_bounds(events: KinetoEvents, steps: pa.Table | None) -> StepBounds:
    """The steps of a capture.

    The recorder's marks where there are any, else the given steps, else PyTorch's `ProfilerStep#n`, else the ends of
    `Optimizer.step`, numbered from 0.

    Args:
        events: the events.
        steps: rows of `steps` (step, start_ps, dur_ps) from the step clock, used where the capture has no marks.
    """
    if marks := _marks(events, STEP_MARK):
        return _from_marks(events, marks)
    if steps is not None and steps.num_rows:
        return _from_table(steps)
    if marks := _marks(events, PROFILER_STEP):
        return _from_marks(events, marks)
    return _from_optimizer(events)


def _marks(events: KinetoEvents, pattern: re.Pattern[str]) -> list[int]:
    wanted = {i for i, kind in enumerate(events.kinds) if kind.level == "model" and pattern.fullmatch(kind.name)}
    return [i for i, kind in enumerate(events.kind.tolist()) if kind in wanted]


def _from_table(steps: pa.Table) -> StepBounds:
    step, start_ps, dur_ps = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
    return _in_order(step, start_ps, start_ps + dur_ps)


def _from_marks(events: KinetoEvents, marks: list[int]) -> StepBounds:
    numbers = [step_number(events.kinds[events.kind[i]].name) for i in marks]
    known = [i for i, number in enumerate(numbers) if number is not None]
    rows = np.array(marks, np.int64)[known]
    return _in_order(np.array([numbers[i] for i in known], np.int64), events.start_ps[rows], events.end_ps[rows])


def _from_optimizer(events: KinetoEvents) -> StepBounds:
    """A step ends where the optimizer's step ends; of several optimizers, the one that stepped most often."""
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
