"""From a folder of measurements to a stored model: members, floors, intervals, card.

How far an operator or a device lies outside the training data, and how wide the interval is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.learn.models.model_file import Progress, StoredModel
from phasepoint.learn.operators.features import WITH_GENERATION, Traits, traits_of_device
from phasepoint.learn.operators.training import (
    STEPS,
    OperatorRows,
    device_log_time,
    measured_floors,
    member_of,
    predicted_log_time,
    rows_of_times,
    train_members,
    typical_floors,
)
from phasepoint.learn.operators.work import CLASSES, OperatorTimes, OperatorWork, join_works, read_operator_times

EDGES = (-0.7, 0.4)
"""Logarithm of device time over dispatch, between which both count; below dispatch alone, above the device alone."""
OTHER_LIBRARY = 1.0
"""Distance of another maker's libraries, and of another element type: other kernels. Assumed."""
_COVERED = 0.9
"""Share of a left-out device's measurements that intervals are stretched to hold: what they are said to hold."""
_WIDEST = 4.0
"""Times that quantiles are stretched at most, a choice."""


def shape_sizes(work: OperatorWork) -> Floats:
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


_VIEWS = (False, True, False, True)
"""Members per device left out, of products: half do not see the generation; their mean errs less than either."""
_EARLIER = 5
"""Products stop after a part of the steps: later ones fit five devices, and miss the sixth."""


@dataclass(frozen=True)
class LeftOut:
    """How a class did on a device that its member had not seen.

    Attributes:
        device: the specification's name.
        error: logarithm of measured over predicted, [n].
        share: logarithm of the device's time over dispatch, [n].
        roofline: logarithm of measured over the physical bound, [n].
        log_time: logarithm of measured seconds, [n].
    """

    device: str
    error: Floats
    share: Floats
    roofline: Floats
    log_time: Floats


@dataclass(frozen=True)
class FittedClass:
    """One class: arrays of the model, and errors on devices left out (empty with one device)."""

    kind: str
    ops: tuple[str, ...]
    arrays: Mapping[str, Any]
    left_out: tuple[LeftOut, ...]
    coverage: float


def fit_operators(
    folder: str | Path, *, seed: int = 0, steps: int = STEPS, progress: Progress | None = None
) -> StoredModel:
    """Train every class that the folder holds.

    Raises:
        ModelError: the folder cannot be used.
        MissingExtraError: JAX or optax is not installed.
    """
    times, notes = read_operator_times(folder)
    kinds = [kind for kind in CLASSES if any(part.kind == kind for part in times)]
    fitted = []
    for done, kind in enumerate(kinds, start=1):
        fitted.append(fit_class(kind, times, seed=seed, steps=steps))
        if progress is not None:
            progress(done, len(kinds))
    specs = {part.spec.name: traits_of_device(part.spec) for part in times}
    known = np.stack([device_traits(traits) for _, traits in sorted(specs.items())])
    arrays: dict[str, Any] = {"devices": known}
    for one in fitted:
        arrays.update({f"{one.kind}/{name}": value for name, value in one.arrays.items()})
    card = {
        "corpus": f"{sum(len(part.time_s) for part in times):,} measured operators (gpu_ops), f32",
        "date": datetime.now(UTC).date().isoformat(),
        "devices": sorted(specs),
        "device_scale": _scale(specs, known),
        "ops": {one.kind: list(one.ops) for one in fitted},
        "errors": {one.kind: _errors(one) for one in fitted},
        "seed": seed,
        "steps": steps,
        "notes": list(notes),
    }
    return StoredModel("gpu-ops", "operators", arrays, card)


def fit_class(kind: str, times: tuple[OperatorTimes, ...], *, seed: int, steps: int = STEPS) -> FittedClass:
    """Train one class: a member that sees all devices, and one per device that does not see it."""
    rows = rows_of_times(kind, times, seed=seed)
    each = [None, *(range(len(rows.devices)) if len(rows.devices) > 1 else ())]
    views = _VIEWS if kind in WITH_GENERATION else (False,)
    members, blind = [out for out in each for _ in views], [view for _ in each for view in views]
    steps = max(1, steps // _EARLIER) if kind in WITH_GENERATION else steps
    weights = train_members(rows, members, seed=seed, steps=steps, blind=blind)
    floors = measured_floors(rows)
    typical = np.stack([typical_floors(floors, out) for out in members])
    left_out = tuple(
        _left_out(rows, [member_of(weights, m) for m in range(len(members)) if members[m] == out], floor, out)
        for out, floor in zip(each, typical[:: len(views)], strict=True)
        if out is not None or len(each) == 1
    )
    quantiles, coverage = calibrate([one.error for one in left_out], [one.share for one in left_out])
    sizes = size_range(shape_sizes(join_works([part.work for part in times if part.kind == kind])))
    extra = {"floor": typical, "quantiles": quantiles, "sizes": sizes}
    arrays = {**weights, **{name: value.astype(np.float32) for name, value in extra.items()}}
    return FittedClass(kind, rows.ops, arrays, left_out, coverage)


def _left_out(rows: OperatorRows, members: Sequence[Mapping[str, Any]], log_floor: Floats, out: int | None) -> LeftOut:
    of = rows.device == out if out is not None else np.ones(len(rows.device), bool)
    inputs = (rows.shape[of].astype(np.float64), rows.terms[of].astype(np.float64))
    predicted, own = np.zeros(int(of.sum())), np.zeros(int(of.sum()))
    for weights in members:
        predicted += predicted_log_time(rows, weights, log_floor, of) / len(members)
        time = device_log_time(rows.kind, weights, inputs, np)
        own += np.logaddexp(time, float(weights["start"])) / len(members)
    measured = rows.log_time[of].astype(np.float64)
    name = rows.devices[out] if out is not None else rows.devices[0]
    share = own - log_floor[rows.op[of]]
    return LeftOut(name, measured - predicted, share, measured - np.log(rows.bound_s[of]), measured)


def _errors(one: FittedClass) -> dict[str, Any]:
    mape = {part.device: float(np.mean(np.abs(np.expm1(-part.error)))) for part in one.left_out}
    return {
        "left_out_device_mape": {name: round(value, 4) for name, value in mape.items()},
        "mean": round(float(np.mean(list(mape.values()))), 4),
        "coverage_of_a_left_out_device": round(one.coverage, 3),
    }


def _scale(specs: Mapping[str, Any], known: Floats) -> float:
    """How far the farthest device lies from the others: what calibration by leaving devices out covers."""
    if len(specs) < 2:
        return 1.0
    names = sorted(specs)
    away = [device_distance(specs[name], np.delete(known, place, axis=0)) for place, name in enumerate(names)]
    return max(*away, 0.25)
