"""DBSCAN on the captured steps' vectors, min-samples by the elbow of the noise ratio.

Source: Wudenhe & Tseng, ISPASS 2021: DBSCAN with min-samples swept and chosen where the ratio of noise points bends.
The radius comes from the distances to the k-th neighbour (Ester et al., KDD 1996). Noise points join the nearest
cluster, so that every step has a phase.
"""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.phases.detection.methods.step_space import nearest, sample_points, spread_labels, step_space
from phasepoint.phases.detection.result import Labelling
from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors

MIN_SAMPLES = (5, 10, 20, 30, 45, 60, 90, 120)
"""The values tried; those over a third of the points are left out."""


def label(series: DistinctSteps, vectors: OpVectors | None) -> Labelling:
    """Cluster the captured steps; noise joins the nearest cluster, uncaptured steps a neighbour of like duration."""
    space = step_space(series, vectors)
    chosen = sample_points(space)
    sample = space.points[chosen]
    if len(sample) < 3 * MIN_SAMPLES[0]:
        note = f"{len(sample)} captured steps are too few for density to mean anything: one phase"
        return Labelling(np.zeros(series.n_steps, np.int64), (*space.notes, note))
    cluster, note = _fit(sample)
    dense = np.flatnonzero(cluster >= 0)
    label = (
        cluster[dense][nearest(space.points, sample[dense])] if len(dense) else np.zeros(len(space.points), np.int64)
    )
    notes = [*space.notes, note]
    if len(chosen) < len(space.points):
        notes.append(f"clusters were found on {len(chosen)} of {len(space.points)} steps, evenly spaced")
    return Labelling(spread_labels(series, space, label), tuple(notes))


def _fit(points: NDArray[np.float64]) -> tuple[Int64s, str]:
    """Cluster per point, -1 for noise, at the min-samples where the noise ratio bends."""
    from sklearn.cluster import DBSCAN

    radius = _radius(points)
    tried = [m for m in MIN_SAMPLES if 3 * m <= len(points)]
    found = [DBSCAN(eps=radius, min_samples=m).fit_predict(points).astype(np.int64) for m in tried]
    noise = np.array([float((cluster < 0).mean()) for cluster in found])
    at = find_bend(noise)
    note = f"min-samples {tried[at]}, radius {radius:.3g}, {100 * noise[at]:.1f} % noise"
    return found[at], note


def find_bend(noise: NDArray[np.float64]) -> int:
    """Index of the last value before a rising curve takes off: the furthest below the line between its ends."""
    if len(noise) < 2 or noise[-1] <= noise[0]:
        return 0
    x = np.linspace(0, 1, len(noise))
    return int((x - (noise - noise[0]) / (noise[-1] - noise[0])).argmax())


def _radius(points: NDArray[np.float64]) -> float:
    """A step beyond the distance at which nine points in ten have as many neighbours as a small cluster holds."""
    from sklearn.neighbors import NearestNeighbors

    k = int(np.clip(len(points) // 10, MIN_SAMPLES[0], 30))
    distance = NearestNeighbors(n_neighbors=k + 1).fit(points).kneighbors(points)[0][:, -1]
    return float(max(1.2 * np.quantile(distance, 0.9), 1e-6))
