"""How much step times scatter on their own, and how far apart two levels must be to be two."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.statistics import median, row_medians

_MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation of a normal distribution."""

_ENOUGH = 100_000
"""Differences that give a median to half a percent."""

_LAGS = 16
"""Distances at which neighbours are compared: one of them fits any alternation of up to as many steps."""

_SHORT = 1000
"""In shorter runs single distances scatter too much: an alternation must show at a distance and its multiples."""

MIN_GAP = 0.08
"""Least difference of two levels in log duration: smaller ones are not worth a user's attention."""

_BLOCK = 20


def estimate_noise(values: NDArray[np.float64]) -> float:
    """Standard deviation of one value about its level, robust to levels, outliers and alternation.

    The usual spread of differences between values 1 to 16 apart, or the least where that is clearly less, as in an
    alternation, or where short blocks return. In a short run the least of many is small by chance alone: there
    distances count with their multiples (or one with two), and "clearly" is 3.5 / √n, three standard errors of such
    a middle (1.17 / √n).

    Args:
        values: log durations in the run's order, `[n]`.
    """
    n = len(values)
    lags = range(1, max(min(_LAGS if n >= _SHORT else 3 * _LAGS, n // 3), 1) + 1)
    every = max(n // _ENOUGH, 1)
    spread = [median(np.abs(values[lag::every] - values[:-lag:every])) for lag in lags]
    usual = float(np.median(spread[:_LAGS]))
    multiples = 1 if n >= _SHORT else 2
    periods = range(1, min(_LAGS, len(spread) // multiples) + 1)
    least = min((float(np.median(spread[lag - 1 :: lag])) for lag in periods), default=usual)
    least = min(least, float(np.mean(spread[:2])))
    clearly_less = 1 - max(0.25, 3.5 / n**0.5)
    return max(_MAD_TO_SIGMA * (least if least < clearly_less * usual else usual) / 2**0.5, 1e-3)


def least_gap(values: NDArray[np.float64], sigma: float) -> float:
    """Least difference between two levels of `values`, in log duration.

    Noise that is slower than a step (a neighbour on the machine) moves the means of whole blocks; the gap is
    then three times what neighbouring blocks usually differ by, beyond what independent noise explains.
    """
    gap = max(MIN_GAP, 0.4 * sigma)
    n_blocks = len(values) // _BLOCK
    if n_blocks < 8:
        return gap
    means = row_medians(values[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK))
    moved = _MAD_TO_SIGMA * median(np.abs(np.diff(means))) / 2**0.5
    independent = 1.2533 * sigma / _BLOCK**0.5
    slow = max(moved**2 - (1.5 * independent) ** 2, 0.0) ** 0.5
    return max(gap, min(3 * float(slow), 0.5))
