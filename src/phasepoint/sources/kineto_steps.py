"""Where the steps of a Kineto capture begin and end."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from phasepoint.sources.event_tables import TraceEvents
from phasepoint.sources.kineto_names import OPTIMIZER_STEP, PROFILER_STEP, STEP_MARK
from phasepoint.sources.step_bounds import StepBounds, order_bounds


class Mark(NamedTuple):
    """A span by which steps may be found: its name, start and end."""

    name: str
    start_ps: int
    end_ps: int


def find_bounds(events: TraceEvents, steps: pa.Table | None) -> StepBounds:
    """The steps of a capture, as `bounds_of_marks` has it.

    Args:
        events: the events.
        steps: rows of `steps` (step, start_ps, dur_ps) from the step clock, used where the capture has no marks.
    """
    names = [kind.name for kind in events.kinds]
    wanted = np.array([_step_number(n) is not None or OPTIMIZER_STEP.fullmatch(n) is not None for n in names], np.bool_)
    rows = np.flatnonzero(wanted[events.kind]) if names else np.empty(0, np.int64)
    columns = (events.kind[rows].tolist(), events.start_ps[rows].tolist(), events.end_ps[rows].tolist())
    marks = [Mark(names[kind], start, end) for kind, start, end in zip(*columns, strict=True)]
    return bounds_of_marks(marks, steps, first_ps=int(events.start_ps[0]) if len(events.start_ps) else 0)


def bounds_of_marks(marks: Sequence[Mark], steps: pa.Table | None, *, first_ps: int) -> StepBounds:
    """The recorder's marks of the given steps where there are any, else these, else PyTorch's `ProfilerStep#n`, else
    the ends of `Optimizer.step`, numbered from 0.

    Args:
        marks: spans that may be marks.
        steps: rows of `steps` from the step clock.
        first_ps: start of the first event: where the first step begins, where optimizers mark the ends.
    """
    if found := _matching(marks, STEP_MARK):
        return _from_marks(found).among(steps)
    if steps is not None and steps.num_rows:
        return _from_table(steps)
    if found := _matching(marks, PROFILER_STEP):
        return _from_marks(found)
    return _from_optimizer(_matching(marks, OPTIMIZER_STEP), first_ps)


def _matching(marks: Sequence[Mark], pattern: re.Pattern[str]) -> list[Mark]:
    known = {name: pattern.fullmatch(name) is not None for name in {mark.name for mark in marks}}
    return [mark for mark in marks if known[mark.name]]


def _step_number(name: str) -> int | None:
    """Number of the step that an annotation marks; None for any other name."""
    match = STEP_MARK.fullmatch(name) or PROFILER_STEP.fullmatch(name)
    return int(match[1]) if match and len(match[1]) < 19 else None


def _from_table(steps: pa.Table) -> StepBounds:
    step, start_ps, dur_ps = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
    return order_bounds(step, start_ps, start_ps + dur_ps)


def _from_marks(marks: Sequence[Mark]) -> StepBounds:
    numbered = [(number, mark) for mark in marks if (number := _step_number(mark.name)) is not None]
    columns = ([n for n, _ in numbered], [mark.start_ps for _, mark in numbered], [mark.end_ps for _, mark in numbered])
    step, start_ps, end_ps = (np.array(column, np.int64) for column in columns)
    return order_bounds(step, start_ps, end_ps)


def _from_optimizer(marks: Sequence[Mark], first_ps: int) -> StepBounds:
    """A step ends where the optimizer's step ends; of several optimizers, the one that stepped most often."""
    names = Counter(mark.name for mark in sorted(marks, key=lambda mark: mark.start_ps))
    if not names:
        return order_bounds(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    chosen = max(names, key=lambda name: names[name])
    end_ps = np.sort(np.array([mark.end_ps for mark in marks if mark.name == chosen], np.int64))
    start_ps = np.concatenate((np.array([first_ps], np.int64), end_ps[:-1]))
    return order_bounds(np.arange(len(end_ps), dtype=np.int64), start_ps, end_ps)
