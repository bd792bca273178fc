"""Boosted trees as plain arrays: scikit-learn trains them, NumPy applies them, nothing is pickled.

A node is five bytes: its feature, the number of its threshold among the thresholds of that feature (histogram trees
have at most 255), and how far its right child lies ahead; the left one follows at once. Inputs are turned into numbers
of thresholds first, which says the same as comparing them with the thresholds themselves.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

PACKED = ("baseline", "edges", "edge_starts", "feature", "threshold", "right", "value", "starts")
"""Names of the arrays of a packed ensemble."""

_LEAF = -1
"""In place of the feature of a node that has none."""
_MISSING = 1 << 14
"""Place of a missing value: beyond the 255 thresholds that a feature may have, within int16."""
_COMPILE_FROM = 20_000_000
"""Rows × trees from which the compiled walk pays for its start (half a second): measured on one core, 2026."""


def pack_trees(regressor: "HistGradientBoostingRegressor") -> dict[str, NDArray[Any]]:
    """A fitted ensemble as arrays, as `predict_trees` takes them.

    Returns:
        `baseline` float64 [1]; `edges` float64 [e], the thresholds of all features one after the other, and
        `edge_starts` int32 [features + 1]; per node `feature` int16 (−1: a leaf), `threshold` uint8, `right` uint16
        (nodes ahead; bit 15 says that a missing value goes left), `value` float32 (0 where it is no leaf);
        `starts` int32 [trees + 1].

    Raises:
        ValueError: it has categorical features, several outputs or a link other than the identity.
    """
    if regressor.is_categorical_ is not None or regressor.loss not in ("squared_error", "absolute_error", "quantile"):
        raise ValueError("only trees over numbers with an identity link are packed")
    nodes = [trees[0].nodes for trees in regressor._predictors]
    every = np.concatenate(nodes)
    leaf = every["is_leaf"].astype(bool)
    own = np.concatenate([np.arange(len(tree)) for tree in nodes])
    ahead = np.where(leaf, 0, every["right"].astype(np.int64) - own)
    if (every["left"][~leaf] != own[~leaf] + 1).any() or ahead.max(initial=0) >= 1 << 15:
        raise ValueError("the trees are too large, or their nodes do not lie in the expected order")
    feature = np.where(leaf, _LEAF, every["feature_idx"])
    edges = [
        np.unique(every["num_threshold"][feature == column]).astype(np.float64)
        for column in range(regressor.n_features_in_)
    ]
    threshold = np.zeros(len(every), np.int64)
    for column, of in enumerate(edges):
        threshold[feature == column] = np.searchsorted(of, every["num_threshold"][feature == column])
    return {
        "baseline": np.asarray(regressor._baseline_prediction, np.float64).ravel(),
        "edges": np.concatenate(edges),
        "edge_starts": _starts([len(of) for of in edges]),
        "feature": feature.astype(np.int16),
        "threshold": threshold.astype(np.uint8),
        "right": (ahead + (every["missing_go_to_left"].astype(np.int64) << 15) * ~leaf).astype(np.uint16),
        "value": np.where(leaf, every["value"], 0.0).astype(np.float32),
        "starts": _starts([len(tree) for tree in nodes]),
    }


def predict_trees(arrays: Mapping[str, NDArray[Any]], X: Any) -> NDArray[np.float64]:
    """What scikit-learn's `predict` says, up to the rounding of leaves to 32 bits.

    Args:
        arrays: from `pack_trees`; other names beside them are left alone.
        X: [n, features]; NaN is missing.

    Returns:
        [n].

    Raises:
        ValueError: the width of X is not that of the training data.
    """
    rows = np.asarray(X, np.float64)
    width = len(arrays["edge_starts"]) - 1
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"the trees take rows of {width} features, not an array of shape {rows.shape}")
    places = _places(arrays, rows)
    right, nan_left = arrays["right"] & 0x7FFF, arrays["right"] >= 1 << 15
    nodes = (arrays["feature"], arrays["threshold"], right.astype(np.int32), nan_left)
    if len(rows) * (len(arrays["starts"]) - 1) >= _COMPILE_FROM:
        from phasepoint.learn.models.tree_walk import walk_trees

        total = walk_trees(places, nodes, arrays["value"], arrays["starts"], _MISSING)
    else:
        total = _walk(places, nodes, arrays["value"], arrays["starts"])
    return np.asarray(total + arrays["baseline"][0], np.float64)


def _starts(lengths: list[int]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _places(arrays: Mapping[str, NDArray[Any]], rows: NDArray[np.float64]) -> NDArray[np.int16]:
    """Number of the first threshold that is not below the value, `[n, features]`; 2^14 where it is missing."""
    starts = arrays["edge_starts"]
    places = np.empty(rows.shape, np.int16)
    for column in range(rows.shape[1]):
        of = arrays["edges"][starts[column] : starts[column + 1]]
        places[:, column] = np.searchsorted(of, rows[:, column], side="left")
    places[np.isnan(rows)] = _MISSING
    return places


def _walk(
    places: NDArray[np.int16], nodes: tuple[NDArray[Any], ...], value: NDArray[np.float32], starts: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Sum of the leaves that each row falls into: all trees of a block of rows go down a level at a time."""
    feature, threshold, right, nan_left = nodes
    trees = len(starts) - 1
    total = np.zeros(len(places))
    block = max(1, 2_000_000 // max(1, trees))
    for first in range(0, len(places), block):
        part = places[first : first + block]
        node = np.repeat(starts[:-1][None], len(part), axis=0).astype(np.int64).ravel()
        row = np.repeat(np.arange(len(part)), trees)
        open_ = np.flatnonzero(feature[node] >= 0)
        while len(open_):
            at = node[open_]
            place = part[row[open_], feature[at]]
            left = np.where(place == _MISSING, nan_left[at], place <= threshold[at])
            node[open_] = at = at + np.where(left, 1, right[at])
            open_ = open_[feature[at] >= 0]
        total[first : first + block] = value[node].reshape(len(part), trees).astype(np.float64).sum(axis=1)
    return total
