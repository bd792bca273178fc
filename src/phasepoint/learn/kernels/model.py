"""A stored model of kernels: times with intervals and the distance to what it was trained on. NumPy alone, no compiler.

A time is the analytic model's, times what networks and trees have learned of the ratio between the two. The interval
comes out of conformal calibration: on kernels of programs that nothing was trained on, 90 % of the errors, measured in
units of how much the members disagree, are below the quantile that is stored for their kind.

Source: Lei et al., "Distribution-free predictive inference for regression", JASA 2018, section 5.2 (locally weighted
conformal intervals); Romano et al., "With malice toward none", 2020 (quantiles per group).

Kernel graphs as what models read: scaled graphs for networks, a row of pooled features for trees and distances.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Floats
from phasepoint.core.errors import ModelError
from phasepoint.learn.hlo_graph.graphs import (
    EXECUTION_NAMES,
    FEATURISER_VERSION,
    KERNEL_FEATURE_NAMES,
    KINDS,
    NODE_FEATURE_NAMES,
    OPCODES,
    EncodedGraph,
    KernelGraph,
    encode_features,
    encode_sizes,
    executed_elements,
    execution_features,
)
from phasepoint.learn.hlo_graph.placement import PLACEMENT_NAMES
from phasepoint.learn.models.analytic import AnalyticModel, analytic_from_arrays, predict_analytic
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.models.network import InputGraph, NetworkShape, network_log_times
from phasepoint.learn.models.trees import predict_trees

Arrays = Mapping[str, npt.NDArray[Any]]

FARTHEST = 6.0
"""Standard deviations beyond which an input is cut off: a network knows nothing about what lies there."""

_ELEMENTS, _FLOP = (NODE_FEATURE_NAMES.index(name) for name in ("elements", "flop"))

INPUT_NAMES: tuple[str, ...] = (*KERNEL_FEATURE_NAMES, *EXECUTION_NAMES)
"""Columns of what a network reads of a kernel as a whole."""

POOLED_NAMES: tuple[str, ...] = (
    *(f"kernel_{name}" for name in INPUT_NAMES),
    *(f"root_{name}" for name in NODE_FEATURE_NAMES),
    *(f"most_{name}" for name in NODE_FEATURE_NAMES),
    *(f"elements_{opcode}" for opcode in OPCODES),
    *(f"is_{kind}" for kind in KINDS),
    "nodes",
)
"""Columns of `pool_graphs`; an opcode's column is the log of how many elements its nodes make."""


def encode_graphs(graphs: Sequence[KernelGraph], *, placed: bool = False) -> tuple[EncodedGraph, ...]:
    """Features on scales to learn from, one entry per graph; a kernel's own, then the derived (`EXECUTION_NAMES`).

    Args:
        graphs: n kernels.
        placed: whether a TPU's placement (`PLACEMENT_NAMES`) comes behind them.
    """
    derived = execution_features(graphs)
    if placed:
        unknown = np.zeros(len(PLACEMENT_NAMES), np.float32)
        rows = [unknown if graph.placement is None else graph.placement for graph in graphs]
        derived = np.column_stack([derived, encode_sizes(np.stack(rows))]) if rows else derived
    encoded = [encode_features(graph) for graph in graphs]
    return tuple(
        replace(one, kernel=np.concatenate([one.kernel, row])) for one, row in zip(encoded, derived, strict=True)
    )


def fit_scales(encoded: Sequence[EncodedGraph]) -> dict[str, Float32s]:
    """Mean and standard deviation of each column over all nodes and over all kernels; 1 where a column is constant."""
    nodes = np.concatenate([graph.nodes for graph in encoded]).astype(np.float64)
    kernels = np.stack([graph.kernel for graph in encoded]).astype(np.float64)
    scales = {}
    for name, values in (("node", nodes), ("kernel", kernels)):
        spread = values.std(axis=0)
        scales[f"scale/{name}_mean"] = values.mean(axis=0).astype(np.float32)
        scales[f"scale/{name}_spread"] = np.where(spread > 1e-6, spread, 1.0).astype(np.float32)
    return scales


def scale_graphs(
    graphs: Sequence[KernelGraph], encoded: Sequence[EncodedGraph], scales: Arrays
) -> tuple[InputGraph, ...]:
    """What networks read."""
    if not graphs:
        return ()
    ends = np.cumsum([len(graph.opcodes) for graph in graphs])[:-1]
    nodes = _scaled(np.concatenate([graph.nodes for graph in encoded]), scales, "node")
    kernels = _scaled(np.stack([graph.kernel for graph in encoded]), scales, "kernel")
    return tuple(
        InputGraph(graph.opcodes, rows, graph.edges, kernel, _work(graph))
        for graph, rows, kernel in zip(graphs, np.split(nodes, ends), kernels, strict=True)
    )


def _work(graph: KernelGraph) -> Float32s:
    """Log of how often each node's operation is executed: of a product or a reduction, its own operations."""
    own = graph.node_features[:, _FLOP].astype(np.float64)
    return np.log1p(np.maximum(executed_elements(graph), own)).astype(np.float32)


def pool_graphs(graphs: Sequence[KernelGraph], encoded: Sequence[EncodedGraph]) -> Float32s:
    """One row of features per kernel: its own, its root's, the largest over its nodes, its opcodes.

    Returns:
        Shape [n, len(POOLED_NAMES)], on the scales of `encode_graphs`.
    """
    if not graphs:
        return np.zeros((0, len(POOLED_NAMES)), np.float32)
    counts = np.array([len(graph.opcodes) for graph in graphs])
    ends = np.cumsum(counts)
    nodes = np.concatenate([graph.nodes for graph in encoded])
    opcodes = np.concatenate([graph.opcodes for graph in graphs])
    elements = np.concatenate([graph.node_features[:, _ELEMENTS] for graph in graphs])
    made = np.zeros((len(graphs), len(OPCODES)))
    np.add.at(made, (np.repeat(np.arange(len(graphs)), counts), opcodes), np.minimum(elements, 1e15))
    kinds = np.array([[graph.kind == kind for kind in KINDS] for graph in graphs], np.float32)
    parts = (
        np.stack([graph.kernel for graph in encoded]),
        nodes[ends - 1],
        np.maximum.reduceat(nodes, ends - counts, axis=0),
        np.log1p(made),
        kinds,
        np.log(counts)[:, None],
    )
    return np.concatenate(parts, axis=1).astype(np.float32)


def _scaled(values: Float32s, scales: Arrays, name: str) -> Float32s:
    scaled = (values - scales[f"scale/{name}_mean"]) / scales[f"scale/{name}_spread"]
    return np.clip(scaled, -FARTHEST, FARTHEST).astype(np.float32)


KIND = "kernels"
NEIGHBOURS = 3
"""Training kernels whose mean distance is a kernel's."""

STRANGE = 2.0
"""Least distance of a kernel of a kind that was not trained on: far outside."""

SPREAD_FLOOR = 0.03
"""Added to the members' disagreement (log, in squares): where they agree by chance, an error is still likely."""


@dataclass(frozen=True)
class KernelPrediction:
    """What a model says of n kernels.

    Attributes:
        time_ps: picoseconds of one execution, [n].
        low_ps: lower end of the 90 % interval, [n].
        high_ps: its upper end, [n].
        distance: 0 = like the training data, 1 = as far as 95 % of the calibration kernels lie, above 1 outside, [n].
    """

    time_ps: Floats
    low_ps: Floats
    high_ps: Floats
    distance: Floats


@dataclass(frozen=True)
class LogTimes:
    """Logs of predicted times in ps and what they are made of, each [n].

    Attributes:
        analytic: the analytic model's answer.
        networks: mean of the networks' answers; the analytic one where there is no network.
        trees: the trees' answer; the analytic one where there are none.
        spread: how much the members disagree, standard deviation.
        place: where each kernel lies among the training data, [n, dimensions].
    """

    analytic: Floats
    networks: Floats
    trees: Floats
    spread: Floats
    place: Floats


@dataclass(frozen=True)
class KernelModel:
    """A model of one device's kernels.

    Attributes:
        arrays: weights, trees, scales, calibration.
        card: of the model's file.
    """

    arrays: Arrays
    card: Mapping[str, Any]

    @classmethod
    def from_model(cls, model: StoredModel) -> "KernelModel":
        """The model in a file.

        Raises:
            ModelError: it is of another kind, of another featuriser, or arrays are missing.
        """
        if model.kind != KIND:
            raise ModelError(f"{model.name} is a model of kind {model.kind!r}; times of kernels need one of {KIND!r}")
        version = model.card.get("featuriser")
        if version != FEATURISER_VERSION:
            raise ModelError(
                f"{model.name} was trained on features of version {version!r}, this release has {FEATURISER_VERSION}; "
                "train it anew"
            )
        missing = [name for name in ("quantile", "blend", "place/points", "analytic_s") if name not in model.arrays]
        if missing or "network" not in model.card:
            raise ModelError(f"{model.name} is damaged: {', '.join(missing) or 'network'} is missing; train it anew")
        arrays = {
            name: array.astype(np.float32) if array.dtype == np.float16 else array
            for name, array in model.arrays.items()
        }
        return cls(arrays, model.card)

    @property
    def device(self) -> Mapping[str, Any]:
        """Of the corpus: name, kind, cores."""
        return self.card.get("device", {})  # type: ignore[no-any-return]

    @cached_property
    def analytic(self) -> AnalyticModel:
        """The analytic model that was fitted to the same kernels."""
        return analytic_from_arrays(self.arrays, source="the corpus")

    @property
    def placed(self) -> bool:
        """Whether it reads where a TPU has its arrays."""
        return bool(self.card.get("placed", False))

    @property
    def floor_ps(self) -> float:
        """What every kernel takes; learned is what it takes more. 0 for a device on which times were measured."""
        return float(self.arrays["floor_ps"][0]) if "floor_ps" in self.arrays else 0.0

    @cached_property
    def network(self) -> NetworkShape:
        """Of every member."""
        return NetworkShape(**self.card["network"])

    def predict(self, graphs: Sequence[KernelGraph]) -> KernelPrediction:
        """Times of kernels, one execution each."""
        said = self.log_times(graphs)
        kinds = kind_rows(graphs)
        distance = self.distance(said.place, kinds)
        middle = self.blended(said)
        half = self.arrays["quantile"][kinds] * interval_scale(said.spread) * np.maximum(distance, 1.0)
        half = np.minimum(half, 20.0)
        return KernelPrediction(np.exp(middle), np.exp(middle - half), np.exp(middle + half), distance)

    def blended(self, said: LogTimes) -> Floats:
        """Log of the predicted times: networks and trees, in the shares that were best on the calibration kernels."""
        share = float(self.arrays["blend"][0])
        return share * said.networks + (1.0 - share) * said.trees

    def log_times(self, graphs: Sequence[KernelGraph]) -> LogTimes:
        """Each part's answer."""
        encoded = encode_graphs(graphs, placed=self.placed)
        analytic = np.log(np.maximum(predict_analytic(self.analytic, graphs)[0], 1.0))
        pooled = pool_graphs(graphs, encoded)
        pooled = np.column_stack([pooled, analytic])[:, self.arrays["columns"]]
        offset = analytic if self.card["residual"] else np.full(len(graphs), float(self.arrays["middle"][0]))
        offset = above_floor(offset, self.floor_ps)
        low, high = self.arrays["reach"]
        members = []
        for member in range(int(self.card["members"])):
            weights = _named(self.arrays, f"network{member}/")
            inputs = scale_graphs(graphs, encoded, self.arrays)
            said = network_log_times(weights, self.network, inputs)
            members.append(on_floor(offset + np.clip(said, low, high), self.floor_ps))
        parts = list(members)
        forest = _named(self.arrays, "trees/")
        trees = analytic
        if forest:
            trees = on_floor(offset + np.clip(predict_trees(forest, pooled), low, high), self.floor_ps)
            parts.append(trees)
        networks = np.mean(members, axis=0) if members else trees
        spread = np.std(parts, axis=0) if len(parts) > 1 else np.zeros(len(graphs))
        standard = (pooled - self.arrays["place/mean"]) / self.arrays["place/spread"]
        place = np.clip(standard, -8.0, 8.0) @ self.arrays["place/axes"]
        return LogTimes(analytic, networks, trees if forest else networks, spread, place)

    def distance(self, place: Floats, kinds: npt.NDArray[np.int64]) -> Floats:
        """How far each kernel lies from training kernels of its kind; 1: as far as 95 % of the calibration kernels."""
        points, of = self.arrays["place/points"], self.arrays["place/kinds"]
        unit = float(self.arrays["place/unit"][0])
        distance = np.full(len(place), STRANGE)
        for kind in np.unique(kinds):
            rows, near = np.flatnonzero(kinds == kind), points[of == kind]
            if len(near):
                distance[rows] = mean_nearest(place[rows], near) / unit
            elif len(points):
                distance[rows] = STRANGE + mean_nearest(place[rows], points) / unit
        return distance

    def with_arrays(self, **arrays: npt.NDArray[Any]) -> "KernelModel":
        """The same model with other arrays of some names (`_` stands for `/`)."""
        return replace(self, arrays={**self.arrays, **{name.replace("__", "/"): a for name, a in arrays.items()}})


def above_floor(log_ps: Floats, floor_ps: float) -> Floats:
    """Logs of what times take more than a floor, 1 ps at least."""
    return log_ps if floor_ps <= 0 else np.log(np.maximum(np.exp(log_ps) - floor_ps, 1.0))


def on_floor(log_ps: Floats, floor_ps: float) -> Floats:
    """Logs of times out of what they take more than a floor."""
    return log_ps if floor_ps <= 0 else np.log(np.exp(log_ps) + floor_ps)


def kind_rows(graphs: Sequence[KernelGraph]) -> npt.NDArray[np.int64]:
    """Place of each kernel's kind in `KINDS`."""
    return np.array([KINDS.index(graph.kind) for graph in graphs], np.int64)


def interval_scale(spread: Floats) -> Floats:
    """What errors are measured in: the members' disagreement, not below a floor."""
    return np.sqrt(spread**2 + SPREAD_FLOOR**2)


def mean_nearest(place: Floats, points: Floats) -> Floats:
    """Mean distance to the nearest `NEIGHBOURS` points, or as many as there are."""
    near = np.empty(len(place))
    squares = (points.astype(np.float64) ** 2).sum(axis=1)
    for start in range(0, len(place), 512):
        part = place[start : start + 512].astype(np.float64)
        gap = (part**2).sum(axis=1)[:, None] + squares[None, :] - 2.0 * part @ points.T.astype(np.float64)
        count = min(NEIGHBOURS, len(points))
        least = np.partition(gap, count - 1, axis=1)[:, :count]
        near[start : start + 512] = np.sqrt(np.maximum(least, 0.0)).mean(axis=1)
    return near


def _named(arrays: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
