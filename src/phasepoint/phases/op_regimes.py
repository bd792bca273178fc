"""Long stretches of one kind of step, from captured steps that are few and far between."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s

_MISMATCH = 1.5
LONG_PRICE = 20.0
"""Price of a change before the clock is looked at: three windows of five at the end of a run, six inside it."""

_APART = 0.95
"""Captured steps of two kinds that must lie on either side of a duration for the clock to tell them apart."""
_LEAST_GAIN = 0.5
"""By so much the share of the new kind must grow at a boundary, where the clock shows it: 1 is a change for good."""


def regimes_of_kinds(kinds: Int64s, price: float) -> Int64s:
    """Captured kinds `[n_seen]` without stretches too short to say what lies between the windows.

    Least number of mismatches plus a price per change (Viterbi).
    """
    found, codes = np.unique(kinds, return_inverse=True)
    total = np.zeros(len(found))
    back = np.empty((len(kinds), len(found)), np.int32)
    states = np.arange(len(found))
    for t, code in enumerate(codes):
        best = int(total.argmin())
        stay = total <= total[best] + price
        back[t] = np.where(stay, states, best)
        total = np.where(stay, total, total[best] + price) + _MISMATCH * (states != code)
    path = np.empty(len(kinds), np.int64)
    state = int(total.argmin())
    for t in range(len(kinds) - 1, -1, -1):
        path[t] = state
        state = int(back[t, state])
    return np.asarray(found[path], np.int64)


def split_by_regimes(kind: Int64s, values: NDArray[np.float64], compiles: NDArray[np.bool_]) -> Int64s:
    """A regime for every step, `[n]`: kind of the long stretch it lies in.

    A boundary between two windows is put where a step compiled, else where the clock changes most, else half-way. There
    is none where the clock tells the two kinds apart and shows that both occur as often before it as after it: then
    chance put the windows of one side into the blocks of one kind (an evaluation that comes back).

    Args:
        kind: kind by ops, -1 where the step was not captured.
        values: log durations.
        compiles: steps known to have compiled.
    """
    seen = np.flatnonzero(kind >= 0)
    regime = np.zeros(len(kind), np.int64)
    if len(seen) == 0 or (kind[seen] == kind[seen[0]]).all():
        return regime
    of_seen = regimes_of_kinds(kind[seen], LONG_PRICE)
    regime[:] = of_seen[0]
    changes = np.flatnonzero(np.diff(of_seen))
    ends = np.append(seen[changes[1:]] + 1, len(kind))
    begin = 0
    for i, end in zip(changes.tolist(), ends.tolist(), strict=False):
        cut, new = _boundary(values, compiles, int(seen[i]) + 1, int(seen[i + 1])), of_seen[i + 1]
        share = _share_by_clock(values, seen, kind[seen], (int(regime[cut]), int(new)))
        if share is None or share[cut:end].mean() - share[begin:cut].mean() >= _LEAST_GAIN:
            regime[cut:] = new
            begin = cut
    return regime


def _share_by_clock(
    values: NDArray[np.float64], seen: Int64s, kinds: Int64s, pair: tuple[int, int]
) -> NDArray[np.bool_] | None:
    """Which steps `[n]` are of the second kind of a pair, by duration; None where durations do not tell them apart."""
    one, two = (values[seen[kinds == kind]] for kind in pair)
    if not len(one) or not len(two):
        return None
    low, high = float(np.median(one)), float(np.median(two))
    sign, middle = (1 if high > low else -1), (low + high) / 2
    if min(float((sign * one < sign * middle).mean()), float((sign * two > sign * middle).mean())) < _APART:
        return None
    return np.asarray(sign * values > sign * middle, np.bool_)


def _boundary(values: NDArray[np.float64], compiles: NDArray[np.bool_], first: int, last: int) -> int:
    """First step of the new regime, in `first` … `last`."""
    compiled = np.flatnonzero(compiles[first : last + 1])
    if len(compiled):
        return first + int(compiled[0])
    margin = 20
    begin, end = max(first - margin, 0), min(last + margin, len(values))
    part = values[begin:end]
    if len(part) < 8:
        return (first + last + 1) // 2
    middle = float(np.median(part))
    spread = 1.4826 * float(np.median(np.abs(np.diff(part)))) / 2**0.5 + 1e-9
    walk = np.cumsum(np.clip(part - middle, -4 * spread, 4 * spread))
    walk -= np.linspace(0, walk[-1], len(walk))
    at = int(np.abs(walk).argmax())
    if abs(walk[at]) < 2.0 * spread * len(part) ** 0.5:
        return (first + last + 1) // 2
    return min(max(begin + at + 1, first), last)
