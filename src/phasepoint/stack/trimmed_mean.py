"""The trimmed mean of repeats: what is left after the same share of them has been dropped from either side.

Source: C. Li et al., "XSP: Across-Stack Profiling and Analysis of Machine Learning Models on GPUs", IPDPS 2020, III-D:
20 % are dropped; here as many from the top as from the bottom. Interval: J. W. Tukey and D. H. McLaughlin, "Less
Vulnerable Confidence and Significance Procedures for Location Based on a Single Sample", Sankhyā A 25 (1963).
"""

import math
from collections.abc import Sequence

TRIM_RATIO = 0.2
"""Share of the repeats that is dropped from each side."""

LEAST_FOR_INTERVAL = 5
"""Repeats below which no interval is given: of four, trimming leaves two."""


def trimmed_count(n_repeats: int) -> int:
    """How many repeats are dropped from each side: the whole number nearest to 20 %, and always fewer than half.

    One of 3 and of 4, which leaves the median; none of 1 and 2; two of 10.
    """
    return min(math.floor(TRIM_RATIO * n_repeats + 0.5), (n_repeats - 1) // 2)


def trimmed_mean_ps(values_ps: Sequence[int]) -> int:
    """The mean of what trimming leaves, to the nearest picosecond.

    Args:
        values_ps: `[n_repeats]`, n ≥ 1, in any order.

    Raises:
        ValueError: there are no values.
    """
    kept = _kept(values_ps)
    return (2 * sum(kept) + len(kept)) // (2 * len(kept))


def trimmed_interval_ps(values_ps: Sequence[int]) -> tuple[int, int] | None:
    """The 95 % interval of the trimmed mean, None for fewer than five repeats.

    Trimmed mean ± t · s / ((1 − 2g) √n), where s is the standard deviation after each dropped value has been replaced
    by the nearest kept one, g the share dropped from a side, and t has one degree of freedom less than values kept.

    Args:
        values_ps: `[n_repeats]`, n ≥ 1, in any order.
    """
    from phasepoint.core.statistics import t_quantile

    n = len(values_ps)
    if n < LEAST_FOR_INTERVAL:
        return None
    kept, dropped = _kept(values_ps), trimmed_count(n)
    replaced = [kept[0]] * dropped + kept + [kept[-1]] * dropped
    mean = sum(replaced) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in replaced) / (n - 1))
    half = t_quantile(0.975, len(kept) - 1) * deviation / ((1 - 2 * dropped / n) * math.sqrt(n))
    centre = trimmed_mean_ps(values_ps)
    return centre - math.ceil(half), centre + math.ceil(half)


def _kept(values_ps: Sequence[int]) -> list[int]:
    """The values that trimming leaves, sorted."""
    if not values_ps:
        raise ValueError("a trimmed mean needs at least one repeat")
    dropped = trimmed_count(len(values_ps))
    return sorted(values_ps)[dropped : len(values_ps) - dropped]
