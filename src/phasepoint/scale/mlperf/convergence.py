"""Samples to converge against the batch: flat up to a critical batch, then growing.

    samples(b) = least · (1 + (b / critical) ^ growth)

With growth 1 it is the model of McCandlish et al., "An Empirical Model of Large-Batch Training", 2018 (and of Shallue
et al., 2019: first perfect scaling, then diminishing returns); benchmarks differ in how fast it turns, because learning
rate and optimizer are tuned anew for large batches.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.scale.mlperf.records import Point, Result

REFERENCE_WEIGHT = 2.0
"""Of a reference point, a mean over many runs, against one published result. A choice."""


@dataclass(frozen=True)
class Convergence:
    """A benchmark's curve, without its level: only ratios of samples are asked of it.

    Attributes:
        log_critical: ln of the batch at which samples have doubled.
        growth: exponent beyond it.
    """

    log_critical: float
    growth: float

    def log_samples(self, batch: float) -> float:
        """ln(samples / least) at a batch."""
        return float(np.logaddexp(0.0, self.growth * (math.log(batch) - self.log_critical)))


def fit_convergence(points: Iterable[Point], results: Iterable[Result]) -> Mapping[str, Convergence]:
    """A curve for each benchmark.

    Levels of reference points and of results in different units are free: they count epochs, samples or tokens, and
    some submitters round up to whole epochs.
    """
    found: dict[str, list[tuple[str, float, float, float]]] = {}
    for point in points:
        found.setdefault(point.benchmark, []).append(("reference", point.batch, point.samples, REFERENCE_WEIGHT))
    for result in results:
        if result.batch is not None and result.samples is not None:
            found.setdefault(result.benchmark, []).append((result.unit, result.batch, result.samples, 1.0))
    return {name: _fit(rows) for name, rows in sorted(found.items())}


LOG_CRITICAL_ABOVE_MEDIAN = 1.5
"""Prior: the critical batch is e^1.5 times the median of what was published; submitters stay below it."""


def _fit(rows: list[tuple[str, float, float, float]]) -> Convergence:
    from scipy.optimize import least_squares

    units = sorted({row[0] for row in rows})
    unit = np.array([units.index(row[0]) for row in rows])
    log_batch, log_samples = np.log([row[1] for row in rows]), np.log([row[2] for row in rows])
    root = np.sqrt([row[3] for row in rows])
    middle = float(np.median(log_batch))
    levels = [float(np.median(log_samples[unit == place])) for place in range(len(units))]

    def residuals(asked: Floats) -> Floats:
        above, log_growth, own = asked[0], asked[1], asked[2:]
        curve = np.logaddexp(0.0, np.exp(log_growth) * (log_batch - middle - above))
        off = root * np.clip(log_samples - own[unit] - curve, -1, 1)
        return np.concatenate([off, [0.3 * (above - LOG_CRITICAL_ABOVE_MEDIAN), 0.5 * log_growth]])

    start = [LOG_CRITICAL_ABOVE_MEDIAN, 0.0, *levels]
    above, log_growth = least_squares(residuals, start, loss="soft_l1", f_scale=0.1).x[:2]
    return Convergence(middle + float(above), math.exp(float(log_growth)))
