"""Events at one distance: the period, its phase, and the steps that fall on it."""

from dataclasses import dataclass
from math import lgamma

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s

_LEAST_PERIOD = 4
_MOST_PAIRS = 2_000_000
_LOG_CHANCE = float(np.log(1e-3))
"""A schedule that random events would make more often than once in 1,000 runs is none."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Events that return.

    Attributes:
        period: steps from one to the next.
        hits: events that another follows or precedes at that distance, rising.
        log_chance: log of how often random events would make as many pairs at any distance.
    """

    period: int
    hits: Int64s
    log_chance: float


def find_schedule(events: Int64s, n: int, *, tried: int = 1) -> Schedule | None:
    """The commonest distance between events, where chance does not explain it.

    Pairs at one distance among `m` random events of `n` steps are Poisson with mean m² / n.

    Args:
        events: positions, rising, `[m]`.
        n: steps of the run.
        tried: sets of events among which these were chosen; chance is given as many.
    """
    m = len(events)
    if m < 3:
        return None
    lags = []
    for ahead in range(1, min(m - 1, max(_MOST_PAIRS // m, 8)) + 1):
        lag = events[ahead:] - events[:-ahead]
        lag = lag[lag <= n // 3]
        if len(lag) == 0:
            break
        lags.append(lag)
    pairs = np.bincount(np.concatenate(lags), minlength=n // 3 + 1) if lags else np.zeros(n // 3 + 1, np.int64)
    pairs[:_LEAST_PERIOD] = 0
    # Multiples of a period are hit nearly as often; the smallest of those that are is the period.
    period = int(np.flatnonzero(pairs >= 0.85 * pairs.max())[0]) if pairs.any() else 0
    if period == 0 or pairs[period] < 2:
        return None
    # Events that crowd in a part of the run make more pairs than m² / n: the lags around say how many.
    around = pairs[max(period // 2, _LEAST_PERIOD) : 2 * period]
    usual = max(m * m / n, float((around.sum() - pairs[period]) / max(len(around) - 1, 1)))
    log_chance = _log_poisson_tail(int(pairs[period]), usual) + np.log(max(n / 3, 1))
    hits = _paired(events, period)
    if np.quantile(np.diff(hits), 0.75) > 2 * period:
        return None
    log_chance = min(log_chance, _log_chance_of_phase(events, period, n))
    if log_chance + np.log(tried) > _LOG_CHANCE:
        return None
    return Schedule(period, hits, float(log_chance))


def _paired(events: Int64s, period: int) -> Int64s:
    known = np.zeros(int(events[-1]) + 2 * period + 1, bool)
    known[events + period] = True
    return events[known[events] | known[events + 2 * period]]


def _log_chance_of_phase(events: Int64s, period: int, n: int) -> float:
    """Log of how often random events would hit one phase of one period as often, over all periods and phases.

    Stronger than pairs where a schedule runs from one end to the other, and all there is when it has few returns.
    """
    phase, count = np.unique(events % period, return_counts=True)
    best = int(count.argmax())
    if count[best] < 4:
        return 0.0
    visits = (n - 1 - int(phase[best])) // period + 1
    tried = max(n / 3, 1) * period
    return _log_draw_tail(int(count[best]), visits, len(events), n) + float(np.log(tried))


def _log_draw_tail(count: int, marked: int, drawn: int, n: int) -> float:
    """Log of P(X ≥ count), X the marked among `drawn` of `n` without return (hypergeometric): exact in short runs."""
    most = min(marked, drawn)
    hits = range(count, most + 1)
    terms = [_log_choose(marked, k) + _log_choose(n - marked, drawn - k) for k in hits]
    return float(np.logaddexp.reduce(terms)) - _log_choose(n, drawn) if terms else -np.inf


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) if 0 <= k <= n else -np.inf


def _log_poisson_tail(count: int, mean: float) -> float:
    """Log of P(X ≥ count) for X Poisson, by its first term: an upper bound's order of magnitude for count > mean."""
    if count <= mean:
        return 0.0
    terms = np.arange(1, count + 1)
    first = -mean + float(count * np.log(mean) - np.log(terms).sum())
    return min(first - float(np.log1p(-mean / (count + 1))), 0.0)


def steps_on(schedule: Schedule, residual: NDArray[np.float64], sigma: float) -> NDArray[np.bool_]:
    """Steps that a schedule claims, `[n]`: its hits, the returns that noise hid, and the steps of each block.

    Args:
        schedule: period and hits.
        residual: log duration less its level, `[n]`.
        sigma: standard deviation of a step.
    """
    n, period = len(residual), schedule.period
    claimed = np.zeros(n, bool)
    offset = schedule.hits % period
    kept = 0
    stray: list[Int64s] = []
    for phase, count in zip(*np.unique(offset, return_counts=True), strict=True):
        mine = schedule.hits[offset == phase]
        first, last = int(mine[0]), int(mine[-1])
        if count < 0.5 * ((last - first) // period + 1):
            stray.append(mine)
            continue
        kept += int(count)
        visits = np.arange(first, last + 1, period)
        visits = _extended(visits, residual, period)
        level = float(np.median(residual[mine]))
        for step in _block(visits, residual, level, sigma, period):
            inside = visits + step
            claimed[inside[(inside >= 0) & (inside < n)]] = True
    # No phase of the period is kept where the schedule slips: then the hits themselves are all there is.
    if kept < 0.3 * len(schedule.hits):
        claimed[np.concatenate(stray)] = True
    return claimed


def _extended(visits: Int64s, residual: NDArray[np.float64], period: int) -> Int64s:
    """One more return at either end of the run, which no pair could confirm."""
    before, after = visits[0] - period, visits[-1] + period
    parts = [visits]
    if before >= 0 and before < period:
        parts.insert(0, np.array([before]))
    if after < len(residual) and after >= len(residual) - period:
        parts.append(np.array([after]))
    return np.concatenate(parts)


def _block(visits: Int64s, residual: NDArray[np.float64], level: float, sigma: float, period: int) -> list[int]:
    """Steps relative to a visit that share its level, from the first before it to the last after it."""
    inside = [0]
    for direction in (-1, 1):
        step = direction
        while abs(step) <= period // 2:
            at = visits + step
            at = at[(at >= 0) & (at < len(residual))]
            if len(at) == 0 or abs(float(np.median(residual[at])) - level) > 0.5 * abs(level):
                break
            inside.append(step)
            step += direction
    return inside
