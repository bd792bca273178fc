"""How long a TPU kernel takes with a tile: double buffering in eight coefficients.

The TPU computes on one tile while it moves the next, so an iteration takes the longer of the two; the first tile's
reading and the last one's writing are exposed, and sums that do not fit one pass are read and written again:

    first + iterations × (max(flop × a, transfers × d + bytes × b + runs × r) + o) + partial sums × s

The coefficients are fitted to measured tiles. What is fitted is the logarithm of times less its mean within the kernel:
only the order and the spacing of a kernel's own tiles count, as for a choice among them nothing else does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.learn.hlo_graph.tiles import TILE_FEATURE_NAMES

COEFFICIENT_NAMES = (
    *("s_per_product_flop", "s_per_other_flop", "s_per_byte", "s_per_transfer", "s_per_run", "exposed_ratio"),
    *("s_per_accumulated_byte", "s_per_iteration"),
)
"""Seconds for each of what is counted; `exposed_ratio`: how much of a tile's transfer is not hidden."""

_START = (2e-14, 1e-12, 2e-12, 2e-7, 1e-9, 1.0, 2e-12, 1e-7)
"""Where the fit starts: peaks of a TPU v3 core (61 Tflop/s of products, 450 GB/s) and orders of magnitude.

Source of the peaks: "A Domain-Specific Supercomputer for Training Deep Neural Networks", CACM 2020, table 3, halved.
"""

LEAST_KERNELS = 3
"""Kernels with known tiles without which coefficients are not fitted."""

_PULL = 0.1
"""Weight that holds each logarithm at its start: what no kernel tells apart stays where it is."""

_AT = {name: place for place, name in enumerate(TILE_FEATURE_NAMES)}


@dataclass(frozen=True)
class TileTimes:
    """Measured tiles of one kernel, for the fit.

    Attributes:
        features: shape [t, TILE_FEATURES], raw.
        time_s: measured, shape [t], above 0.
    """

    features: npt.NDArray[np.float32]
    time_s: Floats


def tile_time_s(features: npt.ArrayLike, coefficients: Floats) -> Floats:
    """Times of tiles, up to a factor of their kernel.

    Args:
        features: shape [t, TILE_FEATURES], raw.
        coefficients: by `COEFFICIENT_NAMES`.

    Returns:
        Seconds, shape [t]; NaN where the tile says nothing (`bounds_known` is 0).
    """
    rows = np.asarray(features, np.float64)
    column = {name: rows[:, place] for name, place in _AT.items()}
    product, other, per_byte, per_transfer, per_run, exposed, per_sum, per_iteration = coefficients
    computing = column["flop"] * np.where(column["is_product"] > 0, product, other)
    moving = column["transfers"] * per_transfer + column["moved_bytes"] * per_byte + column["runs"] * per_run
    times: Floats = (
        exposed * column["tile_bytes"] * per_byte
        + np.maximum(computing, moving)
        + column["iterations"] * per_iteration
        + column["accumulated_bytes"] * per_sum
    )
    return np.where(column["bounds_known"] > 0, times, np.nan)


def fit_tile_cost(kernels: Sequence[TileTimes]) -> Floats:
    """Coefficients that bring the times of tiles of some kernels into their measured proportions.

    Every kernel counts by the root of the root of the number of its tiles, and a tile in proportion to how close it is
    to its kernel's best: slow tiles are not to be told apart.

    Raises:
        ModelError: fewer than `LEAST_KERNELS` kernels have at least two tiles with known bounds.
    """
    from scipy.optimize import least_squares  # comes with scikit-learn

    known = [one for one in map(_known, kernels) if len(one.time_s) > 1]
    if len(known) < LEAST_KERNELS:
        raise ModelError(
            f"a tile model is fitted to at least {LEAST_KERNELS} kernels with known tiles, not {len(known)}"
        )
    weights = [one.time_s.min() / one.time_s for one in known]
    weights = [weight / weight.sum() for weight in weights]
    start = np.log(np.array(_START))

    def residuals(logs: Floats) -> Floats:
        parts = [_PULL * (logs - start)]
        coefficients = np.exp(logs)
        for one, weight in zip(known, weights, strict=True):
            off = np.log(tile_time_s(one.features, coefficients)) - np.log(one.time_s)
            parts.append((off - weight @ off) * np.sqrt(weight) * len(weight) ** 0.25)
        return np.concatenate(parts)

    return np.exp(np.asarray(least_squares(residuals, start).x, np.float64))


def _known(one: TileTimes) -> TileTimes:
    of = one.features[:, _AT["bounds_known"]] > 0
    return TileTimes(one.features[of], one.time_s[of])
