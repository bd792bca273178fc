"""The walk down packed trees, compiled by numba.

Its own file: it is imported only where many rows go down many trees.
"""

from typing import Any

import numpy as np

from phasepoint.core.compiled import compiled


@compiled()
def walk_trees(places: Any, nodes: Any, value: Any, starts: Any, missing: Any) -> Any:
    """Sum of the leaves that each row falls into, `[n]`; arguments as in `phasepoint.learn.models.trees`."""
    feature, threshold, right, nan_left = nodes
    total = np.zeros(len(places))
    for tree in range(len(starts) - 1):
        for row in range(len(places)):
            node = starts[tree]
            while feature[node] >= 0:
                place = places[row, feature[node]]
                left = nan_left[node] if place == missing else place <= threshold[node]
                node += 1 if left else right[node]
            total[row] += value[node]
    return total
