"""Step times without what other programs on the machine did to them.

A neighbour that takes the job's cores makes every step longer by a factor, for as long as it works. That is no change
of the job, so it must make no phase. The recorder knows when it was so: the job's threads were ready to run, had no
core, and others had one (`MACHINE` in `core.tables`). In such steps the clock says next to nothing of the job: the same
step takes twice as long, or eight times. So they are judged by the calm steps around them: where these agree, the
crowded steps between are alike too; where they differ, the job changed somewhere between, and the place is where the
crowded steps themselves change most. What remains is what the neighbours cost.

Where hardly a step is calm, blocks of steps are compared instead, less what their crowding explains in this run.

On such a machine steps also wander without a neighbour that the recorder sees: by a fifth often, and to twice as long
for some seconds (a virtual machine beside it). There a change of level is the job's only if it lasts for a twelfth of
the run, and if something in the job changed; if nothing is known of that, if it is large.
"""

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import MAD_TO_SIGMA, median
from phasepoint.phases.detection.signals.changepoints import (
    CAP,
    MIN_GAP,
    Levels,
    estimate_noise,
    fit_levels,
    segment_starts,
    switch_price,
)

CROWDED = 0.06
"""Part of a step's time, waited for cores that others had, from which on the step is crowded. A job alone on its
machine waits 0.01 to 0.03 for the machine's own work (measured, 2 cores, 2026-11-24)."""

_LEAST_CROWDED = 0.02
"""Part of the steps below which crowding is left alone: single steps are outliers anyway."""

_LEAST_CALM, _CALM = 40, 0.08
"""Calm steps, and their part of all, from which on they stand for the others."""

_SIDE = 48
"""Calm steps on either side of a crowded stretch that say what its steps are like."""

_BLOCK, _SHORT_BLOCK, _BLOCKS = 20, 5, 8
"""Steps of a block, where blocks are compared; fewer, where the run is too short for so many blocks."""

_CALMEST = 0.3
"""Quantile of these steps that says what they are like: some of them are crowded in part, and none is too short."""

_LEAST_STRETCH = 0.08
"""Part of the run that a level must last for: a choice. Shorter ones are left to the schedules, which are regular."""

_WANDER = 0.06
"""Standard deviation of a block, at least: smaller ones are of blocks that were filled, and real ones wander."""

_UNEXPLAINED = float(np.log(1.3))
"""Least log difference of two levels where nothing says that the job changed: such machines wander by 1.2."""

_NEAR, _LEAST_PAIRS = 6, 6
"""Blocks so near are compared, for what crowding costs in this run; fewer pairs that differ say nothing."""

_LEAST_DIFFERENCE = 0.08
"""Difference in crowding of two blocks that are compared."""

_USUAL_COST = 2.0
"""Log factor for each unit of crowding where the run does not say: 1.0 to 2.5 in nine runs (2026-11-24)."""

_MOST_CUTS = 64
"""Places tried for a change in a crowded stretch."""


def calm_values(values: Floats, crowded: Floats, plain: Bools, *, changes: bool | None) -> Floats:
    """Log durations `[n]` as they would be on a calm machine.

    Args:
        values: log durations, in the run's order.
        crowded: part of each step's time that was waited for cores that others had.
        plain: steps whose duration is no matter of their own (compiling) are false, and are left alone.
        changes: whether the job changed during the run: it compiled again, ran other ops, got other batches; None where
            that is not known.
    """
    if not len(values):
        return values
    busy = _with_edges(crowded) & plain
    if busy.sum() < max(_LEAST_CROWDED * len(values), 3):
        return values
    calm = plain & ~busy
    if calm.sum() >= max(_LEAST_CALM, _CALM * len(values)):
        calmer = _by_calm_steps(values, crowded, busy, np.flatnonzero(calm))
        return _by_blocks(calmer, None, plain, changes=changes)
    return _by_blocks(values, crowded, plain, changes=changes)


def _with_edges(crowded: Floats) -> Bools:
    """Crowded steps, and those beside them that are in part: a look at the machine takes the mean of half a second."""
    some = crowded > CROWDED / 2
    starts = segment_starts(some.astype(np.int64))
    most = np.maximum.reduceat(crowded, starts)
    length = np.diff(np.append(starts, len(crowded)))
    return some & np.repeat(most > CROWDED, length)


def _by_calm_steps(values: Floats, crowded: Floats, busy: Bools, calm: Int64s) -> Floats:
    result, blocks = values.copy(), len(values) // _BLOCK
    by_block = (part[: blocks * _BLOCK].reshape(blocks, _BLOCK) for part in (values, crowded))
    lessened = values - _cost_of_crowding(*(np.median(part, axis=1) for part in by_block)) * crowded
    edges = np.flatnonzero(np.diff(busy.astype(np.int8), prepend=0, append=0))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        at = int(np.searchsorted(calm, begin))
        before, after = values[calm[max(at - _SIDE, 0) : at]], values[calm[at : at + _SIDE]]
        sides = [side for side in (before, after) if len(side)]
        levels = [float(np.quantile(side, _CALMEST)) for side in sides]
        rest = np.concatenate([side - level for side, level in zip(sides, levels, strict=True)])
        scatter = max(MAD_TO_SIGMA * median(np.abs(rest)), 1e-3)
        rest = np.clip(rest, -2.5 * scatter, 2.5 * scatter)  # as calm steps scatter, without their outliers
        first, last = levels[0], levels[-1]
        cut = begin
        if abs(last - first) > max(MIN_GAP, 4 * scatter / min(map(len, sides)) ** 0.5):
            cut = begin + _change(lessened[begin:end], first, last)
        drawn = np.random.default_rng(begin).choice(rest, end - begin)  # in turn they would make a schedule
        result[begin:end] = np.where(np.arange(begin, end) < cut, first, last) + drawn
    return result


def _change(values: Floats, first: float, last: float) -> int:
    """Where in a crowded stretch the job went from one level to the other.

    The values are less what crowding costs on average. What it costs here may be more or less, but by no more than
    lies half-way between the levels.
    """
    n, most = len(values), abs(last - first) / 2
    cuts = np.unique(np.linspace(0, n, min(n, _MOST_CUTS) + 1).astype(np.int64))
    costs = []
    for cut in cuts.tolist():
        left = values - np.where(np.arange(n) < cut, first, last)
        costs.append(float(np.abs(left - np.clip(median(left), -most, most)).sum()))
    return int(cuts[int(np.argmin(costs))])


def _by_blocks(values: Floats, crowded: Floats | None, plain: Bools, *, changes: bool | None) -> Floats:
    """Values whose blocks lie on the levels that last, less what crowding explains, where it is given."""
    where = np.flatnonzero(plain)
    size = int(np.clip(len(where) // _BLOCKS, _SHORT_BLOCK, _BLOCK))
    n_blocks = len(where) // size
    if n_blocks < _BLOCKS:
        return _as_one(values, crowded, where) if changes is False else values
    block = np.minimum(np.arange(len(where)) // size, n_blocks - 1)
    starts = segment_starts(block)
    middle = np.array([median(part) for part in np.split(values[where], starts[1:])])
    rest = values[where] - middle[block]
    left = middle
    if crowded is not None:
        share = np.array([float(part.mean()) for part in np.split(crowded[where], starts[1:])])
        cost = _cost_of_crowding(middle, share)
        left = middle - cost * (share - share.min())
        rest = np.where(crowded[where] > CROWDED, 0.05 * rest, rest)  # as each happened to get a core or not
    price = max(switch_price(n_blocks), CAP * _LEAST_STRETCH * n_blocks / 2)
    levels = fit_levels(left, max(estimate_noise(left), _WANDER), price=price)
    level = _joined(levels, {True: MIN_GAP, None: _UNEXPLAINED, False: np.inf}[changes])
    # In another order: what is left of the wandering makes no level.
    small = np.flatnonzero(np.abs(rest) < _UNEXPLAINED)
    rest[small] = rest[np.random.default_rng(0).permutation(small)]
    result = values.copy()
    result[where] = level[block] + rest
    return result


def _as_one(values: Floats, crowded: Floats | None, where: Int64s) -> Floats:
    """Too few steps for blocks, of a job that is known not to have changed: crowded ones lie about the median."""
    result, middle = values.copy(), median(values[where])
    busy = where if crowded is None else where[crowded[where] > CROWDED]
    result[busy] = middle + 0.05 * np.clip(values[busy] - middle, -_UNEXPLAINED, _UNEXPLAINED)
    return result


def _joined(levels: Levels, gap: float) -> Floats:
    """Centre of every value's level `[n]`, levels nearer than `gap` as one."""
    centre, weight = levels.centre.copy(), np.bincount(levels.label, minlength=len(levels.centre)).astype(float)
    group = np.arange(len(centre))
    while len(centre) > 1 and np.diff(centre).min() < gap:
        i = int(np.diff(centre).argmin())
        centre[i] = np.average(centre[i : i + 2], weights=weight[i : i + 2])
        weight[i] += weight[i + 1]
        centre, weight = np.delete(centre, i + 1), np.delete(weight, i + 1)
        group = np.where(group > i, group - 1, group)
    return centre[group[levels.label]]


def _cost_of_crowding(middle: Floats, share: Floats) -> float:
    """Log factor for each unit of crowding: the median over pairs of near blocks that differ in it, by how much."""
    slopes, weights = [], []
    for distance in range(1, _NEAR + 1):
        differs = share[distance:] - share[:-distance]
        use = np.abs(differs) >= _LEAST_DIFFERENCE
        slopes.append((middle[distance:] - middle[:-distance])[use] / differs[use])
        weights.append(np.abs(differs[use]))
    slope, weight = np.concatenate(slopes), np.concatenate(weights)
    if len(slope) < _LEAST_PAIRS:
        return _USUAL_COST
    order = np.argsort(slope, kind="stable")
    total = np.cumsum(weight[order])
    return float(np.clip(slope[order][np.searchsorted(total, total[-1] / 2)], 0.0, 4.0))
