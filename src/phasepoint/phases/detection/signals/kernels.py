"""The loops that touch every step, compiled by numba. Imported only where they are used.

Both find the cheapest path through a set of states when staying is free and switching has one price, which is
the Viterbi algorithm for a Potts prior. One price for every switch makes a step cost `O(states)`, not
`O(states²)`, so a million steps take a fraction of a second.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.compiled import compiled

_F = TypeVar("_F", bound=Callable[..., object])
_compiled = cast(Callable[[_F], _F], compiled())


def cheapest_levels(values: Floats, levels: Floats, scale: float, price: float, cap: float) -> Int64s:
    """Level of every value, `[n]`: least sum of min(z²/2, cap) plus `price` per switch, z = (value - level) / scale.

    At most 64 levels: whether the path came from another is one bit a level and step.
    The cap bounds what one odd value can say, so that fewer than 2 × price / cap of them never make a segment.
    """
    return _cheapest_path(values, (np.empty(0), levels), scale, price, cap)


def cheapest_shifts(values: Floats, template: Floats, scale: float, price: float, cap: float) -> Int64s:
    """Shift of a periodic template at every value, `[n]`, or `len(template)` and more where it is not followed.

    State s < p expects `template[(t + s) % p]`. Outside the cycle steps are on their level, which is 0, or, where
    the level was fitted across the cycle's edge, like most of its steps: states p and p + 1 expect 0 and the middle.
    """
    return _cheapest_path(values, (template, np.array([0.0, np.median(template)])), scale, price, cap)


@_compiled
def _cheapest_path(values: Floats, expected: tuple[Floats, Floats], scale: float, price: float, cap: float) -> Int64s:
    """Cheapest states: of those of a periodic template, and behind them of levels."""
    template, levels = expected
    n, p = len(values), len(template)
    k = p + len(levels)
    total = np.zeros(k)
    came = np.zeros(n, np.uint64)
    best_before = np.zeros(n, np.uint8)
    half = 0.5 / (scale * scale)
    for t in range(n):
        best = total.argmin()
        least = total[best]
        best_before[t] = best
        word = np.uint64(0)
        for s in range(k):
            kept = total[s] - least
            if t > 0 and kept > price:
                kept = price
                word |= np.uint64(1) << np.uint64(s)
            off = values[t] - (template[(t + s) % p] if s < p else levels[s - p])
            cost = off * off * half
            total[s] = kept + (cost if cost < cap else cap)
        came[t] = word
    return _walk_back(total, came, best_before)


@_compiled
def _walk_back(total: Floats, came: NDArray[np.uint64], best_before: NDArray[np.uint8]) -> Int64s:
    n = len(came)
    path = np.empty(n, np.int64)
    state = 0
    for s in range(1, len(total)):
        if total[s] < total[state]:
            state = s
    for t in range(n - 1, -1, -1):
        path[t] = state
        if (came[t] >> np.uint64(state)) & np.uint64(1):
            state = int(best_before[t])
    return path


@_compiled
def stretch_medians(values: Floats, bounds: Int64s) -> Floats:
    """Median of every stretch `values[bounds[i]:bounds[i + 1]]`, `[n_stretches]`."""
    n = len(bounds) - 1
    middle = np.empty(n)
    for i in range(n):
        middle[i] = np.median(values[bounds[i] : bounds[i + 1]])
    return middle
