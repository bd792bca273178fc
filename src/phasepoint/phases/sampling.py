"""From the captured steps to what the others went into: a model whose sizes the step clock knows for every step.

A step's time is cut into cells, each with a size that is known (or nearly so) for every step, captured or not:

    input       its wait for input; the exposed part of it is `input`, the rest was hidden behind work
    compiling   its compilation, likewise
    base        work (time − input − compiling) up to 1.2 × the median work of its phase
    long        work beyond that, up to 3 × the median
    far         work beyond 3 × the median

In each cell every part c has a share that is estimated from the captured steps (ratio estimator, windows as
clusters): for base one set of shares per group of phases, for the others one for the run, since steps that last long
are few and last long for reasons of the machine's. What the others went into is share × size, added over cells.

The variance of a prediction is τ² · ((size of the others / size seen)² · Σ seen x² + Σ others x²), x the cells' sizes
per window: the first term is how well the share is known, the second that what was not seen scatters too. The second
is why sizes matter: one uncaptured step of a second weighs as it should. τ² is the relative scatter between windows,
drawn towards that of the other groups (base) or towards the greatest a share can have, R (1 − R), with the weight of
a few windows, since three windows that happen to agree prove little.

Source: Cochran, Sampling Techniques (3rd ed.), ch. 6 (ratio), 9 (clusters of unequal size); Royall, "On Finite
    Population Sampling Theory under Certain Linear Regression Models" (1970), for the variance of a prediction;
    Bhatia and Davis, "A Better Bound on the Variance" (2000), for R (1 − R).
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.phases.captured import N_WORK

BASE_REACH, LONG_REACH = 1.2, 3.0
"""Ends of the cells base and long, in medians of a phase's work."""

GROUP_PRIOR = 4.0
"""Windows that the other groups' scatter counts for."""
BOUND_PRIOR = 2.0
"""Windows that the greatest possible scatter counts for."""
BORROWED = 1 / 3
"""Variance of a share that may as well be anything, as a part of the greatest at its mean: 1/12 of 1/4."""


@dataclass(frozen=True, eq=False)
class CellSample:
    """One cell of the windows that are used for its shares.

    Attributes:
        x: `[n]`, size per window, above 0.
        y: `[n, k]`, quantities in it.
        weight: `[n]`, 1 / probability up to a factor.
    """

    x: Floats
    y: Floats
    weight: Floats


@dataclass(frozen=True, eq=False)
class CellShares:
    """Shares of one cell.

    Attributes:
        ratio: `[k]`.
        scatter: `[k]`, τ²: variance of a window's share.
        known: how well the ratio is known: variance of it over τ² (the sum of squared weights in it).
        freedom: degrees of freedom of τ².
    """

    ratio: Floats
    scatter: Floats
    known: float
    freedom: float

    def variance(self, rest: float, rest_squares: float) -> Floats:
        """Variance `[k]` of what is predicted for a rest of this size and sum of squares."""
        return self.scatter * (rest**2 * self.known + rest_squares)


def cell_shares(sample: CellSample, *, prior: Floats | None = None) -> CellShares:
    """Ratios of one cell with their scatter.

    Args:
        sample: one window or more.
        prior: `[k]`, scatter between windows of the other groups; None to lean on the bound R (1 − R).
    """
    wx = sample.weight * sample.x
    ratio = (sample.weight[:, None] * sample.y).sum(axis=0) / wx.sum()
    residual = sample.y - sample.x[:, None] * ratio
    squares = float((sample.x**2).sum())
    weight, lean = (BOUND_PRIOR, bounded_scatter(ratio, len(sample.x))) if prior is None else (GROUP_PRIOR, prior)
    # Σ e² / Σ x² falls short by the ratio's own fit: n / (n − 1) for windows of equal size.
    effective = squares and float(sample.x.sum()) ** 2 / squares
    own = (residual**2).sum(axis=0) / squares * effective
    freedom = effective - 1 + weight
    return CellShares(ratio, (own + weight * lean) / freedom, float((wx**2).sum() / wx.sum() ** 2), freedom)


def own_scatter(sample: CellSample) -> tuple[Floats, float]:
    """Sum of squared relative residuals `[k]` of one cell, and its degrees of freedom."""
    ratio = (sample.weight[:, None] * sample.y).sum(axis=0) / (sample.weight * sample.x).sum()
    residual = sample.y - sample.x[:, None] * ratio
    squares = float((sample.x**2).sum())
    effective = float(sample.x.sum()) ** 2 / squares
    return (residual**2).sum(axis=0) / squares * effective, effective - 1


def bounded_scatter(ratio: Floats, windows: float = np.inf) -> Floats:
    """The greatest variance of a quantity between 0 and 1 with this mean: R (1 − R).

    Args:
        ratio: `[k]`, the first `N_WORK` of them shares of a step's parts; or `[1]`, the exposed share of a wait.
        windows: how many the mean rests on. One more is added in which all parts that are known to occur have like
            shares, so that a part which a few windows did not show is not taken to be impossible; likewise one in
            which half of the wait was exposed.
    """
    inside = np.clip(ratio, 0, 1)
    if np.isfinite(windows) and len(inside) == 1:
        inside = (windows * inside + 0.5) / (windows + 1)
    occurs = inside[:N_WORK] > 0
    if np.isfinite(windows) and len(inside) >= N_WORK and occurs.any():
        inside[:N_WORK] = (windows * inside[:N_WORK] + occurs / occurs.sum()) / (windows + 1)
    return np.asarray(inside * (1 - inside), np.float64)


def cut_work(work_ps: Floats, median_ps: Floats) -> tuple[Floats, Floats, Floats]:
    """Work `[n]` as base, long and far, by the median work of each step's phase `[n]`."""
    base = np.minimum(work_ps, BASE_REACH * median_ps)
    long = np.minimum(work_ps, LONG_REACH * median_ps) - base
    return base, long, work_ps - base - long
