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

A robust time per step of many ops at once, with what it becomes when a part of the run is left out.

What disturbs a step on a shared machine (a neighbour, a page fault, a preemption) only ever adds time, and disturbs one
recording more than the next. So an op's time per step is the mean of its faster half without the fastest tenth, over
the steps in which it runs, times the share of steps in which it runs. A slow-down of the op itself moves all its steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import satterthwaite_freedom

LOWEST, HIGHEST = 0.1, 0.5
"""Ranks whose mean is the location, as shares of the steps in which the op runs."""

GROUPS = 20
"""Parts of a run that are left out in turn. Each must be longer than what neighbouring steps share."""


@dataclass(frozen=True, eq=False)
class Locations:
    """Time per step of several rows.

    Attributes:
        whole_ps: `[n_rows]`, over all samples.
        without_ps: `[n_groups, n_rows]`, each with one group of samples left out; no groups where there is one sample.
    """

    whole_ps: Floats
    without_ps: Floats


def locate(values: Int64s, group: Int64s) -> Locations:
    """The location of each row, with and without each group of samples.

    Args:
        values: `[n_rows, n]`, ps, 0 where the op did not run.
        group: `[n]`, from 0 up, none unused.
    """
    order = np.argsort(values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    groups = group[order]
    n_groups = int(group.max(initial=-1)) + 1
    without = [
        _mean_of_ranks(ranked[kept].reshape(len(values), -1))
        for kept in (groups != number for number in range(n_groups if n_groups > 1 else 0))
    ]
    return Locations(_mean_of_ranks(ranked), np.array(without, np.float64).reshape(len(without), len(values)))


def contiguous_groups(block: Int64s) -> Int64s:
    """Up to `GROUPS` groups of neighbouring blocks of nearly equal size, `[n]`, from the block of each sample `[n]`.

    Args:
        block: of each sample, from 0 up in the order of time: windows, or the samples themselves.
    """
    n_blocks = int(block.max(initial=-1)) + 1
    return block * min(GROUPS, n_blocks) // max(n_blocks, 1)


def _mean_of_ranks(ranked: Int64s) -> Floats:
    """Location of each row of sorted values `[n_rows, n]`."""
    n = ranked.shape[1]
    zeros = (ranked <= 0).sum(axis=1)
    present = n - zeros
    first = zeros + np.floor(LOWEST * present).astype(np.int64)
    last = np.maximum(zeros + np.ceil(HIGHEST * present).astype(np.int64), np.minimum(first + 1, n))
    sums = np.concatenate([np.zeros((len(ranked), 1)), np.cumsum(ranked, axis=1, dtype=np.float64)], axis=1)
    rows = np.arange(len(ranked))
    total = sums[rows, last] - sums[rows, first]
    return np.where(present > 0, total / np.maximum(last - first, 1) * present / max(n, 1), 0.0)


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
