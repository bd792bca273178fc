"""Steps that compiled again, in a run whose first step is known to have compiled, and the change they stand at.

A step about as long as the first one, where the level changes, compiled again. The change is then known to the step:
it need not be looked for among all steps, so less evidence is enough, and a boundary that noise had moved comes back.
"""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.phases.changepoints import CAP, segment_starts, switch_price

_LONG = float(np.log(8))
_LIKE_FIRST = float(np.log(2))
_LEAST_SIDE = 8
_MOST = 16


def find_recompiles(
    values: NDArray[np.float64], label: Int64s, level: NDArray[np.float64], first: float, *, sigma: float, gap: float
) -> tuple[Int64s, Int64s]:
    """Positions of the steps that compiled again, and labels `[n]` that change there.

    Args:
        values: log durations of the steps on the run's levels, `[n]`.
        label: level of each, from 0.
        level: log duration of that level.
        first: log duration of the run's first step.
        sigma: standard deviation of a value.
        gap: least difference between levels.
    """
    label, level = label.copy(), level.copy()
    found = set()
    far = np.flatnonzero((values - level > _LONG) & (values > first - _LIKE_FIRST))
    for at in far[np.argsort(-values[far], kind="stable")][:_MOST]:
        if _moved(values, label, level, int(at), sigma) or _split(values, label, level, int(at), sigma=sigma, gap=gap):
            found.add(int(at))
    for change in segment_starts(label)[1:]:
        around = np.arange(max(change - 2, 0), min(change + 2, len(values)))
        longest = int(around[values[around].argmax()])
        others = max(level[max(change - 3, 0)], level[min(change + 3, len(values) - 1)])
        if values[longest] - others > _LONG:
            found.add(longest)
    return np.array(sorted(found), np.int64), label


def _moved(values: NDArray[np.float64], label: Int64s, level: NDArray[np.float64], at: int, sigma: float) -> bool:
    """Move the nearest change to `at` where the steps between argue against it by less than a change's price."""
    starts = segment_starts(label)[1:]
    if len(starts) == 0:
        return False
    change = int(starts[np.abs(starts - at).argmin()])
    low, high = min(change, at), max(change, at)
    taken = change if change > at else change - 1
    others = np.concatenate([np.arange(low, at), np.arange(at + 1, high)])
    new = level[taken]
    worse = np.minimum((values[others] - new) ** 2 / (2 * sigma**2), CAP).sum()
    worse -= np.minimum((values[others] - level[others]) ** 2 / (2 * sigma**2), CAP).sum()
    if worse >= switch_price(len(values)):
        return False
    label[low:high] = label[taken]
    level[low:high] = new
    return True


def _split(
    values: NDArray[np.float64], label: Int64s, level: NDArray[np.float64], at: int, *, sigma: float, gap: float
) -> bool:
    """Split the segment at `at` where its two sides differ by three standard errors: the place was not chosen."""
    bounds = np.append(segment_starts(label), len(label))
    segment = int(np.searchsorted(bounds, at, side="right")) - 1
    begin, end = int(bounds[segment]), int(bounds[segment + 1])
    if min(at - begin, end - at - 1) < _LEAST_SIDE:
        return False
    limit = 3 * sigma
    before, after = (
        float(level[at] + np.clip(part - level[at], -limit, limit).mean())
        for part in (values[begin:at], values[at + 1 : end])
    )
    error = sigma * (1 / (at - begin) + 1 / (end - at - 1)) ** 0.5
    if abs(after - before) < max(gap, 3 * error):
        return False
    level[begin:at], level[at:end] = before, after
    label[at:end] = label.max() + 1
    return True
