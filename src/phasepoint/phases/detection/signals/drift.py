"""Slow drift: step times that move steadily from one level to another instead of jumping."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import median, row_medians
from phasepoint.phases.detection.signals.changepoints import segment_starts

_BLOCKS = 240
"""Blocks that a span is cut into: with these the fit takes as long in a run of a million steps as in one of 240."""

_PLACES = 41
"""Places of the span at which a ramp may begin or end, before the best two are looked for more finely."""

_SPANS = 16
"""Spans that are fitted at most, the longest: a choice, each takes 41² / 2 fits."""

_PRICE_OF_STEP = 8.0
"""Price of a change of level, as log likelihood: what a chance of e⁻⁸, one in 3,000, is worth."""

_PRICE_OF_END = 5.0
"""Price of a level before the ramp, or after it: less than of a change, since its height comes with the ramp."""

LEAST_STEPS = 100
"""A drift shorter than this is a change with soft edges."""


@dataclass(frozen=True)
class Drift:
    """A stretch of steady change, and the levels it joins.

    Attributes:
        first: first position of the drift.
        last: position after it.
        begin: first position of the span it was fitted in.
        end: position after that span.
        before: label of the level it leaves.
        after: label of the level it reaches.
    """

    first: int
    last: int
    begin: int
    end: int
    before: int
    after: int


def find_drifts(values: Floats, label: Int64s, sigma: float, gap: float) -> tuple[Drift, ...]:
    """Drifts in `values` `[n]` that the levels `label` `[n]` had cut into a staircase, or into one step.

    For every span of levels that only rise or only fall, a level-ramp-level fit is compared with the staircase:
    the ramp must explain the span as well, at its smaller price, and be long.

    Args:
        values: log durations.
        label: level per value.
        sigma: standard deviation of a value.
        gap: least difference of levels.
    """
    starts = _long_starts(label)
    bounds = np.append(starts, len(values))
    if len(starts) < 2:
        return ()
    levels = np.array([float(np.median(values[a:b])) for a, b in pairwise(bounds)])
    fitted = _fitted(values, label)
    found = []
    for i, j in _monotone(levels, np.diff(bounds)):
        begin, end = int(bounds[i]), int(bounds[j + 1])
        edges = bounds[i : j + 2]
        ramp = _ramp(values[begin:end], fitted[begin:end], edges - begin, sigma, gap)
        if ramp is not None:
            first, last = begin + ramp[0], begin + ramp[1]
            found.append(Drift(first, last, begin, end, int(label[begin]), int(label[end - 1])))
    return tuple(found)


def _long_starts(label: Int64s) -> Int64s:
    """Starts of the segments that last: where a drift crosses from level to level, noise goes back and forth."""
    starts = segment_starts(label)
    length = np.diff(np.append(starts, len(label)))
    kept = starts[length >= max(20.0, 0.05 * len(label))]
    if len(kept) == 0:
        return kept
    changed = np.diff(label[kept], prepend=label[kept[0]] - 1) != 0
    bounds = kept[changed]
    bounds[0] = 0
    return np.asarray(bounds, np.int64)


def _monotone(levels: Floats, length: Int64s) -> list[tuple[int, int]]:
    """Spans of consecutive segments whose levels only rise or only fall: first and last segment of each."""
    direction = np.sign(np.diff(levels))
    spans = []
    i = 0
    while i < len(direction):
        j = i
        while j + 1 < len(direction) and direction[j + 1] == direction[i]:
            j += 1
        spans.append((i, j + 1))
        i = j + 1
    long = [(a, b) for a, b in spans if length[a : b + 1].sum() >= LEAST_STEPS]
    longest = sorted(long, key=lambda span: -int(length[span[0] : span[1] + 1].sum()))[:_SPANS]
    return sorted(longest)


def _fitted(values: Floats, label: Int64s) -> Floats:
    """Every value's level, `[n]`."""
    found, codes = renumber(label)
    centre = np.array([median(values[codes == code]) for code in range(len(found))])
    return np.asarray(centre[codes])


def _ramp(values: Floats, fitted: Floats, edges: Int64s, sigma: float, gap: float) -> tuple[int, int] | None:
    """Begin and end of the ramp within a span, or null where levels explain it better.

    Levels are the staircase `edges`, or `fitted` with all its short stretches, each change at its price: stretches
    that come and go are no ramp, whatever lies before and after them.
    """
    means, size, variance, middle = _blocks(values, sigma)
    weight = 1 / (variance + (gap / 4) ** 2)
    at = (np.arange(len(means)) + 0.5) * size
    stairs = 0.0
    for a, b in pairwise(edges):
        inside = means[(at >= a) & (at < b)]
        stairs += float(((inside - inside.mean()) ** 2).sum()) if len(inside) else 0.0
    n_changes = int(np.count_nonzero(np.diff(fitted)))
    level = np.exp(fitted[: len(means) * size].reshape(len(means), size).mean(axis=1) - middle)
    by_levels = 0.5 * weight * float(((means - level) ** 2).sum()) + _PRICE_OF_STEP * n_changes
    by_stairs = 0.5 * weight * stairs + _PRICE_OF_STEP * (len(edges) - 2)
    best, first, last, height = _best_ramp(means, 0.5 * weight)
    gain = min(by_levels, by_stairs) - best - _PRICE_OF_STEP
    # One jump is the simpler story than a ramp, a little less so where the ramp needs no ends of its own; three levels
    # in a row up are not.
    margin = _PRICE_OF_STEP if first > 0 and last < len(means) else _PRICE_OF_STEP / 2
    worth = gain > (margin if len(edges) == 3 else 0.0)
    long_enough = (last - first) * size >= max(LEAST_STEPS, 0.08 * len(values))
    if not (worth and long_enough and abs(height) >= 2 * gap):
        return None
    return _snap(first * size, len(values)), _snap(last * size, len(values))


def is_ramp(values: Floats, sigma: float, gap: float) -> bool:
    """Whether one level, one ramp and one level explain all of `values` `[n]`, to within a third of `gap`."""
    means, _, variance, _ = _blocks(values, sigma)
    allowed = 1.5 * variance + (gap / 3) ** 2
    return len(values) >= LEAST_STEPS and _best_ramp(means, 1e6)[0] / 1e6 / len(means) < allowed


def _blocks(values: Floats, sigma: float) -> tuple[Floats, int, float, float]:
    """Middles of blocks in units of the middle of all, steps of a block, the variance of a middle, and that middle.

    Back from logarithms: what makes steps drift (a list, a cache that grows) adds the same time to each.
    """
    size = max(len(values) // _BLOCKS, 1)
    n_blocks = len(values) // size
    blocks = values[: n_blocks * size].reshape(n_blocks, size)
    means = _clip_far(row_medians(blocks), sigma)[:, None]
    # Means of values pulled in to 2.5 standard deviations of their block's middle: nearly as sharp as plain means.
    means = (means + np.clip(blocks - means, -2.5 * sigma, 2.5 * sigma)).mean(axis=1)
    middle = float(np.median(means))
    means = np.exp(_clip_far(means - middle, sigma))
    return means, size, sigma**2 / size, middle


def _clip_far(means: Floats, sigma: float) -> Floats:
    """Blocks that hold an odd step, pulled in to their neighbours' middle."""
    if len(means) < 5:
        return means
    around = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(means, 2, mode="edge"), 5), axis=1)
    return np.clip(means, around - 2 * sigma, around + 2 * sigma)


def _best_ramp(means: Floats, weight: float) -> tuple[float, float, float, float]:
    """Least weighted squared error over ramp places, a level at either end at its price; place and height.

    Args:
        means: block means, `[n]`.
        weight: what a squared unit of error costs.
    """
    fit = _fit_ramp(means, weight, np.ones(len(means)))
    # Noise is a part of a step's time: the longer steps scatter more, and weigh less.
    shape = np.clip((np.arange(len(means)) + 0.5 - fit[1]) / max(fit[2] - fit[1], 1e-9), 0, 1)
    level = means.mean() + fit[3] * (shape - shape.mean())
    _, first, last, _ = _fit_ramp(means, weight, np.maximum(level, 0.1 * means.mean()) ** -2.0)
    shape = np.clip((np.arange(len(means)) + 0.5 - first) / max(last - first, 1e-9), 0, 1)
    shape -= shape.mean()
    height = float(shape @ means / max(float(shape @ shape), 1e-12))
    error = float(((means - means.mean() - height * shape) ** 2).sum())
    price = _PRICE_OF_END * ((first > 0) + (last < len(means)))
    return min(weight * error + price, fit[0]), first, last, height


def _fit_ramp(means: Floats, weight: float, share: Floats) -> tuple[float, float, float, float]:
    """`_best_ramp` where a squared unit of error costs `weight` times the block's `share`, `[n]`."""
    n = len(means)
    t = np.arange(n) + 0.5
    total = share.sum()
    centred = means - (share * means).sum() / total
    squares = float((share * centred**2).sum())
    places = np.linspace(0, n, _PLACES)
    best = (np.inf, 0.0, float(n), 0.0)
    for _ in range(2):
        for first in places:
            last = places[places > first][:, None]
            shape = np.clip((t - first) / (last - first), 0, 1)
            product = shape @ (share * centred)
            square = np.maximum((shape * shape) @ share - (shape @ share) ** 2 / total, 1e-12)
            error = squares - product**2 / square
            cost = weight * error + _PRICE_OF_END * ((first > 0) + (last[:, 0] < n))
            if len(cost) and cost.min() < best[0]:
                at = int(cost.argmin())
                best = (float(cost[at]), float(first), float(last[at, 0]), float(product[at] / square[at]))
        near = n / (_PLACES - 1)
        fine = [np.linspace(p - near, p + near, 11) for p in best[1:3]]
        places = np.unique(np.clip(np.concatenate([*fine, [0, n]]), 0, n))
    return best


def _snap(position: float, n: int) -> int:
    """A level of less than 5 % of the span is the ramp's own end."""
    if position < 0.05 * n:
        return 0
    return n if position > 0.95 * n else round(position)
