"""Short events that come back: checkpoints, evaluations of a few steps.

A step far off its level may be one-off trouble or an event. What tells them apart is a schedule: events of like
duration at one distance, more often than chance allows. A schedule, once found, also says which steps on it the
noise had hidden, and which long steps off it are mere outliers.
"""

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.phases.detection.signals.periodicity import (
    FoldedBlock,
    Schedule,
    find_folded_blocks,
    find_schedule,
    steps_on,
)

MOST_CLASSES = 8
"""Schedules looked for, and rounds of folding: a choice, each is a pass over the run."""

_FEW = 500
"""Long steps up to which narrower and closer ranges of duration are tried as well: the work grows with both."""

_LEAST_EVENTS = 3
"""Events of one range for a schedule to be looked for: two have a distance, three may have it twice."""

_LEAST_PERIOD = 8
"""Steps between returns, from which on folding looks for them; shorter ones are cycles, which `alternation` finds."""

_LIKE = 0.25
"""Blocks whose levels differ by less, in log duration, are one class."""

_OUTLIER_SPAN = 1.9
"""Log range that one-off trouble spreads over: 3 to 20 × a step."""


def find_events(residual: Floats, sigma: float) -> Int64s:
    """Class of each step's event, 0 for none, `[n]`.

    Args:
        residual: log duration less its level, `[n]`.
        sigma: standard deviation of a step about its level.
    """
    label = np.zeros(len(residual), np.int64)
    n_classes = 0
    for block in _folded(residual, sigma):
        n_classes += 1
        label[block] = n_classes
    residual = np.where(label == 0, residual, 0.0)
    far = far_steps(residual, sigma)
    for _ in range(MOST_CLASSES):
        side = np.where(far & (label == 0), np.sign(residual), 0)
        starts = np.flatnonzero((side != 0) & (np.diff(side, prepend=0) != 0))
        schedule = _clearest(starts, residual, sigma)
        if schedule is None:
            break
        n_classes += 1
        label[steps_on(schedule, residual, sigma) & (label == 0)] = n_classes
    for rest in _clusters(far & (label == 0), residual, sigma):
        n_classes += 1
        label[rest] = n_classes
    return label


def _folded(residual: Floats, sigma: float) -> list[Int64s]:
    """Steps of each class of blocks that folding shows; blocks of like level are one class."""
    classes: list[list[FoldedBlock]] = []
    left = residual.copy()
    for _ in range(MOST_CLASSES):
        blocks = find_folded_blocks(left, sigma, _LEAST_PERIOD)
        for block in blocks:
            left[block.steps] = 0.0
            like = [c for c in classes if abs(c[0].level - block.level) < _LIKE]
            if like:
                like[0].append(block)
            else:
                classes.append([block])
        if not blocks:
            break
    return [np.concatenate([block.steps for block in blocks]) for blocks in classes]


def far_steps(residual: Floats, sigma: float) -> Bools:
    """Steps further off their level than noise often takes them, `[n]`.

    Downwards the distance is taken as a ratio of time: a step cannot be shorter than nothing, but its logarithm can.
    """
    deviation = np.where(residual < 0, np.expm1(residual), residual)
    return np.asarray(np.abs(deviation) > max(2.4 * sigma, 0.18))


def _clearest(starts: Int64s, residual: Floats, sigma: float) -> Schedule | None:
    """The least likely schedule among events of like duration; null where chance could make every one."""
    best: Schedule | None = None
    ranges = _value_ranges(residual[starts], sigma)
    for low, high in ranges:
        like = starts[(residual[starts] >= low) & (residual[starts] < high)]
        found = find_schedule(like, len(residual), tried=len(ranges))
        if found is not None and (best is None or found.log_chance < best.log_chance):
            best = found
    return best


def _value_ranges(values: Floats, sigma: float) -> list[tuple[float, float]]:
    """Overlapping ranges over the slow side; on the fast side, where only noise lies, all beyond several distances.

    Where events are few, more ranges are worth their time: narrow ones keep outliers out, closer ones cut none off.
    """
    ranges = [(-np.inf, float(np.log(max(1 - times * sigma, 0.05)))) for times in (0, 2.8, 3.2, 3.8)]
    slow = values[values > 0]
    few = len(slow) <= _FEW
    for width, overlap in {max(8 * sigma, 0.3): 4 if few else 2, **({max(5 * sigma, 0.3): 2} if few else {})}.items():
        lows = np.arange(float(slow.min()), float(slow.max()) + 1e-9, width / overlap) if len(slow) else slow
        held = np.searchsorted(slow := np.sort(slow), lows + width) - np.searchsorted(slow, lows)
        ranges += [(float(low), float(low) + width) for low in lows[held >= _LEAST_EVENTS]]
    return ranges


def _clusters(far: Bools, residual: Floats, sigma: float) -> list[Int64s]:
    """Events on no schedule that are too alike, or too short, to be one-off trouble."""
    found = []
    fast = np.flatnonzero(far & (np.expm1(residual) < -max(5 * sigma, 0.35)))
    if len(fast) >= 3 and _stands_apart(residual, fast):
        found.append(fast)
    slow = np.flatnonzero(far & (residual > max(5 * sigma, 0.5)))
    like = _densest(residual[slow], max(4 * sigma, 0.1))
    if like is not None:
        found.append(slow[like])
    return found


def _stands_apart(residual: Floats, members: Int64s) -> bool:
    """Whether fewer steps lie half-way to the level than in the cluster: a long tail is no cluster."""
    level = float(np.median(residual[members]))
    between = (residual < 0.4 * level) & (residual > 0.75 * level)
    return int(between.sum()) < len(members)


def _densest(values: Floats, width: float) -> Int64s | None:
    """Members of the fullest stretch of `width`, where it holds more than spread-out trouble explains."""
    if len(values) < 6:
        return None
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    until = np.searchsorted(ranked, ranked + width, side="right")
    at = int((until - np.arange(len(ranked))).argmax())
    members = order[at : until[at]]
    expected = len(values) * min(width / _OUTLIER_SPAN, 1.0)
    return members.astype(np.int64) if len(members) > 2.5 * expected + 6 * np.sqrt(expected) + 4 else None
