"""How far an operator or a device lies outside the training data, and how wide the interval is."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.learn.operator_features import Traits
from phasepoint.learn.operator_work import Work

EDGES = (-0.7, 0.4)
"""Logarithm of device time over dispatch, between which both count; below dispatch alone, above the device alone."""
OTHER_LIBRARY = 1.0
"""Distance of another maker's libraries, and of another element type: other kernels. Assumed."""
_COVERED = 0.9
_WIDEST = 4.0


def shape_sizes(work: Work) -> Floats:
    """Sizes by which operators of one class are compared: log2, shape [n, 6]."""
    sizes = (work.flop, work.bytes, work.batch, work.m, work.n, work.k)
    return np.log2(np.maximum(np.stack(sizes, 1), 1.0))


def size_range(sizes: Floats) -> Floats:
    """Shape [2, 6]: what nearly all training data lie between."""
    return np.percentile(sizes, (0.5, 99.5), axis=0)


WIDEST = 3.0
"""Times that an interval is widened (in logarithm) at most: some 40 × either way. What lies further outside is an array
of a few bytes, whose distance grows without end and whose time does not."""


def shape_distance(sizes: Floats, known: Floats) -> Floats:
    """Doublings outside the range, the farthest size, shape [n]; 0 inside."""
    outside = np.maximum(np.maximum(known[0] - sizes, sizes - known[1]), 0.0)
    return np.asarray(outside.max(axis=1))


def device_traits(device: Traits) -> Floats:
    """Traits by which devices are compared: log2, shape [6]."""
    values = (
        device.multiprocessors,
        device.lanes,
        device.clock_hz,
        device.bytes_per_s,
        device.flop_per_s / device.bytes_per_s,
        device.flop_per_s * device.process_nm / device.power_w,
    )
    return np.log2(np.asarray(values, np.float64))


def device_distance(device: Traits, known: npt.NDArray[np.float64]) -> float:
    """Doublings from the range of known devices, shape [devices, 6]: the root of the sum of squares."""
    own = device_traits(device)
    outside = np.maximum(np.maximum(known.min(axis=0) - own, own - known.max(axis=0)), 0.0)
    return float(np.sqrt(np.sum(outside**2)))


def bins_of(share: Floats) -> npt.NDArray[np.int64]:
    """Which quantiles an operator has: 0 dispatch, 1 both, 2 the device."""
    return np.searchsorted(EDGES, share)


def calibrate(errors: Sequence[Floats], shares: Sequence[Floats]) -> tuple[Floats, float]:
    """Quantiles of the errors of devices that were left out, wide enough for the next device.

    Args:
        errors: per left-out device, logarithm of measured over predicted.
        shares: per left-out device, logarithm of device time over dispatch.

    Returns:
        Shape [3, 2]: lower and upper end for each bin; and the share of a device's measurements that intervals made
        from the other devices alone hold, mean over devices: what a new device can expect.
    """
    factor = 1.0
    while factor < _WIDEST and nested_coverage(errors, shares, factor) < _COVERED:
        factor += 0.05
    return factor * _quantiles(errors, shares), nested_coverage(errors, shares, factor)


def nested_coverage(errors: Sequence[Floats], shares: Sequence[Floats], factor: float) -> float:
    """Mean over devices of the share inside intervals made from the others."""
    if len(errors) < 2:
        return 0.0
    held = []
    for out in range(len(errors)):
        others = [index for index in range(len(errors)) if index != out]
        known = factor * _quantiles([errors[i] for i in others], [shares[i] for i in others])
        low, high = known[bins_of(shares[out])].T
        held.append(np.mean((low <= errors[out]) & (errors[out] <= high)))
    return float(np.mean(held))


def widened(quantiles: Floats, share: Floats, distance: Floats) -> tuple[Floats, Floats]:
    """Lower and upper end, logarithm of the factor on the time; wider in proportion beyond distance 1, to a limit."""
    low, high = quantiles[bins_of(share)].T
    factor = np.clip(distance, 1.0, WIDEST)
    return np.minimum(low, 0.0) * factor, np.maximum(high, 0.0) * factor


def _quantiles(errors: Sequence[Floats], shares: Sequence[Floats]) -> Floats:
    all_errors, bins = np.concatenate(errors), bins_of(np.concatenate(shares))
    table = np.zeros((len(EDGES) + 1, 2))
    for place in range(len(table)):
        of = all_errors[bins == place]
        table[place] = np.percentile(of if len(of) >= 20 else all_errors, (5, 95))
    return table
