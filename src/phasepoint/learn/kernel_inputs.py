"""Kernel graphs as what models read: scaled graphs for networks, a row of pooled features for trees and distances."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s
from phasepoint.learn.execution_features import EXECUTION_NAMES, executed_elements, execution_features
from phasepoint.learn.graph_batches import InputGraph
from phasepoint.learn.graphs import (
    KERNEL_FEATURE_NAMES,
    KINDS,
    NODE_FEATURE_NAMES,
    OPCODES,
    EncodedGraph,
    KernelGraph,
    encode_features,
)

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


def encode_graphs(graphs: Sequence[KernelGraph]) -> tuple[EncodedGraph, ...]:
    """Features on scales to learn from, one entry per graph; a kernel's own, then the derived (`EXECUTION_NAMES`)."""
    derived = execution_features(graphs)
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
