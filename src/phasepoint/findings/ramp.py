"""A level, a ramp and a level through step times: how steady growth is told from jumps and from wandering."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats

BLOCKS = 20
"""Stretches of equal numbers of steps whose medians are fitted."""

LEAST_RAMP = 5
"""Stretches that a ramp must last; one that rises faster is a jump."""


@dataclass(frozen=True, eq=False)
class Ramp:
    """The fit.

    Attributes:
        before: level at the start.
        height: how much it rises, above 0.
        first: where the ramp begins, in stretches, 0–`BLOCKS`.
        last: where it ends.
        sigma: standard deviation of a stretch's median about the fit.
        correlation: of one stretch's residual with the next one's, 0–1.
        explained: share of the medians' variance that the fit explains.
        by_jump: share of it that the best single jump explains.
    """

    before: float
    height: float
    first: int
    last: int
    sigma: float
    correlation: float
    explained: float
    by_jump: float

    def excess(self, n: int) -> Floats:
        """What each of `n` steps `[n]` lasted above the level at the start."""
        at = (np.arange(n) + 0.5) / n * BLOCKS
        return self.height * np.clip((at - self.first) / (self.last - self.first), 0, 1)


def block_medians(values: NDArray[np.int64]) -> Floats:
    """Medians of `BLOCKS` stretches of `values` `[n]`, n ≥ BLOCKS."""
    return np.array([float(np.median(part)) for part in np.array_split(values, BLOCKS)])


def fit_ramp(medians: Floats) -> Ramp | None:
    """The rising ramp with the least squared error; None where nothing rises.

    Args:
        medians: `[BLOCKS]`.
    """
    total = float(((medians - medians.mean()) ** 2).sum())
    if total <= 0:
        return None
    fits = [
        (*_fit(medians, first, last), first, last)
        for first in range(BLOCKS - LEAST_RAMP + 1)
        for last in range(first + LEAST_RAMP, BLOCKS + 1)
    ]
    # Two free ends fit noise a little better than none: each must explain 1 % of the variance more than it would.
    error, height, before, first, last = min(
        fits, key=lambda fit: fit[0] + 0.01 * total * ((fit[3] > 0) + (fit[4] < BLOCKS))
    )
    if height <= 0:
        return None
    rest = medians - before - height * _shape(first, last)
    sigma = float(np.sqrt(error / (BLOCKS - 4)))
    correlation = float(np.clip((rest[1:] * rest[:-1]).sum() / max(error, 1e-300), 0, 0.8))
    return Ramp(before, height, first, last, sigma, correlation, 1 - error / total, 1 - _jump_error(medians) / total)


def _shape(first: int, last: int) -> Floats:
    return np.clip((np.arange(BLOCKS) + 0.5 - first) / (last - first), 0, 1)


def _fit(medians: Floats, first: int, last: int) -> tuple[float, float, float]:
    """Squared error, height and level at the start of the best ramp between two places."""
    shape = _shape(first, last)
    centred = shape - shape.mean()
    height = float((centred * medians).sum() / (centred**2).sum())
    before = float(medians.mean() - height * shape.mean())
    return float(((medians - before - height * shape) ** 2).sum()), height, before


def _jump_error(medians: Floats) -> float:
    """Squared error of the best two levels."""
    cuts = range(1, BLOCKS)
    return min(float(sum(((part - part.mean()) ** 2).sum() for part in (medians[:cut], medians[cut:]))) for cut in cuts)
