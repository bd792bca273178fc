"""What every step would have lasted, going by the steps around it, and what odd steps cost the run beyond that."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import MAD_TO_SIGMA, median, median_absolute_deviation_ps, row_medians
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import RunClock

BLOCK = 50
"""Steps whose median is one point of the level: few enough to follow a drift, enough that outliers do not move it."""

MOST_EVENTS = 0.1
"""A phase of single steps is a set of outliers up to a tenth of the steps; beyond, it is how the job works."""

_AT_RATIO = 1_000_000
"""Logarithms of ratios are rounded to so many parts, to take the median of integers."""
_OWN_KIND = ("eval", "compile")


@dataclass(frozen=True, eq=False)
class Expected:
    """The level of every step and how far steps scatter about it, `[n_steps]` each.

    Attributes:
        dur_ps: what the step would have lasted: the mean of ordinary steps around it.
        ratio: its duration over the local median.
        sigma: robust standard deviation of the logarithm of `ratio` in the step's group.
        group: number of its group: a session's steps of one phase, single odd steps among them.
    """

    dur_ps: Int64s
    ratio: Floats
    sigma: Floats
    group: Int64s


def expect_steps(view: FindingsView) -> Expected:
    """What every step would have lasted, going by the ordinary steps around it.

    A group's level is the median of each `BLOCK` steps, joined by straight lines. Outliers do not move it, so the
    mean of what is left after taking away steps beyond 6 standard deviations is what an outlier would have lasted.
    """
    clock = view.clock
    group = _groups(clock, view.labels, {phase.id for phase in view.analysis.result.phases if phase.kind in _OWN_KIND})
    expected, ratio, sigma = np.zeros(clock.n_steps), np.ones(clock.n_steps), np.zeros(clock.n_steps)
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if not len(rows):
            continue
        level = _level(clock.dur_ps[rows])
        ratio[rows] = clock.dur_ps[rows] / np.maximum(level, 1)
        sigma[rows] = spread = _sigma(ratio[rows])
        ordinary = ratio[rows] < np.exp(6 * spread) + 1e-9
        expected[rows] = level * ratio[rows][ordinary].mean()
    return Expected(np.rint(expected).astype(np.int64), ratio, sigma, group)


def _level(dur_ps: Int64s) -> Floats:
    """Block medians joined by lines `[n]`."""
    n = len(dur_ps)
    n_blocks = max(n // BLOCK, 1)
    last = (n_blocks - 1) * BLOCK  # the last block takes the rest too
    medians = np.append(row_medians(dur_ps[:last].reshape(-1, BLOCK)), median(dur_ps[last:]))
    middles = np.append(np.arange(0, last, BLOCK) + (BLOCK - 1) / 2, (last + n - 1) / 2)
    return np.asarray(np.interp(np.arange(n), middles, medians))


def _sigma(ratio: Floats) -> float:
    """Robust standard deviation of the logarithm, 0.1 % at least: 1.4826 × the median absolute deviation."""
    scaled = np.rint(np.log(np.maximum(ratio, 1e-6)) * _AT_RATIO).astype(np.int64)
    return max(MAD_TO_SIGMA * median_absolute_deviation_ps(scaled) / _AT_RATIO, 1e-3)


def _groups(clock: RunClock, labels: Int64s, own_kind: Collection[int]) -> Int64s:
    """Session × phase; phases of single odd steps join the phase in which they stand."""
    group = np.zeros(clock.n_steps, np.int64)
    first_id = 0
    for session in clock.sessions:
        mine = labels[session.rows]
        if not len(mine):
            continue
        joined = _join_events(mine, own_kind)
        found, codes = renumber(joined)
        group[session.rows] = first_id + codes
        first_id += len(found)
    return group


def _join_events(labels: Int64s, own_kind: Collection[int]) -> Int64s:
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    events = []
    for phase in renumber(labels)[0].tolist():
        count = int((labels == phase).sum())
        stretch = count / max(int((labels[starts] == phase).sum()), 1)
        if stretch <= 2 and count <= MOST_EVENTS * len(labels) and phase not in own_kind:
            events.append(phase)
    is_event = np.isin(labels, events)
    if not events or is_event.all():
        return labels
    lasting = np.flatnonzero(~is_event)
    before = np.maximum(np.searchsorted(lasting, np.arange(len(labels)), side="right") - 1, 0)
    return np.asarray(labels[lasting[before]], np.int64)


CAUGHT_UP_SIGMAS = 3
"""A step this many standard deviations shorter than its level was shortened by the one before it."""


def net_excess(view: FindingsView, odd: Bools) -> Int64s:
    """Excess of odd steps over what is expected there, less what the next step of the session is shorter by.

    Where the host runs ahead, the device works on while the host is held up; the next step finds its result there and
    is short. Only what is left of the excess was lost.

    Args:
        view: the run.
        odd: `[n_steps]`, the steps to look at.

    Returns:
        `[n_steps]` ps, 0 for other steps; may be below 0.
    """
    expected = view.once(expect_steps)
    excess_ps = view.clock.dur_ps - expected.dur_ps
    follows = np.zeros(len(odd), bool)
    follows[1:] = odd[:-1] & ~odd[1:]
    for session in view.clock.sessions:
        follows[session.first_row : session.first_row + 1] = False
    short = follows & (np.log(np.maximum(expected.ratio, 1e-6)) < -CAUGHT_UP_SIGMAS * expected.sigma)
    net_ps = np.where(odd, excess_ps, 0)
    net_ps[np.flatnonzero(short) - 1] += np.minimum(excess_ps[short], 0)
    return net_ps
