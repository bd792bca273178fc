"""Order statistics in integers, and the cluster ratio estimator on which whole-run estimates stand.

Arrays of picoseconds stay integers; ratios and variances are floats. SciPy is imported where it is used.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def quantile_ps(values: IntArray, q: float) -> int:
    """The q-quantile by nearest rank: always one of the values, so no rounding and no floats.

    Args:
        values: `[n]`, n ≥ 1, in any order.
        q: 0–1.

    Returns:
        The smallest value with at least a share q of the values at or below it.

    Raises:
        ValueError: no values, or q outside 0–1.

    Source: Hyndman & Fan, "Sample Quantiles in Statistical Packages" (1996), definition 1.
    """
    if len(values) == 0:
        raise ValueError("a quantile needs at least one value")
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile's q lies between 0 and 1, got {q:g}")
    rank = max(int(np.ceil(q * len(values) - 1e-9)) - 1, 0)
    return int(np.partition(values, rank)[rank])


def median_ps(values: IntArray) -> int:
    """The lower median: one of the values (`quantile_ps` at one half)."""
    return quantile_ps(values, 0.5)


def weighted_quantile_ps(values: IntArray, weights: FloatArray, q: float) -> int:
    """The smallest value at or below which a share q of the weight lies.

    Args:
        values: `[n]`, n ≥ 1.
        weights: `[n]`, not negative, not all zero.
        q: 0–1.

    Raises:
        ValueError: no values, no weight, or q outside 0–1.
    """
    total = float(weights.sum()) if len(values) else 0.0
    if total <= 0 or not 0 <= q <= 1:
        raise ValueError(f"a weighted quantile needs some weight and 0 ≤ q ≤ 1, got weight {total:g} and q {q:g}")
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    index = int(np.searchsorted(reached, q * reached[-1] * (1 - 1e-12)))
    return int(values[order[min(index, len(values) - 1)]])


def median_absolute_deviation_ps(values: IntArray) -> int:
    """Median distance from the median: a spread that outliers do not move. Raises ValueError with no values."""
    return median_ps(np.abs(values - median_ps(values)))


def t_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t: `t_quantile(0.975, 9)` is 2.26, the half width of a 95 % interval in standard errors.

    Args:
        probability: 0–1.
        freedom: degrees of freedom, > 0, need not be whole.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def apportion(total: int, weights: FloatArray) -> IntArray:
    """Split an integer total in proportion to weights, so that the parts add up to it exactly.

    Args:
        total: what to split, ≥ 0.
        weights: `[n]`, not negative, with a sum above 0 unless total is 0.

    Returns:
        `[n]` integers, each within 1 of its exact share (beyond 2^53 within float precision of it).

    Raises:
        ValueError: no weight to split a total by, or a negative total or weight.

    Source: the method of largest remainders (Hamilton).
    """
    weight = float(weights.sum()) if len(weights) else 0.0
    if total < 0 or (len(weights) and weights.min() < 0) or (total and weight <= 0):
        raise ValueError(f"cannot split {total} by weights that add up to {weight:g}")
    if not total:
        return np.zeros(len(weights), np.int64)
    exact = weights * (total / weight)
    parts = np.minimum(np.floor(exact), total).astype(np.int64)
    by_remainder = np.argsort(-(exact - parts), kind="stable")
    left = total - sum(map(int, parts))
    if 0 <= left < len(parts):
        parts[by_remainder[:left]] += 1
    else:  # beyond 2^53 the floors themselves are off; what is left goes to the largest part
        parts[int(np.argmax(weights))] += left
    return parts


@dataclass(frozen=True)
class ClusterRatio:
    """Ratios of cluster totals, with the spread that a new draw of clusters would give them.

    Attributes:
        ratio: `[k]`, total of y over total of x.
        residuals: `[n, k]`, what each cluster adds to the error of `ratio`; their squares add up to `variance`.
        variance: `[k]`, of `ratio`, before any finite population correction.
        freedom: degrees of freedom of `variance`.
    """

    ratio: FloatArray
    residuals: FloatArray
    variance: FloatArray
    freedom: float


def cluster_ratio(y: FloatArray, x: FloatArray, weights: FloatArray | None = None) -> ClusterRatio:
    """The ratio estimator over a sample of clusters of unequal size, with its jackknife variance.

    R = Σ w y / Σ w x; its variance is (n − 1) / n · Σ (e / (1 − h))² with e = w (y − R x) / Σ w x and h the cluster's
    share of Σ w x, so that a cluster which dominates the sample is not taken for a good fit.

    Args:
        y: `[n, k]`, cluster totals of k quantities.
        x: `[n]`, cluster totals of the size, with a sum above 0.
        weights: `[n]`, inverse inclusion probabilities up to a factor; None for all equal.

    Raises:
        ValueError: fewer than two clusters, or no size.

    Source: Cochran, Sampling Techniques (3rd ed.), eq. 6.13 (ratio estimator), 11.30 (clusters of unequal size in
        ratio to size); the division by 1 − h is the delete-one jackknife of the same ratio (ch. 6.17). Unequal
        weights lower the degrees of freedom to Kish's effective sample size less one.
    """
    n_clusters = len(x)
    w = np.ones(n_clusters) if weights is None else weights
    size = float((w * x).sum())
    if n_clusters < 2 or size <= 0:
        raise ValueError(f"a cluster ratio needs two clusters with some size, got {n_clusters} of size {size:g}")
    ratio = (w[:, None] * y).sum(axis=0) / size
    leverage = np.minimum(w * x / size, 0.99)
    errors = w[:, None] * (y - x[:, None] * ratio) / size / (1 - leverage)[:, None]
    residuals = errors * np.sqrt(1 - 1 / n_clusters)
    effective = w.sum() ** 2 / (w**2).sum()
    return ClusterRatio(ratio, residuals, (residuals**2).sum(axis=0), float(max(effective - 1, 1)))


def satterthwaite_freedom(variances: FloatArray, freedom: FloatArray) -> FloatArray:
    """Degrees of freedom of a sum of independent variance estimates.

    Args:
        variances: `[n, k]`.
        freedom: `[n]`, of each row.

    Returns:
        `[k]`; infinite where all variances are 0.

    Source: Satterthwaite, "An Approximate Distribution of Estimates of Variance Components" (1946).
    """
    total = variances.sum(axis=0)
    below = (variances**2 / freedom[:, None]).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(below > 0, total**2 / below, np.inf)
