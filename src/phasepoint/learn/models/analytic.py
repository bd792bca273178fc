"""The analytic model: a roofline with coefficients per kind of kernel. The baseline of everything that is learned.

A kernel takes launch + max(flop × a + transcendentals × b, bytes × c): the same form whether a, b, c come from a
device's specification or were fitted to measured kernels. Fitted on the training data it is as good as such a form
gets, which is how the paper treats its own analytic model ("A Learned Performance Model for Tensor Processing Units",
MLSys 2021, section 6.1: one coefficient per kind of fusion, on the training set).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.core.units import PS_PER_S
from phasepoint.devices import DeviceSpec
from phasepoint.learn.hlo_graph.features import KERNEL_COLUMN_OF
from phasepoint.learn.hlo_graph.graphs import KINDS, KernelGraph

FLOP_PER_TRANSCENDENTAL = 16.0
"""What one transcendental costs on a device of which only peaks are known, in flop at the peak.

Source: CUDA C++ Programming Guide, throughput of native arithmetic instructions, compute capability 8.6 to 9.0: 128
multiply-adds (256 flop) and 16 special functions per clock and multiprocessor.
"""

LEAST_KERNELS = 8
"""Kernels of a kind below which it takes the coefficients of all kinds together: two for each coefficient."""

_ROUNDS = 12
"""Of the fit, a choice: the best one counts, whichever it is."""
_MATRIX_KINDS = frozenset({"dot", "convolution"})
_MATRIX_TYPES = {
    "f32": ("tf32", "f32", "bf16"),
    "f64": ("f64", "f32", "bf16"),
    "narrow": ("bf16", "f16", "f32"),
}
"""Width of a product's elements → types whose peak bounds it, the first that is published. A matrix unit does products
of f32 in tf32 or in passes of bf16 unless told not to, so its peak is the bound."""


@dataclass(frozen=True)
class Coefficients:
    """What a kind of kernel costs, in seconds.

    Attributes:
        s_per_flop: for each floating-point operation.
        s_per_transcendental: for each transcendental one.
        s_per_byte: for each byte read or written.
        launch_s: for each kernel.
    """

    s_per_flop: float
    s_per_transcendental: float
    s_per_byte: float
    launch_s: float


@dataclass(frozen=True)
class AnalyticModel:
    """A roofline of one device.

    Attributes:
        source: where its coefficients come from, in words.
        default: for kinds that `kinds` has not.
        kinds: by kind of kernel.
        matrix_s_per_flop: for dots and convolutions by the width of their elements (f32, f64, narrow), where that
            matters; empty where coefficients were fitted.
    """

    source: str
    default: Coefficients
    kinds: Mapping[str, Coefficients] = field(default_factory=dict)
    matrix_s_per_flop: Mapping[str, float] = field(default_factory=dict)


def analytic_of_device(spec: DeviceSpec) -> AnalyticModel:
    """The roofline of a device's published peaks: no kernel can take less.

    A specification says nothing of what starting a kernel costs, so it is 0 here.

    Raises:
        ModelError: the specification has no peak for any floating-point type.
    """
    vector = _peak(spec, ("f32", "tf32", "bf16", "f16"))
    if vector is None:
        raise ModelError(f"no floating-point peak is known of {spec.name}; add it to phasepoint/devices/specs.toml")
    matrix = {width: _peak(spec, types) or vector for width, types in _MATRIX_TYPES.items()}
    default = Coefficients(1 / vector, FLOP_PER_TRANSCENDENTAL / vector, 1 / spec.memory_bytes_per_s.value, 0.0)
    return AnalyticModel(
        f"peaks of {spec.name}",
        default,
        MappingProxyType({}),
        MappingProxyType({width: 1 / rate for width, rate in matrix.items()}),
    )


def _peak(spec: DeviceSpec, types: Sequence[str]) -> float | None:
    return next((spec.flop_per_s[name].value for name in types if name in spec.flop_per_s), None)


def predict_analytic(model: AnalyticModel, graphs: Sequence[KernelGraph]) -> tuple[Floats, tuple[str, ...]]:
    """Times of kernels and what bounds each.

    Args:
        model: of a device.
        graphs: n kernels.

    Returns:
        Picoseconds, shape [n], and for each `compute`, `memory` or `latency`: the largest part of its time.
    """
    work = work_of_graphs(graphs)
    per_kind = [model.kinds.get(graph.kind, model.default) for graph in graphs]
    table = np.array(
        [[one.s_per_flop, one.s_per_transcendental, one.s_per_byte, one.launch_s] for one in per_kind], np.float64
    ).reshape(-1, 4)
    table[:, 0] = [
        model.matrix_s_per_flop.get(_width(graph), own) if graph.kind in _MATRIX_KINDS else own
        for graph, own in zip(graphs, table[:, 0], strict=True)
    ]
    compute = work[:, 0] * table[:, 0] + work[:, 1] * table[:, 1]
    memory, launch = work[:, 2] * table[:, 2], table[:, 3]
    ranked = np.argmax(np.stack([compute, memory, launch], axis=1), axis=1)
    names = ("compute", "memory", "latency")
    return (np.maximum(compute, memory) + launch) * PS_PER_S, tuple(names[place] for place in ranked)


def work_of_graphs(graphs: Sequence[KernelGraph]) -> Floats:
    """Flop, transcendentals and bytes of kernels, shape [n, 3]."""
    columns = [KERNEL_COLUMN_OF[name] for name in ("flop", "transcendentals", "bytes_read", "bytes_written")]
    rows = np.array([graph.kernel_features[columns] for graph in graphs], np.float64).reshape(-1, 4)
    return np.stack([rows[:, 0], rows[:, 1], rows[:, 2] + rows[:, 3]], axis=1)


def _width(graph: KernelGraph) -> str:
    """Of a product's elements, as in `_MATRIX_TYPES`."""
    if graph.feature("is_float64"):
        return "f64"
    return "narrow" if graph.feature("is_narrow") else "f32"


def fit_analytic(graphs: Sequence[KernelGraph], time_ps: npt.ArrayLike) -> AnalyticModel:
    """Coefficients per kind that bring the mean relative error of measured kernels down; none is negative.

    Kinds of fewer than `LEAST_KERNELS` kernels take the coefficients of all together.

    Args:
        graphs: n kernels.
        time_ps: measured, shape [n], above 0.

    Raises:
        ModelError: there are too few kernels, or times that are not above 0.
    """
    measured = np.asarray(time_ps, np.float64) / PS_PER_S
    if len(graphs) < LEAST_KERNELS:
        raise ModelError(f"an analytic model is fitted to at least {LEAST_KERNELS} kernels, not {len(graphs)}")
    if measured.shape != (len(graphs),) or not (measured > 0).all():
        raise ModelError(f"each of {len(graphs)} kernels needs one measured time above 0")
    work = work_of_graphs(graphs)
    names = np.array([graph.kind for graph in graphs])
    kinds = {kind: names == kind for kind in KINDS}
    return AnalyticModel(
        f"fitted to {len(graphs)} measured kernels",
        _fit_roofline(work, measured),
        MappingProxyType(
            {kind: _fit_roofline(work[of], measured[of]) for kind, of in kinds.items() if of.sum() >= LEAST_KERNELS}
        ),
    )


def _fit_roofline(work: Floats, measured: Floats) -> Coefficients:
    """Alternates between which side of the roof each kernel is on and the coefficients; the best round counts.

    Least squares of relative errors, reweighted so that it is their mean which gets small.
    """
    scale = np.maximum(work.max(axis=0), 1.0)  # columns of like size: the solver compares them with one tolerance
    features = np.column_stack([work / scale, np.ones(len(work))])
    best, least = np.zeros(4), np.inf
    guess = _non_negative(features, measured, np.ones(len(work)))
    for _ in range(_ROUNDS):
        compute, memory = features[:, :2] @ guess[:2], features[:, 2] * guess[2]
        error = np.abs(np.maximum(compute, memory) + guess[3] - measured) / measured
        if error.mean() < least:
            best, least = guess, float(error.mean())
        by_memory = memory > compute
        sided = features.copy()
        sided[by_memory, :2] = 0
        sided[~by_memory, 2] = 0
        fresh = _non_negative(sided, measured, 1 / np.sqrt(np.maximum(error, 1e-3)))
        guess = np.where(sided.any(axis=0), fresh, guess)
    return Coefficients(*(best / np.append(scale, 1.0)).tolist())


def _non_negative(features: Floats, measured: Floats, weight: Floats) -> Floats:
    from scipy.optimize import nnls  # comes with scikit-learn

    solution: Floats = nnls(features * (weight / measured)[:, None], weight)[0]
    return solution


def analytic_arrays(model: AnalyticModel) -> dict[str, npt.NDArray[Any]]:
    """A model as arrays, for a model's file."""
    kinds = tuple(model.kinds)
    rows = [model.default, *(model.kinds[kind] for kind in kinds)]
    values = [[row.s_per_flop, row.s_per_transcendental, row.s_per_byte, row.launch_s] for row in rows]
    return {"analytic_kinds": np.array(kinds, np.str_), "analytic_s": np.array(values, np.float64)}


def analytic_from_arrays(arrays: Mapping[str, npt.NDArray[Any]], *, source: str) -> AnalyticModel:
    """The model of `analytic_arrays`.

    Raises:
        ModelError: arrays are missing or do not fit together.
    """
    kinds, values = arrays.get("analytic_kinds"), arrays.get("analytic_s")
    if kinds is None or values is None or values.shape != (len(kinds) + 1, 4):
        raise ModelError("the model holds no analytic baseline, or a damaged one; train it anew")
    rows = [Coefficients(*row) for row in values.tolist()]
    return AnalyticModel(source, rows[0], dict(zip(kinds.tolist(), rows[1:], strict=True)))
