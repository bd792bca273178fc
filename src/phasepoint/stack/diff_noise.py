"""How much of a change is noise: within a recording, between recordings, and over many rows at once.

Within a recording neighbouring steps are alike, so a part of the run, and not a step, is the unit: the change is
computed again with each part left out, and the variance is the grouped jackknife's.

Between two recordings of one job lies more than that: where memory lies, what else the machine does. One recording of
each cannot show it, but ops whose time scatters more from step to step also differ more from recording to recording:
their standard deviation is taken to be `k` times the scatter of single steps. `k` comes from the rows themselves, most
of which did not change (the median of their squared deviations), and from what was measured before, weighed by degrees
of freedom.

Sources: Künsch, "The Jackknife and the Bootstrap for General Stationary Observations" (1989), leaving out blocks;
Efron, "Large-Scale Simultaneous Hypothesis Testing: The Choice of a Null Hypothesis" (2004); Smyth, "Linear Models and
Empirical Bayes Methods" (2004), moderated variances; Satterthwaite (1946); Benjamini and Hochberg (1995).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats
from phasepoint.core.statistics import satterthwaite_freedom

_MEDIAN_OF_SQUARE = 0.4549364
"""Median of the square of a standard normal variable (chi-squared with one degree of freedom)."""

_FREEDOM_OF_MEDIAN = 0.37
"""Degrees of freedom in a variance that comes from a median, per value: its efficiency."""


@dataclass(frozen=True)
class Prior:
    """What is known of `k` before this comparison.

    Attributes:
        ratio: standard deviation between recordings over the scatter of single steps.
        freedom: degrees of freedom with which that weighs.
    """

    ratio: float
    freedom: float


@dataclass(frozen=True, eq=False)
class Jackknife:
    """Values and their variance within recordings.

    Attributes:
        variance: `[n_rows]`.
        freedom: `[n_rows]`, its degrees of freedom.
    """

    variance: Floats
    freedom: Floats


@dataclass(frozen=True, eq=False)
class Judged:
    """Log ratios with their noise.

    Attributes:
        log_ratio: `[n_rows]`.
        error: `[n_rows]`, standard error.
        freedom: `[n_rows]`, degrees of freedom.
        p_value: `[n_rows]`, of no change, two-sided; NaN where it cannot be told.
    """

    log_ratio: Floats
    error: Floats
    freedom: Floats
    p_value: Floats

    def interval(self, row: int) -> tuple[float, float]:
        """The row's 95 % interval, in logs."""
        from phasepoint.core.statistics import t_quantile

        half = t_quantile(0.975, float(self.freedom[row])) * float(self.error[row])
        return float(self.log_ratio[row]) - half, float(self.log_ratio[row]) + half


def jackknife(replicates: Sequence[Floats]) -> Jackknife:
    """Variance from values with one part of one recording left out.

    Args:
        replicates: for each recording `[n_groups, n_rows]`; fewer than two groups give no variance.
    """
    variances, freedom = [], []
    for one in replicates:
        n = len(one)
        mean = one.sum(axis=0) / max(n, 1)
        spread = ((one - mean) ** 2).sum(axis=0)
        variances.append(spread * (n - 1) / n if n > 1 else np.full(len(mean), np.nan))
        freedom.append(max(n - 1.0, 1.0))
    stacked = np.array(variances)
    return Jackknife(stacked.sum(axis=0), satterthwaite_freedom(stacked, np.array(freedom)))


def prior_with_repeats(sides: Sequence[Floats], scatter: float, prior: Prior) -> Prior:
    """`k` of one row, from what repeated recordings of a job differ by.

    Args:
        sides: for each side the log times of its recordings.
        scatter: of single steps.
        prior: what is known before.
    """
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in sides)
    freedom = sum(len(logs) - 1 for logs in sides)
    total = prior.freedom + freedom
    return Prior(((prior.freedom * prior.ratio**2 + squares / scatter**2) / total) ** 0.5, total)


def between_ratio(deviation: Floats, variance: Floats, scatter: Floats, prior: Prior) -> Prior:
    """`k` and its degrees of freedom, from rows of which most did not change.

    Args:
        deviation: `[n]`, log ratios that would be 0 without noise.
        variance: `[n]`, of each within recordings.
        scatter: `[n]`, of single steps, times the root of 1/n_base + 1/n_run.
        prior: what is known before.
    """
    known = np.isfinite(deviation) & np.isfinite(variance) & (scatter > 0)
    if not known.any():
        return prior
    squares, variance, scatter = deviation[known] ** 2, variance[known], scatter[known]
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        too_low = np.median(squares / (variance + (middle * scatter) ** 2 + 1e-18)) > _MEDIAN_OF_SQUARE
        low, high = (middle, high) if too_low else (low, middle)
    freedom = _FREEDOM_OF_MEDIAN * len(squares)
    total = prior.freedom + freedom
    ratio = ((prior.freedom * prior.ratio**2 + freedom * high**2) / total) ** 0.5
    return Prior(float(ratio), total)


def judge(log_ratio: Floats, within: Jackknife, *between: tuple[Floats, Prior], least: float = 0.0) -> Judged:
    """Log ratios with all their noise.

    Args:
        log_ratio: `[n_rows]`.
        within: their variance within recordings.
        between: sources of noise between recordings: scatter of single steps `[n_rows]`, times the root of
            1/n_base + 1/n_run, and `k`.
        least: smaller changes are none: `p_value` is of a change of at most so much.
    """
    from scipy.special import stdtr

    variances = np.array([within.variance, *((k.ratio * scatter) ** 2 for scatter, k in between)])
    freedoms = np.array([within.freedom, *(np.full(len(log_ratio), k.freedom) for _, k in between)])
    total = variances.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = total**2 / (variances**2 / freedoms).sum(axis=0)
        p_value = np.minimum(2 * stdtr(freedom, -(np.abs(log_ratio) - least) / np.sqrt(total)), 1.0)
    return Judged(log_ratio, np.sqrt(total), freedom, p_value)


def discoveries(p_value: Floats, rate: float) -> Bools:
    """Which rows changed, such that among those named at most a share `rate` did not: `[n_rows]`.

    Args:
        p_value: `[n_rows]`, NaN for rows that are not judged.
        rate: false discovery rate, 0–1. Where nothing changed, the chance that anything is named.

    Source: Benjamini and Hochberg, "Controlling the False Discovery Rate" (1995).
    """
    found = np.zeros(len(p_value), bool)
    judged = np.flatnonzero(np.isfinite(p_value))
    ranked = judged[np.argsort(p_value[judged], kind="stable")]
    passes = np.flatnonzero(p_value[ranked] <= rate * np.arange(1, len(ranked) + 1) / max(len(ranked), 1))
    if len(passes):
        found[ranked[: passes[-1] + 1]] = True
    return found
