"""The networks: node layer, message passing, reduction, time. Written once, over `numpy` or `jax.numpy`.

Source: Kaufman et al., "A Learned Performance Model for Tensor Processing Units", MLSys 2021, section 3 (embedding of
opcodes, GraphSAGE or GAT, reductions, static performance features); Hamilton et al., NeurIPS 2017 (GraphSAGE);
Veličković et al., ICLR 2018 (GAT). Edges keep their direction: what a node reads and what
reads it are aggregated apart.

A trained network's answers for many graphs, in NumPy.

Graphs of different sizes as padded arrays of few shapes: what the networks read, in training and in prediction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Floats, Int64s

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


Parameters = Mapping[str, Any]
"""Weights by name; `layer/w` has shape [in, out] and `layer/b` [out]."""

AGGREGATIONS = ("sage", "gat", "none")
REDUCTIONS = ("nodes", "columns", "lstm", "transformer")
HEADS = 4
"""Of attention, a choice: 16 columns each at the default width."""
_FAR = -1e9
"""In place of minus infinity, which gives NaN where all of a row is masked."""


@dataclass(frozen=True)
class NetworkShape:
    """Shape of a network.

    Attributes:
        opcodes: number of opcodes, the unknown one included.
        node_features: columns of an encoded node.
        kernel_features: columns of an encoded kernel.
        hidden: width; a multiple of `HEADS`.
        layers: rounds of message passing.
        embedding: width of an opcode's embedding.
        aggregation: how a node reads its neighbours: one of `AGGREGATIONS`.
        reduction: how nodes become one vector or one number: one of `REDUCTIONS`.
        static_features: whether the kernel's features are read.
    """

    opcodes: int
    node_features: int
    kernel_features: int
    hidden: int = 64
    layers: int = 2
    embedding: int = 16
    aggregation: str = "sage"
    reduction: str = "columns"
    static_features: bool = True

    def __post_init__(self) -> None:
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(f"no aggregation {self.aggregation!r}; there are {', '.join(AGGREGATIONS)}")
        if self.reduction not in REDUCTIONS:
            raise ValueError(f"no reduction {self.reduction!r}; there are {', '.join(REDUCTIONS)}")
        if self.hidden % HEADS:
            raise ValueError(f"hidden is a multiple of {HEADS}, not {self.hidden}")

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `NetworkShape(**values)` takes them back."""
        return asdict(self)


def create_parameters(settings: NetworkShape, *, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Weights to start from: He-normal, biases 0, the last layer 0 so that an untrained network adds nothing."""
    draw = np.random.default_rng(seed)
    values = {"opcode": (draw.standard_normal((settings.opcodes, settings.embedding)) * 0.5).astype(np.float32)}
    for name, (fan_in, fan_out) in _layer_shapes(settings).items():
        scale = 0.0 if name == "out" else np.sqrt(2.0 / fan_in)
        values[f"{name}/w"] = (draw.standard_normal((fan_in, fan_out)) * scale).astype(np.float32)
        values[f"{name}/b"] = np.zeros(fan_out, np.float32)
    return values


def predict_network(xp: Any, parameters: Parameters, batch: GraphBatch, settings: NetworkShape) -> Any:
    """One number per graph: log of a time, or of its ratio to another, or a score.

    Args:
        xp: `numpy` or `jax.numpy`.
        parameters: as `create_parameters` names them.
        batch: g graphs; rows of size 0 give numbers that mean nothing.
        settings: of the parameters.

    Returns:
        Shape [g].
    """
    at = xp.arange(batch.opcodes.shape[1])[None, :]
    sizes = xp.maximum(batch.sizes, 1)[:, None]
    mask = (at < sizes).astype(batch.nodes.dtype)[..., None]
    nodes = xp.concatenate([xp.take(parameters["opcode"], batch.opcodes, axis=0), batch.nodes], axis=-1)
    hidden = _dense(xp, parameters, "node1", _active(xp, parameters, "node0", nodes)) * mask
    edges = batch.edges.astype(batch.nodes.dtype)
    for layer in range(settings.layers):
        hidden = _MESSAGES[settings.aggregation](xp, parameters, f"pass{layer}", hidden, (edges, mask)) * mask
    root = (at == sizes - 1).astype(batch.nodes.dtype)[..., None]
    return _reduce(xp, parameters, settings, (hidden, mask, root), batch)


def _layer_shapes(settings: NetworkShape) -> dict[str, tuple[int, int]]:
    """Shape of every dense layer, in the order in which they are drawn."""
    hidden, static = settings.hidden, settings.kernel_features * settings.static_features
    shapes = {"node0": (settings.embedding + settings.node_features, hidden), "node1": (hidden, hidden)}
    for layer in range(settings.layers):
        name = f"pass{layer}"
        if settings.aggregation == "gat":
            shapes |= {
                f"{name}/value": (hidden, hidden),
                f"{name}/from": (hidden, HEADS),
                f"{name}/to": (hidden, HEADS),
            }
        elif settings.aggregation == "sage":
            shapes |= {f"{name}/{part}": (hidden, hidden) for part in ("in", "out")}
        shapes[f"{name}/self"] = (hidden, hidden)
    width = {"nodes": hidden, "columns": 4 * hidden, "lstm": 2 * hidden, "transformer": 2 * hidden}[settings.reduction]
    if settings.reduction == "lstm":
        shapes |= {"lstm/input": (hidden, 4 * hidden), "lstm/state": (hidden, 4 * hidden)}
    if settings.reduction == "transformer":
        shapes |= {f"attend/{part}": (hidden, hidden) for part in ("query", "key", "value", "mix")}
        shapes |= {"attend/wide": (hidden, 2 * hidden), "attend/narrow": (2 * hidden, hidden)}
    return shapes | {"head0": (width + static, 2 * hidden), "head1": (2 * hidden, hidden), "out": (hidden, 1)}


def _dense(xp: Any, parameters: Parameters, name: str, values: Any) -> Any:
    return xp.matmul(values, parameters[f"{name}/w"]) + parameters[f"{name}/b"]


def _active(xp: Any, parameters: Parameters, name: str, values: Any) -> Any:
    return xp.maximum(_dense(xp, parameters, name, values), 0.0)


def _normalised(xp: Any, values: Any) -> Any:
    """Each node's vector with mean 0 and variance 1, without weights: layers stay of one scale, however many edges."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def _pass_sage(xp: Any, parameters: Parameters, name: str, hidden: Any, links: tuple[Any, Any]) -> Any:
    """Means over what the node reads and over what reads it, each with its weights, and the node itself."""
    edges, _ = links
    reverse = xp.swapaxes(edges, 1, 2)
    values = _normalised(xp, hidden)
    total = _dense(xp, parameters, f"{name}/self", values)
    for part, towards in (("in", edges), ("out", reverse)):
        degree = xp.maximum(towards.sum(axis=-1, keepdims=True), 1.0)
        total = total + _dense(xp, parameters, f"{name}/{part}", xp.matmul(towards, values) / degree)
    return hidden + xp.maximum(total, 0.0)


def _pass_gat(xp: Any, parameters: Parameters, name: str, hidden: Any, links: tuple[Any, Any]) -> Any:
    """Neighbours on either side and the node itself, weighted by attention with `HEADS` heads."""
    edges, mask = links
    values = _normalised(xp, hidden)
    size = hidden.shape[1]
    near = (edges + xp.swapaxes(edges, 1, 2) + xp.eye(size, dtype=hidden.dtype)) * xp.swapaxes(mask, 1, 2)
    score = (  # [g, heads, reader, read]
        xp.swapaxes(_dense(xp, parameters, f"{name}/to", values), 1, 2)[..., None]
        + xp.swapaxes(_dense(xp, parameters, f"{name}/from", values), 1, 2)[:, :, None, :]
    )
    weight = _softmax(xp, xp.maximum(score, 0.2 * score), near[:, None] > 0)
    mixed = _join_heads(xp, xp.matmul(weight, _split_heads(xp, _dense(xp, parameters, f"{name}/value", values))))
    return hidden + xp.maximum(mixed + _dense(xp, parameters, f"{name}/self", values), 0.0)


def _pass_none(xp: Any, parameters: Parameters, name: str, hidden: Any, links: tuple[Any, Any]) -> Any:
    """The node alone: what the message passing is compared with."""
    del links
    return hidden + _active(xp, parameters, f"{name}/self", _normalised(xp, hidden))


_MESSAGES: Mapping[str, Callable[..., Any]] = {"sage": _pass_sage, "gat": _pass_gat, "none": _pass_none}


def _reduce(
    xp: Any, parameters: Parameters, settings: NetworkShape, nodes: tuple[Any, Any, Any], batch: GraphBatch
) -> Any:
    """Nodes and the kernel's features to one number per graph.

    Per node it is a sum of times: what a node's operation takes, as often as it is executed.
    """
    hidden, mask, root = nodes
    kernels = batch.kernels
    if settings.reduction == "nodes":
        if settings.static_features:
            wide = kernels[:, None, :] + xp.zeros((*hidden.shape[:2], kernels.shape[-1]), hidden.dtype)
            hidden = xp.concatenate([hidden, wide], axis=-1)
        each = xp.where(mask[..., 0] > 0, _head(xp, parameters, hidden) + batch.work, _FAR)
        top = each.max(axis=1, keepdims=True)
        return (top + xp.log(xp.exp(each - top).sum(axis=1, keepdims=True)))[:, 0]
    mean = (hidden * mask).sum(axis=1) / mask.sum(axis=1)
    last = (hidden * root).sum(axis=1)
    if settings.reduction == "columns":
        most = xp.where(mask > 0, hidden, _FAR).max(axis=1)
        parts = [mean, most, last, (hidden * mask).sum(axis=1) / 8.0]
    elif settings.reduction == "lstm":
        parts = [_lstm(xp, parameters, hidden, mask), last]
    else:
        attended = _attend(xp, parameters, hidden, mask)
        parts = [(attended * mask).sum(axis=1) / mask.sum(axis=1), (attended * root).sum(axis=1)]
    if settings.static_features:
        parts.append(kernels)
    return _head(xp, parameters, xp.concatenate(parts, axis=-1))


def _head(xp: Any, parameters: Parameters, values: Any) -> Any:
    wide = _active(xp, parameters, "head0", values)
    return _dense(xp, parameters, "out", _active(xp, parameters, "head1", wide))[..., 0]


def _lstm(xp: Any, parameters: Parameters, hidden: Any, mask: Any) -> Any:
    """Last state of an LSTM that reads the nodes in topological order."""
    drive = xp.swapaxes(_dense(xp, parameters, "lstm/input", _normalised(xp, hidden)), 0, 1)
    zero = xp.zeros((hidden.shape[0], hidden.shape[2]), hidden.dtype)

    def step(carry: tuple[Any, Any], at: tuple[Any, Any]) -> tuple[tuple[Any, Any], None]:
        (state, cell), (given, there) = carry, at
        gates = given + _dense(xp, parameters, "lstm/state", state)
        take, keep, show, new = xp.split(gates, 4, axis=-1)
        fresh = _sigmoid(xp, keep + 1.0) * cell + _sigmoid(xp, take) * xp.tanh(new)
        shown = _sigmoid(xp, show) * xp.tanh(fresh)
        return (xp.where(there > 0, shown, state), xp.where(there > 0, fresh, cell)), None

    return _scan(xp, step, (zero, zero), (drive, xp.swapaxes(mask, 0, 1)))[0]


def _scan(xp: Any, step: Callable[[Any, Any], Any], carry: Any, values: tuple[Any, Any]) -> Any:
    if xp is np:
        for at in zip(*values, strict=True):
            carry, _ = step(carry, at)
        return carry
    from jax import lax

    return lax.scan(step, carry, values)[0]


def _attend(xp: Any, parameters: Parameters, hidden: Any, mask: Any) -> Any:
    """One encoder layer of a transformer over a graph's nodes."""
    values = _normalised(xp, hidden)
    query, key, value = (
        _split_heads(xp, _dense(xp, parameters, f"attend/{part}", values)) for part in ("query", "key", "value")
    )
    score = xp.matmul(query, xp.swapaxes(key, 2, 3)) / np.float32(np.sqrt(query.shape[-1]))
    weight = _softmax(xp, score, xp.swapaxes(mask, 1, 2)[:, None] > 0)
    hidden = hidden + _dense(xp, parameters, "attend/mix", _join_heads(xp, xp.matmul(weight, value)))
    wide = _active(xp, parameters, "attend/wide", _normalised(xp, hidden))
    return hidden + _dense(xp, parameters, "attend/narrow", wide)


def _split_heads(xp: Any, values: Any) -> Any:
    graphs, nodes, width = values.shape
    return xp.swapaxes(values.reshape(graphs, nodes, HEADS, width // HEADS), 1, 2)


def _join_heads(xp: Any, values: Any) -> Any:
    graphs, _, nodes, _ = values.shape
    return xp.swapaxes(values, 1, 2).reshape(graphs, nodes, -1)


def _softmax(xp: Any, score: Any, there: Any) -> Any:
    score = xp.where(there, score, _FAR)
    raised = xp.exp(score - score.max(axis=-1, keepdims=True)) * there
    return raised / xp.maximum(raised.sum(axis=-1, keepdims=True), 1e-9)


def _sigmoid(xp: Any, values: Any) -> Any:
    return 0.5 * (1.0 + xp.tanh(0.5 * values))  # does not overflow


def network_log_times(
    weights: Mapping[str, Any], network: NetworkShape, graphs: Sequence[InputGraph], *, batch_nodes: int = 8192
) -> Floats:
    """What the network says of each graph, without the offset; NumPy alone."""
    said = np.zeros(len(graphs))
    for rows, batch in plain_batches(graphs, batch_nodes=batch_nodes):
        said[rows] = predict_network(np, weights, batch, network)
    return said
