"""Times that rules measure in captured steps, carried over to the run, and what the profiler added to them."""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.estimates.captured import Sampled
from phasepoint.estimates.run_time import RunTime, estimate_time
from phasepoint.findings.evidence.host_time import HostTime, read_host_time
from phasepoint.findings.view import FindingsView

LEAST_LOW = 1 / 3
"""The lower end of an interval must reach this part of the time for it to be told."""
_NEIGHBOURS = 10
"""Uncaptured steps on each side of a window that say how long its steps would have lasted: the window's own length."""


def over_run(view: FindingsView, time_ps: Int64s) -> RunTime:
    """What was measured in the steps of `HostTime`, over the run; what lasts far beyond the usual has other causes.

    Args:
        view: the run.
        time_ps: `[n]` what was measured of each of these steps.
    """
    sampled, first = view.once(_steps_of_host)
    return estimate_time(sampled, time_ps[first], beyond_usual=False)


def _steps_of_host(view: FindingsView) -> tuple[Sampled, Int64s]:
    """The run as the steps of `HostTime` show it, and where each of these stands there first."""
    index, first = np.unique(view.captured.index_of(view.once(read_host_time).row), return_index=True)
    known = index >= 0
    return view.sampled.only(index[known]), first[known]


def is_worth(time: RunTime, least_ps: float) -> bool:
    """Whether a time is so long, and known well enough to be told."""
    return time.total_ps >= least_ps and time.low_ps >= LEAST_LOW * time.total_ps


def confidence_of(time: RunTime) -> str:
    """How sure its size is: high where the interval keeps to its upper half."""
    return "high" if time.low_ps > 0.5 * time.total_ps else "medium"


def without_slowdown(view: FindingsView, host: HostTime, time_ps: Int64s) -> Int64s:
    """Times of calls without what the profiler adds to each of them: at most all that it adds to a step."""
    slower = slowdown_ratio(view, host.row, host.window)
    return np.maximum(time_ps - (slower * view.clock.dur_ps[host.row]).astype(np.int64), 0)


def with_part_of_slowdown(view: FindingsView, host: HostTime, time_ps: Int64s) -> Int64s:
    """Times of executions without the part of the profiler's slow-down that falls on them.

    It is between nothing and all of what it adds to a step; the middle is taken. The least is raised from a share of
    a captured step to one of a step that is not slowed down.
    """
    slower = slowdown_ratio(view, host.row, host.window)
    least_ps = np.maximum(time_ps - slower * view.clock.dur_ps[host.row], 0) / (1 - slower)
    return np.asarray((time_ps + least_ps) / 2, np.int64)


def slowdown_ratio(view: FindingsView, row: Int64s, window: Int64s) -> float:
    """How much longer captured steps last than their uncaptured neighbours, as a ratio of theirs; at least 0."""
    dur_ps, labels = view.clock.dur_ps, view.labels
    captured = np.zeros(len(dur_ps), bool)
    captured[view.captured.row] = True
    ratios = []
    for number in np.unique(window).tolist():
        mine = row[window == number]
        low, high = max(int(mine[0]) - _NEIGHBOURS, 0), int(mine[-1]) + _NEIGHBOURS + 1
        around = np.arange(low, min(high, len(dur_ps)))
        around = around[~captured[around]]
        alike = labels[around] == labels[mine[0]]
        # Steps that capturing slows down much are a phase of their own: then any neighbour is the measure.
        around = around[alike] if int(alike.sum()) >= _NEIGHBOURS // 2 else around
        if len(around) >= _NEIGHBOURS // 2:
            ratios.append(1 - median_ps(dur_ps[around]) / max(median_ps(dur_ps[mine]), 1))
    return max(float(np.median(ratios)), 0.0) if ratios else 0.0
