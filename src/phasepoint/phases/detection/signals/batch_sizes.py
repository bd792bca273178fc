"""Steps told apart by how much they are given to do: what the job itself changed, known to the step.

Its own file: it knows sizes, and every other signal knows times or ops.
"""

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import median
from phasepoint.phases.detection.signals.changepoints import MIN_GAP, segment_starts

_MOST = 8
"""Sizes that are told apart, the commonest; a job with more of them has batches of varying length."""

_LEAST_STEPS, _LEAST_SHARE = 20, 0.01
"""Steps of a size, and their part of all: the last batch of an epoch, which holds less, is no class of its own."""

_LEAST_STRETCH = 8.0
"""Steps that a size lasts for in the mean: sizes that vary from step to step are how the job works."""


def size_classes(elements: Int64s, values: Floats, usable: Bools) -> Int64s:
    """Class of each step by its batch, `[n]`: 0 for the commonest size and what lasts as long as that.

    Steps of which nothing usable is known (neighbours took their cores) are told apart by the sizes alone. A step whose
    size is not known is taken to be like the one before it, the first ones like those after them.

    Args:
        elements: numbers in each step's batch, or another measure of the work, 0 where that is not known.
        values: log durations.
        usable: steps whose duration tells of the job (calm, not compiling).
    """
    result, elements = np.zeros(len(elements), np.int64), _filled(elements)
    sizes, code, count = np.unique(elements, return_inverse=True, return_counts=True)
    if len(sizes) < 2 or len(segment_starts(code)) * _LEAST_STRETCH > len(code):
        return result
    enough = count >= max(_LEAST_STEPS, _LEAST_SHARE * len(elements))
    kept = [int(size) for size in np.argsort(-count, kind="stable")[:_MOST] if enough[size] and sizes[size] > 0]
    levels: list[float | None] = []
    for size in kept:
        mine = code == size
        levels.append(median(values[mine & usable]) if (mine & usable).sum() >= _LEAST_STEPS else None)
        first, last = levels[0], levels[-1]
        gap = np.log(sizes[size] / sizes[kept[0]]) if first is None or last is None else last - first
        if abs(gap) >= MIN_GAP:
            result[mine] = 1 + kept.index(size)
    return result


def _filled(elements: Int64s) -> Int64s:
    known = elements > 0
    if known.all() or not known.any():
        return elements
    before = np.maximum.accumulate(np.where(known, np.arange(len(elements)), -1))
    return elements[np.where(before < 0, np.argmax(known), before)]
