"""From chosen steps and the sizes of their strata to totals with intervals: exact, and of nothing else.

A total is Σ N mean over the strata, in fractions until the end; its variance Σ N² (1 − n/N) s²/n.

Source: Cochran, Sampling Techniques (3rd ed.), 5.3 to 5.4; Welch (1947) for the degrees of freedom.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import t_quantile

_MOST_FREEDOM = 1e9
"""Degrees of freedom of a variance that is known: there Student's t is the normal distribution to a part in 10⁹."""


@dataclass(frozen=True, eq=False)
class ChosenSteps:
    """All that an estimate is made of.

    Attributes:
        stratum: `[n]`, of each chosen step.
        values_ps: `[n, k]`, what is to be added up: times in ps.
        size: `[n_strata]`, steps of the run in each stratum.
    """

    stratum: Int64s
    values_ps: Int64s
    size: Int64s


@dataclass(frozen=True, eq=False)
class StratifiedTotals:
    """Estimated totals.

    Attributes:
        means: per stratum, the mean of each value of its chosen steps `[n_strata][k]`, exact.
        totals: `[k]`, exact.
        variances: `[n_strata, k]`, what each stratum adds to the variance; NaN where one step stands for several.
        freedom: `[n_strata]`, degrees of freedom of each.
    """

    means: tuple[tuple[Fraction, ...], ...]
    totals: tuple[Fraction, ...]
    variances: Floats
    freedom: Floats


def estimate_from_steps(chosen: ChosenSteps) -> StratifiedTotals:
    """StratifiedTotals over the run.

    Raises:
        ValueError: a stratum that has steps has no chosen one, or fewer steps than were chosen.
    """
    n, k = len(chosen.size), chosen.values_ps.shape[1]
    count = np.bincount(chosen.stratum, minlength=n)
    if len(count) > n or bool(((count == 0) & (chosen.size > 0)).any()) or bool((count > chosen.size).any()):
        raise ValueError(
            f"{count.tolist()} steps chosen of strata of {chosen.size.tolist()}; expected 1 to all of each"
        )
    means: list[tuple[Fraction, ...]] = []
    variances, freedom = np.zeros((n, k)), np.full(n, np.inf)
    for index in range(n):
        values = chosen.values_ps[chosen.stratum == index]
        if not len(values):
            means.append((Fraction(0),) * k)
            continue
        means.append(tuple(Fraction(sum(column), len(values)) for column in values.T.tolist()))
        size = int(chosen.size[index])
        if size > len(values):
            alone = len(values) < 2
            scatter = np.full(k, np.nan) if alone else values.astype(np.float64).var(axis=0, ddof=1)
            variances[index] = size**2 * (1 - len(values) / size) * scatter / len(values)
            freedom[index] = 1.0 if alone else len(values) - 1.0
    sizes = chosen.size.tolist()
    totals = tuple(
        sum((size * mean[i] for size, mean in zip(sizes, means, strict=True)), Fraction(0)) for i in range(k)
    )
    return StratifiedTotals(tuple(means), totals, variances, freedom)


def half_widths(variances: Floats, freedom: Floats, confidence: float) -> list[int | None]:
    """Half the interval of each value in ps, rounded up; None where it is not known.

    Args:
        variances: `[m, k]`, independent parts of the variance; NaN where one is not known.
        freedom: `[m]`, degrees of freedom of each.
        confidence: 0–1.
    """
    found: list[int | None] = []
    for column in variances.T:
        total = float(column.sum())
        if np.isnan(total):
            found.append(None)
            continue
        found.append(int(np.ceil(np.sqrt(total) * t_quantile(0.5 + confidence / 2, welch_freedom(column, freedom)))))
    return found


def welch_freedom(variances: Floats, freedom: Floats) -> float:
    """Degrees of freedom of a sum of independent estimates of variance, most of which rest on two or three values.

    Satterthwaite's formula puts estimates for what they estimate, and with one degree of freedom each their squares are
    three times too large on average; this one allows for that, and is exact for a single estimate.

    Args:
        variances: `[m]`.
        freedom: `[m]`, of each, ≥ 1.

    Source: Welch, "The Generalization of Student's Problem when Several Different Population Variances are Involved"
        (1947): ν + 2 = (Σ v)² / Σ v² / (ν + 2).
    """
    below = float((variances**2 / (freedom + 2)).sum())
    if not below:
        return _MOST_FREEDOM
    return min(max(float(variances.sum()) ** 2 / below - 2, 1.0), _MOST_FREEDOM)


def round_closing(parts: list[Fraction], total: int) -> list[int]:
    """Whole numbers next to the parts that add up to a total, which the parts add up to but for its own rounding.

    Source: the method of largest remainders (Hamilton).
    """
    whole = [part.numerator // part.denominator for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda index: (whole[index] - parts[index], index))
    left = total - sum(whole)
    if not 0 <= left <= len(parts):
        raise ValueError(f"parts add up to {float(sum(parts)):g}, not to {total}")
    for index in by_remainder[:left]:
        whole[index] += 1
    return whole
