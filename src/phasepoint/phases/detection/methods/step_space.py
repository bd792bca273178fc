"""Captured steps as points, for the methods that cluster points; and labels for the steps no window saw."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors

MOST_OPS = 256
"""Ops with the most self time that are told apart, a choice: those behind them have next to none."""

MOST_COMPONENTS = 10
"""A choice: distances in more dimensions tell steps apart less and less."""

MOST_POINTS = 4000
"""Points that are clustered; of more, a regular sample is, and the others join the nearest cluster."""

_VARIANCE = 0.95
"""Share of the variance that the components must hold: a choice, usual with a PCA."""


@dataclass(frozen=True, eq=False)
class StepSpace:
    """Steps to cluster.

    Attributes:
        index: position of each point's step in the run's order, `[n_points]`, rising.
        points: principal components of the step vectors, `[n_points, n_components]`.
        notes: what was left out.
    """

    index: Int64s
    points: NDArray[np.float64]
    notes: tuple[str, ...]


def step_space(series: DistinctSteps, vectors: OpVectors | None) -> StepSpace:
    """Principal components of op counts, op times and the step clock, each feature in standard deviations.

    Source: TPUPoint (Wudenhe & Tseng, ISPASS 2021) clusters steps by their ops' counts and times after a PCA. The
    step's own duration is added, so that steps without ops can be compared too. Without ops, all steps are points.
    """
    from sklearn.decomposition import PCA

    clock = np.log(np.maximum(series.dur_ps, 1))[:, None].astype(np.float64)
    if vectors is None:
        features, index = clock, np.arange(series.n_steps)
        notes: tuple[str, ...] = ("no step was captured: steps are clustered by duration alone",)
    else:
        index = vectors.index
        features, notes = _op_features(vectors), ()
        features = np.hstack([features, clock[index]])
    scale = features.std(axis=0)
    used = scale > 1e-9 * np.maximum(np.abs(features).max(axis=0), 1e-12)
    features = (features[:, used] - features[:, used].mean(axis=0)) / scale[used]
    if features.shape[1] == 0 or len(features) < 2:
        return StepSpace(index, np.zeros((len(index), 1)), notes)
    model = PCA(min(MOST_COMPONENTS, *features.shape), svd_solver="full" if features.size < 1e6 else "covariance_eigh")
    points = model.fit_transform(features)
    kept = int(np.searchsorted(np.cumsum(model.explained_variance_ratio_), _VARIANCE)) + 1
    return StepSpace(index, points[:, :kept], notes)


def _op_features(vectors: OpVectors) -> NDArray[np.float64]:
    """log(1 + count) and log(1 + self time in µs) of the ops with most self time, `[n_captured, 2 n_ops]`."""
    total = np.bincount(vectors.op, vectors.self_ps, len(vectors.names))
    kept = np.argsort(-total, kind="stable")[: min(MOST_OPS, max(int(2e7 // max(vectors.n_captured, 1)), 1))]
    column = np.full(len(vectors.names), -1, np.int64)
    column[kept] = np.arange(len(kept))
    use = column[vectors.op] >= 0
    cell = vectors.owner[use] * len(kept) + column[vectors.op[use]]
    size = vectors.n_captured * len(kept)
    count = np.bincount(cell, vectors.count[use], size).reshape(-1, len(kept))
    self_us = np.bincount(cell, vectors.self_ps[use], size).reshape(-1, len(kept)) / 1e6
    return np.hstack([np.log1p(count), np.log1p(self_us)])


def sample_points(space: StepSpace) -> Int64s:
    """Every k-th point, so that at most `MOST_POINTS` are clustered: regular, hence the same every time."""
    stride = -(-len(space.points) // MOST_POINTS)
    return np.arange(0, len(space.points), stride)


def nearest(points: NDArray[np.float64], to: NDArray[np.float64]) -> Int64s:
    """Row of `to` nearest to each of `points`, in blocks that bound memory."""
    found = np.empty(len(points), np.int64)
    square = (to**2).sum(axis=1)
    block = max(1, 4_000_000 // max(len(to), 1))
    for begin in range(0, len(points), block):
        part = points[begin : begin + block]
        found[begin : begin + block] = (square - 2 * part @ to.T).argmin(axis=1)
    return found


def spread_labels(series: DistinctSteps, space: StepSpace, label: Int64s) -> Int64s:
    """Labels for all steps `[n]` from those of the clustered ones, `[n_points]`.

    A step no window saw takes the label of the captured step before or after it, whichever lasted more nearly as long.
    """
    where = np.arange(series.n_steps)
    after = np.minimum(np.searchsorted(space.index, where), len(space.index) - 1)
    before = np.maximum(np.searchsorted(space.index, where, side="right") - 1, 0)
    log_dur = np.log(np.maximum(series.dur_ps, 1))
    to_before = np.abs(log_dur - log_dur[space.index[before]])
    to_after = np.abs(log_dur - log_dur[space.index[after]])
    return np.asarray(np.where(to_before <= to_after, label[before], label[after]), np.int64)
