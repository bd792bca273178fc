"""k-means on the captured steps' vectors, k by the elbow of the squared distance and by BIC.

Source: Wudenhe & Tseng, ISPASS 2021 (k-means with the elbow of the sum of squared distances); BIC as in X-means,
Pelleg & Moore, ICML 2000. It knows no time: a drift becomes slices, an outlier a cluster.
"""

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.detection.methods.step_space import nearest, sample_points, spread_labels, step_space
from phasepoint.phases.detection.result import Labelling
from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors

MOST_CLUSTERS = 10
"""A choice: more than a job has kinds of step, and few enough to fit them all."""

_SEED = 0
"""Any number, so that the same run gives the same clusters."""


def label(series: DistinctSteps, vectors: OpVectors | None) -> Labelling:
    """Cluster the captured steps; the others take the label of a captured neighbour of like duration."""
    space = step_space(series, vectors)
    sample = space.points[sample_points(space)]
    centres, note = _fit(sample)
    label = nearest(space.points, centres)
    left_out = len(space.points) - len(sample)
    notes = [*space.notes, note]
    if left_out:
        notes.append(f"k was chosen on {len(sample)} of {len(space.points)} steps, evenly spaced")
    return Labelling(spread_labels(series, space, label), tuple(notes))


def _fit(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Centres for the better k of elbow and BIC, and which it was."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(points.round(6), axis=0))
    fits = [KMeans(k, n_init=3, random_state=_SEED).fit(points) for k in range(1, min(MOST_CLUSTERS, distinct) + 1)]
    distance = np.array([fit.inertia_ for fit in fits])
    elbow, bic = find_elbow(distance), _least_bic(points, distance)
    # BIC says whether there is more than one cluster at all; the elbow never says one.
    k = 0 if bic == 0 else min(elbow, bic)
    return fits[k].cluster_centers_, f"k = {k + 1} (elbow {elbow + 1}, BIC {bic + 1})"


def find_elbow(distance: NDArray[np.float64]) -> int:
    """Index of the point furthest below the line from the first value to the last, `[n_k]`."""
    if len(distance) < 3 or distance[0] <= distance[-1]:
        return int(len(distance) > 1 and distance[-1] < distance[0])
    x = np.linspace(0, 1, len(distance))
    y = (distance - distance[-1]) / (distance[0] - distance[-1])
    return int((1 - x - y).argmax())


def _least_bic(points: NDArray[np.float64], distance: NDArray[np.float64]) -> int:
    """Index of the least BIC of spherical clusters of one variance."""
    n, d = points.shape
    k = np.arange(1, len(distance) + 1)
    variance = np.maximum(distance / (n * d), 1e-6)
    bic = n * d * np.log(variance) + k * (d + 1) * np.log(n)
    return int(bic.argmin())
