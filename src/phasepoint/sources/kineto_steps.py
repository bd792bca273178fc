"""Where the steps of a Kineto capture begin and end."""

import re
from collections import Counter

import numpy as np
import pyarrow as pa

from phasepoint.sources.event_tables import TraceEvents
from phasepoint.sources.kineto_events import step_number
from phasepoint.sources.kineto_names import OPTIMIZER_STEP, PROFILER_STEP, STEP_MARK
from phasepoint.sources.step_bounds import StepBounds, order_bounds


def find_bounds(events: TraceEvents, steps: pa.Table | None) -> StepBounds:
    """The steps of a capture.

    The recorder's marks of the given steps where there are any, else these, else PyTorch's `ProfilerStep#n`, else the
    ends of `Optimizer.step`, numbered from 0.

    Args:
        events: the events.
        steps: rows of `steps` (step, start_ps, dur_ps) from the step clock, used where the capture has no marks.
    """
    if marks := _marks(events, STEP_MARK):
        return _from_marks(events, marks).among(steps)
    if steps is not None and steps.num_rows:
        return _from_table(steps)
    if marks := _marks(events, PROFILER_STEP):
        return _from_marks(events, marks)
    return _from_optimizer(events)


def _marks(events: TraceEvents, pattern: re.Pattern[str]) -> list[int]:
    wanted = {i for i, kind in enumerate(events.kinds) if kind.level == "model" and pattern.fullmatch(kind.name)}
    return [i for i, kind in enumerate(events.kind.tolist()) if kind in wanted]


def _from_table(steps: pa.Table) -> StepBounds:
    step, start_ps, dur_ps = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
    return order_bounds(step, start_ps, start_ps + dur_ps)


def _from_marks(events: TraceEvents, marks: list[int]) -> StepBounds:
    numbers = [step_number(events.kinds[events.kind[i]].name) for i in marks]
    known = [i for i, number in enumerate(numbers) if number is not None]
    rows = np.array(marks, np.int64)[known]
    return order_bounds(np.array([numbers[i] for i in known], np.int64), events.start_ps[rows], events.end_ps[rows])


def _from_optimizer(events: TraceEvents) -> StepBounds:
    """A step ends where the optimizer's step ends; of several optimizers, the one that stepped most often."""
    names = Counter(events.kinds[k].name for k in events.kind if OPTIMIZER_STEP.fullmatch(events.kinds[k].name))
    if not names:
        return order_bounds(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    chosen = max(names, key=lambda name: names[name])
    end_ps = np.sort(events.end_ps[[events.kinds[k].name == chosen for k in events.kind]])
    start_ps = np.concatenate((events.start_ps[:1], end_ps[:-1]))
    return order_bounds(np.arange(len(end_ps), dtype=np.int64), start_ps, end_ps)
