"""The run as a strip: one host's time in order, cut where the phase changes, few enough pieces to draw."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.phases.accounting import OUTSIDE
from phasepoint.phases.clock import RunClock, SessionClock
from phasepoint.phases.summary_types import StripSegment

MAX_STRETCHES = 2_000
"""Stretches kept: about one per pixel of a wide screen."""

_NO_PHASE = -1


@dataclass(frozen=True, eq=False)
class _Stretches:
    """Stretches as arrays `[n]`, in order, tiling the time; phase -1 is outside the steps."""

    start_ps: Int64s
    end_ps: Int64s
    phase: Int64s
    first_step: Int64s
    last_step: Int64s


def build_strip(clock: RunClock, labels: Int64s, names: Mapping[int, str], host: int) -> tuple[StripSegment, ...]:
    """One host's sessions in order, each stretch with its phase; stretches tile the time from the first epoch on.

    Gaps between two steps shorter than 1/2,000 of the time are drawn as part of the stretch before them. Where there
    are more than 2,000 stretches, neighbours are drawn together under the phase that took most of their time.
    """
    sessions = clock.of_host(host)
    end_ps = max((s.offset_ps + s.wall_ps for s in sessions), default=0)
    if not end_ps:
        return ()
    steps = _join([_step_runs(clock, labels, session, end_ps // MAX_STRETCHES) for session in sessions])
    return _draw(_fill(steps, end_ps), names)


def _step_runs(clock: RunClock, labels: Int64s, session: SessionClock, least_gap_ps: int) -> _Stretches:
    """Maximal runs of one phase with no noticeable gap in them."""
    rows = session.rows
    start = np.maximum.accumulate(clock.start_ps[rows] + session.offset_ps) if session.end_row else np.empty(0, int)
    end = np.maximum.accumulate(start + clock.dur_ps[rows])
    phase, step = labels[rows], clock.step[rows]
    if not len(start):
        return _Stretches(*(np.empty(0, np.int64) for _ in range(5)))
    cut = (phase[1:] != phase[:-1]) | (start[1:] - end[:-1] > least_gap_ps)
    first = np.flatnonzero(np.concatenate(([True], cut)))
    last = np.append(first[1:] - 1, len(start) - 1)
    ends = end[last]
    near = start[first[1:]] - ends[:-1] <= least_gap_ps
    ends[:-1][near] = start[first[1:]][near]
    return _Stretches(start[first], ends, phase[first], step[first], step[last])


def _join(parts: list[_Stretches]) -> _Stretches:
    return _Stretches(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("start_ps", "end_ps", "phase", "first_step", "last_step")
        )
    )


def _fill(steps: _Stretches, end_ps: int) -> _Stretches:
    """The stretches of steps with those outside between them, tiling [0, end_ps)."""
    # A clock that went back makes stretches overlap: each then begins where the one before it ended.
    start = np.minimum(np.maximum(steps.start_ps, 0), end_ps)
    reach = np.minimum(np.maximum.accumulate(np.maximum(steps.end_ps, start)), end_ps)
    start = np.maximum(start, np.concatenate(([0], reach[:-1])))
    bounds = np.concatenate(([0], np.column_stack([start, reach]).ravel(), [end_ps]))
    n = len(start)
    phase = np.full(2 * n + 1, _NO_PHASE)
    first, last = np.full(2 * n + 1, _NO_PHASE), np.full(2 * n + 1, _NO_PHASE)
    phase[1::2], first[1::2], last[1::2] = steps.phase, steps.first_step, steps.last_step
    kept = (np.diff(bounds) > 0) | (phase != _NO_PHASE)
    return _Stretches(bounds[:-1][kept], bounds[1:][kept], phase[kept], first[kept], last[kept])


def _draw(stretches: _Stretches, names: Mapping[int, str]) -> tuple[StripSegment, ...]:
    total_ps = int(stretches.end_ps[-1])
    n = len(stretches.start_ps)
    cell = np.arange(n)
    if n > MAX_STRETCHES:
        cell = np.minimum((stretches.start_ps / total_ps * MAX_STRETCHES).astype(np.int64), MAX_STRETCHES - 1)
    begins = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(begins[1:], n)
    return tuple(_draw_one(stretches, a, b, names) for a, b in zip(begins.tolist(), ends.tolist(), strict=True))


def _draw_one(stretches: _Stretches, begin: int, end: int, names: Mapping[int, str]) -> StripSegment:
    phases = stretches.phase[begin:end]
    phase = int(phases[0])
    if end - begin > 1:
        lasted = stretches.end_ps[begin:end] - stretches.start_ps[begin:end]
        found = np.unique(phases)
        phase = int(found[np.argmax([int(lasted[phases == one].sum()) for one in found])])
    steps = stretches.first_step[begin:end][phases != _NO_PHASE]
    lasts = stretches.last_step[begin:end][phases != _NO_PHASE]
    start_ps = int(stretches.start_ps[begin])
    return StripSegment(
        start_ps=start_ps,
        dur_ps=int(stretches.end_ps[end - 1]) - start_ps,
        phase=None if phase == _NO_PHASE else phase,
        name=OUTSIDE if phase == _NO_PHASE else names[phase],
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(lasts[-1]) if len(lasts) else None,
        merged=end - begin,
    )
