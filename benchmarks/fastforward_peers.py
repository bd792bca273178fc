"""Other ways to let a few steps stand for a run, for `benchmarks/fastforward.py`: each gives time and parts of the run.

Each takes the same number of steps, without those that compiled: these are counted apart and exactly for every one of
them, since a second of compilation among steps of milliseconds would decide all. A run is given as its steps' parts
`[n, k]`, which add up to each step's time, and, for SimPoint, as its steps' op vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WINDOW_STEPS = 5
WARM_UP_STEPS = 10
DIMENSIONS, MOST_CLUSTERS, BIC_SHARE = 15, 30, 0.9
"""SimPoint 3's defaults: random projection to 15 dimensions, at most 30 clusters, the smallest k whose BIC reaches 90 %
of the way from the least to the greatest (Hamerly et al., "SimPoint 3.0", 2005)."""
SIMPOINT_SEEDS = 5


@dataclass(frozen=True)
class Parts:
    """A run captured in full.

    Attributes:
        parts_ps: `[n, k]`, what each step's time went into.
        vectors: `[n, d]`, op vectors of the steps, projected.
    """

    parts_ps: np.ndarray
    vectors: np.ndarray


def uniform_steps(run: Parts, sample: int, rng: np.random.Generator) -> np.ndarray:
    """Single steps, each with the same chance."""
    chosen = rng.choice(len(run.parts_ps), sample, replace=False)
    return run.parts_ps[chosen].mean(axis=0) * len(run.parts_ps)


def uniform_windows(run: Parts, sample: int, rng: np.random.Generator) -> np.ndarray:
    """Windows of five steps, each with the same chance."""
    n = len(run.parts_ps)
    starts = np.arange(int(rng.integers(0, WINDOW_STEPS)), n - WINDOW_STEPS + 1, WINDOW_STEPS)
    chosen = rng.choice(starts, min(max(sample // WINDOW_STEPS, 1), len(starts)), replace=False)
    rows = (chosen[:, None] + np.arange(WINDOW_STEPS)).ravel()
    return run.parts_ps[rows].mean(axis=0) * n


def one_window(run: Parts, sample: int, rng: np.random.Generator) -> np.ndarray:
    """One window after warm-up, as profilers are used today: it begins in the first tenth of the run."""
    n = len(run.parts_ps)
    last = max(min(n // 10, n - sample), WARM_UP_STEPS + 1)
    start = int(rng.integers(WARM_UP_STEPS, last))
    return run.parts_ps[start : start + sample].mean(axis=0) * n


def simpoint(run: Parts, sample: int, rng: np.random.Generator) -> np.ndarray:
    """k-means over windows of five steps by the ops in them; the window nearest each centre stands for its cluster."""
    from sklearn.cluster import KMeans

    n = len(run.parts_ps) // WINDOW_STEPS
    points = run.vectors[: n * WINDOW_STEPS].reshape(n, WINDOW_STEPS, -1).mean(axis=1)
    times = run.parts_ps[: n * WINDOW_STEPS].reshape(n, WINDOW_STEPS, -1).sum(axis=1)
    most = min(MOST_CLUSTERS, max(sample // WINDOW_STEPS, 1), len(np.unique(points.round(9), axis=0)))
    seed = int(rng.integers(0, 2**31))
    ks = sorted({*range(1, min(most, 8) + 1), *range(10, most + 1, 4), most})
    fits = [KMeans(k, n_init=1, random_state=seed).fit(points) for k in ks]
    scores = np.array([_bic(points, fit.inertia_, fit.n_clusters) for fit in fits])
    enough = scores.min() + BIC_SHARE * (scores.max() - scores.min())
    fit = fits[int(np.argmax(scores >= enough))]
    nearest = fit.transform(points).argmin(axis=0)
    sizes = np.bincount(fit.labels_, minlength=fit.n_clusters)
    return (times[nearest] * sizes[:, None]).sum(axis=0) * len(run.parts_ps) / (n * WINDOW_STEPS)


def _bic(points: np.ndarray, inertia: float, k: int) -> float:
    """BIC of spherical clusters of one variance (Pelleg and Moore, ICML 2000), up to a constant."""
    n, d = points.shape
    return -n * d / 2 * np.log(max(inertia / (n * d), 1e-12)) - k * (d + 1) / 2 * np.log(n)


def by_step_time(run: Parts, sample: int, rng: np.random.Generator) -> np.ndarray:
    """As SeqPoint: bins of equal width, each by the step nearest its mean; by time, since no length is recorded."""
    times = run.parts_ps.sum(axis=1)
    edges = np.linspace(times.min(), times.max(), sample + 1)[1:-1]
    bins = np.unique(np.digitize(times, edges), return_inverse=True)[1]
    total = np.zeros(run.parts_ps.shape[1])
    for index in range(int(bins.max()) + 1):
        rows = np.flatnonzero(bins == index)
        total += run.parts_ps[rows[np.abs(times[rows] - times[rows].mean()).argmin()]] * len(rows)
    return total


PEERS: dict[str, tuple[Callable[[Parts, int, np.random.Generator], np.ndarray], int | None]] = {
    "uniform, single steps": (uniform_steps, None),
    "uniform, windows of 5": (uniform_windows, None),
    "one window after warm-up": (one_window, None),
    "SimPoint (k-means, BIC)": (simpoint, SIMPOINT_SEEDS),
    "SeqPoint's bins, by time": (by_step_time, 1),
}
"""Name → estimate of the run's parts in ps, and how many seeds make sense (None: as many as asked for)."""
