"""Times that rules measure in captured steps, carried over to the run, and what the profiler added to them."""

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import format_ratio
from phasepoint.estimates.captured import Sampled
from phasepoint.estimates.run_time import RunTime, estimate_time
from phasepoint.findings.evidence.held_time import unnamed_time
from phasepoint.findings.evidence.host_time import HostTime, read_host_time
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.breakdown import FEW
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.summary.enough import advise_capture

LEAST_LOW = 1 / 3
"""The lower end of an interval must reach this part of the time for it to be told."""
ALIKE_WINDOWS = 4
"""Where it does not, so many windows that all show the time are enough: by chance that happens once in 16 times."""
WELL_KNOWN = (
    "The lower end of the interval must reach a third of the claim, or each of "
    f"at least {ALIKE_WINDOWS} windows show it; else the rule cannot judge"
)
_NEIGHBOURS = 10
"""Uncaptured steps on each side of a window that say how long its steps would have lasted: the window's own length."""


def _steps_of_host(view: FindingsView) -> tuple[Sampled, Int64s]:
    """The run as the steps of `HostTime` show it, and where each of these stands there first."""
    index, first = np.unique(view.captured.index_of(view.once(read_host_time).row), return_index=True)
    known = index >= 0
    return view.sampled.only(index[known]), first[known]


def worth_telling(view: FindingsView, time_ps: Int64s, least_share: float) -> RunTime | None:
    """What was measured in the steps of `HostTime`, over the run, where it is long enough to be told; else None.

    What lasts far beyond the usual has other causes. A time is known well enough by its interval, or because every one
    of several windows shows it: few windows leave its size open, not that it is there.

    Args:
        view: the run.
        time_ps: `[n]` what was measured of each step of `HostTime`.
        least_share: of the run's time, and of the captured time of each window.

    Raises:
        Unavailable: most windows show it, but they are too few to be sure.
    """
    sampled, first = view.once(_steps_of_host)
    lost, wall_ps = _within_room(view, estimate_time(sampled, time_ps[first], beyond_usual=False)), view.clock.wall_ps
    if lost.total_ps < least_share * wall_ps:
        return None
    shows = _windows_that_show(view, time_ps, least_share)
    if lost.low_ps >= LEAST_LOW * lost.total_ps or (len(shows) >= ALIKE_WINDOWS and shows.all()):
        return lost
    if 2 * shows.sum() <= len(shows):
        return None
    raise _left_open(view, lost)


def reaches_share(view: FindingsView, time: RunTime, least_share: float) -> bool:
    """Whether a time makes that share of the run.

    Raises:
        Unavailable: the windows are too few to tell of other steps, and leave its size open.
    """
    worth = time.total_ps >= least_share * view.clock.wall_ps
    if worth and view.analysis.estimates.categories.basis == FEW and time.low_ps < LEAST_LOW * time.total_ps:
        raise _left_open(view, time)
    return worth


def _left_open(view: FindingsView, time: RunTime) -> Unavailable:
    said, low, high = (format_ratio(ps / view.clock.wall_ps) for ps in (time.total_ps, time.low_ps, time.high_ps))
    text = f"the windows say {said} of the run, but they agree with anything from {low} to {high}"
    return Unavailable(f"{text}: {advise_capture(view.analysis.run, view.clock)}")


def _within_room(view: FindingsView, time: RunTime) -> RunTime:
    """A time without what the account has under another name: waits for input, checkpoints, evaluations, …"""
    by_step = np.minimum(time.by_step, view.once(unnamed_time))
    over_ps = time.total_ps - sum_ps(by_step)
    return RunTime(by_step, max(time.low_ps - over_ps, 0), max(time.high_ps - over_ps, 0))


def _windows_that_show(view: FindingsView, time_ps: Int64s, least_share: float) -> Bools:
    """`[n_windows]` whether at least that share of a window's steps went into it."""
    host = view.once(read_host_time)
    of_step = renumber(host.window)[1]
    shown_ps, seen_ps = (np.bincount(of_step, ps) for ps in (time_ps, view.clock.dur_ps[host.row]))
    return np.asarray(shown_ps >= least_share * seen_ps, np.bool_)


def confidence_of(time: RunTime) -> str:
    """How sure its size is: high where the interval keeps to its upper half, low where it leaves the size open."""
    if time.low_ps < LEAST_LOW * time.total_ps:
        return "low"
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
