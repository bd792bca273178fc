"""Graphs of different sizes as padded arrays of few shapes: what the networks read, in training and in prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Int64s

LEAST_NODES = 8
"""Nodes of the smallest bucket; each further one is twice as large, so that at most half of a batch is padding."""

BATCH_NODES = 2048
"""Nodes in a batch with their padding: graphs of one bucket are batched up to it."""


class GraphBatch(NamedTuple):
    """Graphs padded to one number of nodes. A graph of size 0 is padding.

    Attributes:
        opcodes: int32 [g, n].
        nodes: float32 [g, n, f], encoded.
        edges: uint8 [g, n, n]: 1 where the column's node feeds the row's.
        sizes: int32 [g], nodes of each graph; the last of them is the root.
        kernels: float32 [g, k], encoded.
        work: float32 [g, n], log of how often each node's operation is executed.
    """

    opcodes: Any
    nodes: Any
    edges: Any
    sizes: Any
    kernels: Any
    work: Any


@dataclass(frozen=True)
class InputGraph:
    """One graph as numbers of a common scale.

    Attributes:
        opcodes: int32 [n].
        nodes: float32 [n, f].
        edges: int32 [e, 2], producer and consumer.
        kernel: float32 [k].
        work: float32 [n], log of how often each node's operation is executed.
    """

    opcodes: npt.NDArray[np.int32]
    nodes: Float32s
    edges: npt.NDArray[np.int32]
    kernel: Float32s
    work: Float32s


def bucket_nodes(nodes: int) -> int:
    """Nodes that a graph of this size is padded to: the next power of two, at least `LEAST_NODES`."""
    return max(LEAST_NODES, 1 << (max(nodes, 1) - 1).bit_length())


def stack_graphs(graphs: Sequence[InputGraph], *, nodes: int, rows: int | None = None) -> GraphBatch:
    """Graphs of at most `nodes` nodes as one batch.

    Args:
        graphs: at least one, none larger than `nodes`.
        nodes: padded size.
        rows: graphs in the batch with padding; None: as many as given.
    """
    count = len(graphs) if rows is None else rows
    first = graphs[0]
    opcodes = np.zeros((count, nodes), np.int32)
    features = np.zeros((count, nodes, first.nodes.shape[1]), np.float32)
    edges = np.zeros((count, nodes, nodes), np.uint8)
    sizes = np.zeros(count, np.int32)
    kernels = np.zeros((count, len(first.kernel)), np.float32)
    work = np.zeros((count, nodes), np.float32)
    for row, graph in enumerate(graphs):
        size = len(graph.opcodes)
        opcodes[row, :size], features[row, :size] = graph.opcodes, graph.nodes
        edges[row, graph.edges[:, 1], graph.edges[:, 0]] = 1
        sizes[row], kernels[row], work[row, :size] = size, graph.kernel, graph.work
    return GraphBatch(opcodes, features, edges, sizes, kernels, work)


def bucket_graphs(graphs: Sequence[InputGraph]) -> dict[int, Int64s]:
    """Int64s of the graphs of each bucket, smallest bucket first."""
    size = np.array([bucket_nodes(len(graph.opcodes)) for graph in graphs], np.int64)
    return {int(nodes): np.flatnonzero(size == nodes) for nodes in np.unique(size)}


def batch_rows(nodes: int, *, batch_nodes: int = BATCH_NODES) -> int:
    """Graphs in a batch of a bucket."""
    return max(1, batch_nodes // nodes)


def plain_batches(graphs: Sequence[InputGraph], *, batch_nodes: int) -> Iterator[tuple[Int64s, GraphBatch]]:
    """All graphs in order of size, each once: the rows of a batch and the batch without padded graphs."""
    for nodes, rows in bucket_graphs(graphs).items():
        step = batch_rows(nodes, batch_nodes=batch_nodes)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            yield part, stack_graphs([graphs[row] for row in part], nodes=nodes)
