"""From times measured in captured steps to the whole run, with an interval."""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import median_ps, t_quantile
from phasepoint.findings.evidence.host_time import HostTime
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps

LEAST_WINDOWS = 4
"""So many windows beyond one a phase tell how windows differ."""
FEW_WINDOWS_WIDER = 1.5
"""How much wider an interval from single steps is made: steps of one window are alike."""
ONE_STEP_HALF = 0.5
"""Half of the interval, as a ratio, where no phase has two measured steps."""
MOST_RATIO = 3.0
"""A step that lasted longer than that many usual ones of its phase counts as so long: what held it up is not this."""
LEAST_LOW = 1 / 3
"""The lower end of an interval must reach this part of the time for it to be told."""
_NEIGHBOURS = 10


@dataclass(frozen=True, eq=False)
class RunTime:
    """A time of the run's steps.

    Attributes:
        by_step: `[n_steps]` ps.
        low_ps: lower end of the 95 % interval of its sum.
        high_ps: upper end of it.
    """

    by_step: Int64s
    low_ps: int
    high_ps: int

    @property
    def total_ps(self) -> int:
        """Its sum."""
        return sum_ps(self.by_step)

    @property
    def confidence(self) -> str:
        """How sure its size is: high where the interval keeps to its upper half."""
        return "high" if self.low_ps > 0.5 * self.total_ps else "medium"

    def is_worth(self, least_ps: float) -> bool:
        """Whether it is so long, and known well enough to be told."""
        return self.total_ps >= least_ps and self.low_ps >= LEAST_LOW * self.total_ps


def over_run(view: FindingsView, row: Int64s, window: Int64s, time_ps: Int64s) -> RunTime:
    """By phase, the ratio of the measured time to the measured steps' time; of a phase without any, that of all.

    Args:
        view: the run.
        row: `[n]` rows of the clock that were measured.
        window: `[n]` the window that saw each: steps of one window are alike, so windows are what is sampled.
        time_ps: `[n]` what was measured of each.
    """
    base = _base(view)
    weight = base[row].astype(np.float64)
    ratio = _ratio(time_ps, weight)
    by_step = np.zeros(view.clock.n_steps, np.int64)
    expected = np.full(len(row), ratio) * weight
    for phase in view.phases:
        mine, seen = view.labels == phase, view.labels[row] == phase
        here = _ratio(time_ps[seen], weight[seen]) if seen.any() else ratio
        by_step[mine] = (base[mine] * min(here, 1.0)).astype(np.int64)
        expected[seen] = here * weight[seen]
    total_ps = sum_ps(by_step)
    raised = float(base.sum()) / max(float(weight.sum()), 1.0)
    phases = len(np.unique(view.labels[row]))
    half_ps = _half(time_ps - expected, window, phases, raised, total_ps)
    return RunTime(by_step, max(total_ps - half_ps, 0), total_ps + half_ps)


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


def _base(view: FindingsView) -> Int64s:
    """`[n_steps]` time of each step that can be like the measured ones."""
    clock = view.clock
    own = clock.dur_ps - clock.input_ps - clock.compile_ps
    return np.asarray(np.minimum(own, (MOST_RATIO * view.usual_ps).astype(np.int64)), np.int64)


def _ratio(time_ps: Int64s, weight: Floats) -> float:
    whole = float(weight.sum())
    return float(time_ps.sum()) / whole if whole else 0.0


def _half(residual: Floats, window: Int64s, phases: int, raised: float, total_ps: int) -> int:
    """Half width of the interval of a ratio estimate from clusters (Cochran, Sampling Techniques, 1977, section 9A).

    Few windows say little of how windows differ; then steps are taken for what is sampled, and the interval is widened.
    """
    _, code = np.unique(window, return_inverse=True)
    of_cluster: Floats = np.bincount(code, residual).astype(np.float64)
    widened = 1.0
    if len(of_cluster) - phases < LEAST_WINDOWS:
        of_cluster, widened = residual, FEW_WINDOWS_WIDER
    freedom = len(of_cluster) - phases
    if freedom < 1:
        return round(ONE_STEP_HALF * total_ps)
    error = raised * float(np.sqrt((of_cluster**2).sum() * len(of_cluster) / freedom))
    return round(widened * t_quantile(0.975, freedom) * error)
