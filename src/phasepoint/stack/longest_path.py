"""The compiled loop that finds the heaviest path through a graph whose points stand in the order of its edges."""

import numpy as np

from phasepoint.core.compiled import compiled

# Compiled: takes and returns arrays, and so carries no annotations.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201


@compiled()
def heaviest_path(source, target, weight, n_points):
    """Numbers of the edges of the heaviest path, in its order; O(edges).

    Args:
        source: `[n_edges]` point that each edge leaves; below its target.
        target: `[n_edges]` point that it reaches, rising.
        weight: `[n_edges]` its weight, not negative.
        n_points: number of points.

    Returns:
        `[k]` edges, none where no edge has a weight. Of equal paths into a point the one over the later source counts;
        of equal ends the earliest.
    """
    best = np.zeros(n_points, np.int64)
    through = np.full(n_points, -1, np.int64)
    for edge in range(len(source)):
        point, total = target[edge], best[source[edge]] + weight[edge]
        known = through[point]
        if total > best[point] or (total == best[point] and total > 0 and known >= 0 and source[edge] > source[known]):
            best[point], through[point] = total, edge
    point = np.int64(0)
    for candidate in range(n_points):
        if best[candidate] > best[point]:
            point = candidate
    path = np.empty(n_points, np.int64)
    size = 0
    while n_points and through[point] >= 0:
        path[size] = through[point]
        point = source[path[size]]
        size += 1
    return path[:size][::-1].copy()
