"""A kernel as a graph of numbers: what a network is fed, and what the analytic model computes with.

`FEATURISER_VERSION` is stored with every corpus and model; it changes whenever a number here changes its meaning.

What a loop over a fusion's result really executes, and how well its sizes fit into vectors: derived features.

A loop fusion computes nothing ahead: an element of a node is computed for each place that reads it. Behind a broadcast
over outer dimensions that is once for each element of the broadcast; behind one over the innermost dimension once a
row, for a compiler takes out of the loop what does not change in it. A reduction reads all that it reduces.

A whole program as one graph: every instruction of every computation, as TpuGraphs has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Floats, Int32s
from phasepoint.hlo.cost import cost_of_module
from phasepoint.hlo.fingerprint import fingerprint_module
from phasepoint.hlo.module import Module
from phasepoint.hlo.work import Operations
from phasepoint.learn.hlo_graph.access_patterns import access_row
from phasepoint.learn.hlo_graph.features import (
    KERNEL_COLUMN_OF,
    KERNEL_FEATURE_NAMES,
    KERNEL_FLAGS,
    class_of,
    kernel_row,
    node_rows,
    work_of_nodes,
)
from phasepoint.learn.hlo_graph.kernels import Kernel, KernelNode, Nodes, nodes_of_kernel
from phasepoint.learn.hlo_graph.node_rules import (
    COLLECTIVE,
    NODE_FEATURE_NAMES,
    NODE_FLAGS,
    OPCODE_IDS,
    OPCODES,
    number,
)
from phasepoint.learn.hlo_graph.placement import placement_row

FEATURISER_VERSION = 1
"""Of the numbers in a graph: what was trained on others is refused."""

NODE_FEATURES, KERNEL_FEATURES = len(NODE_FEATURE_NAMES), len(KERNEL_FEATURE_NAMES)

KINDS = (
    *("convolution", "dot", "custom-call", "collective", "sort", "indexed", "reduce", "loop-fusion", "copy", "other"),
)
"""Kinds of kernel, the decisive one first: a fusion with a dot in it is a dot, whatever else it does."""

__all__ = [
    "FEATURISER_VERSION",
    "KERNEL_COLUMN_OF",
    "KERNEL_FEATURES",
    "KERNEL_FEATURE_NAMES",
    "KINDS",
    "NODE_FEATURES",
    "NODE_FEATURE_NAMES",
    "OPCODES",
    "EncodedGraph",
    "KernelGraph",
    "encode_features",
    "encode_sizes",
    "graph_of_kernel",
    "kind_of_nodes",
]


@dataclass(frozen=True, eq=False)
class KernelGraph:
    """One kernel.

    Attributes:
        fingerprint: of what it computes.
        kind: one of `KINDS`.
        opcodes: number of each node's opcode in `OPCODES`, 0 unknown; int32 [n]; operands before users, root last.
        node_features: raw, float32 [n, NODE_FEATURES], columns `NODE_FEATURE_NAMES`.
        edges: (producer, consumer), int32 [e, 2], in the order of the consumers' operands.
        kernel_features: raw, float32 [KERNEL_FEATURES], entries `KERNEL_FEATURE_NAMES`.
        placement: where a TPU's kernel has its arrays and its tile, raw, float32, entries `PLACEMENT_NAMES`; None where
            no layout has tiles.
        notes: what the features do not know.
    """

    fingerprint: str
    kind: str
    opcodes: Int32s
    node_features: Float32s
    edges: Int32s
    kernel_features: Float32s
    placement: Float32s | None = None
    notes: tuple[str, ...] = ()

    def feature(self, name: str) -> float:
        """One kernel feature by its name."""
        return float(self.kernel_features[KERNEL_COLUMN_OF[name]])


@dataclass(frozen=True, eq=False)
class EncodedGraph:
    """What networks are fed: sizes as log(1 + x), flags as they are.

    Attributes:
        nodes: float32 [n, NODE_FEATURES].
        kernel: float32 [KERNEL_FEATURES].
    """

    nodes: Float32s
    kernel: Float32s


def graph_of_kernel(kernel: Kernel, *, is_learned_from: bool = True) -> KernelGraph:
    """The features of a kernel.

    Nothing in a module makes it fail: what is not known (opcodes, dynamic shapes, custom calls) is 0 and in the notes.

    Args:
        kernel: from `kernels_of_module`.
        is_learned_from: whether a learned model is fed with it; else `SURROUNDING_NAMES` are 0, and no placement is
            found.
    """
    nodes = kernel.nodes or nodes_of_kernel(kernel.instruction)
    work = work_of_nodes(nodes)
    rows = node_rows(nodes, work)
    surroundings = (*access_row(nodes), *kernel.locality) if is_learned_from else ()
    row = kernel_row(kernel.instruction, nodes, rows, work, surroundings=surroundings)
    flop = float(row[KERNEL_COLUMN_OF["flop"]])
    edges = [(place, consumer) for consumer, node in enumerate(nodes) for place in node.operands]
    return KernelGraph(
        kernel.fingerprint,
        kind_of_nodes(nodes),
        np.array([OPCODE_IDS.get(node.opcode, 0) for node in nodes], np.int32),
        rows,
        np.array(edges, np.int32).reshape(-1, 2),
        row,
        placement_row(kernel.instruction, nodes, rows, flop=flop) if is_learned_from else None,
        (*kernel.notes, *_notes(nodes, work, row)),
    )


def kind_of_nodes(nodes: Nodes) -> str:
    """The kind of kernel that some nodes make: that of the node which decides its cost."""
    opcodes = {node.opcode for node in nodes}
    classes = {class_of(opcode) for opcode in opcodes}
    found = (
        ("convolution", "convolution" in classes),
        ("dot", "matrix" in classes),
        ("custom-call", "custom-call" in opcodes),
        ("collective", bool(opcodes & COLLECTIVE)),
        ("sort", bool(opcodes & {"sort", "topk"})),
        ("indexed", "indexed" in classes),
        ("reduce", "reducing" in classes),
        ("loop-fusion", bool(classes & {"elementwise", "transcendental"})),
        ("copy", classes <= {"movement"}),
    )
    return next((kind for kind, present in found if present), "other")


def _notes(nodes: Nodes, work: list[Operations], row: Float32s) -> tuple[str, ...]:
    unknown = sorted({node.opcode for node in nodes if node.opcode not in OPCODE_IDS})
    notes = [f"opcode {opcode!r} is not known" for opcode in unknown]
    for node, one in zip(nodes, work, strict=True):
        if one.flop is not None or node.instruction is None:
            continue
        if node.opcode == "custom-call":
            notes.append(f"operations of custom call {node.instruction.proto.custom_call_target!r} are not known")
        else:
            notes.append(f"operations of {node.opcode} are not known")
    if row[KERNEL_COLUMN_OF["is_dynamic"]]:
        notes.append("a shape is dynamic: its bound is taken for its size")
    return tuple(dict.fromkeys(notes))


def encode_features(graph: KernelGraph) -> EncodedGraph:
    """The features of a graph on scales that a network can learn from."""
    return EncodedGraph(_encode(graph.node_features, NODE_FLAGS), _encode(graph.kernel_features, KERNEL_FLAGS))


def encode_sizes(sizes: npt.ArrayLike) -> Float32s:
    """Sizes and counts as log(1 + x), the sign kept."""
    values = np.asarray(sizes, np.float32)
    return np.sign(values) * np.log1p(np.abs(values))


def _encode(values: Float32s, flags: npt.NDArray[np.bool_]) -> Float32s:
    return np.where(flags, values, np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)


def graph_of_program(module: Module) -> KernelGraph:
    """All instructions of a program, callees before callers, the entry's last.

    An edge leads from each distinct operand to its user, and from the root of a computation to whoever calls it. Of the
    kernel features those are set that a program has: flop, transcendentals, nodes; `bytes_read` holds all its bytes.
    """
    nodes, edges = _linked(module)
    opcodes = [OPCODE_IDS.get(node.opcode, 0) for node in nodes]
    cost = cost_of_module(module)
    row = np.zeros(KERNEL_FEATURES, np.float32)
    known = {
        "flop": cost.total.flop,
        "transcendentals": cost.total.transcendentals,
        "bytes_read": cost.total.bytes,
        "nodes": len(nodes),
    }
    for name, value in known.items():
        row[KERNEL_COLUMN_OF[name]] = number(value or 0)
    unknown = sorted({node.opcode for node in nodes if node.opcode not in OPCODE_IDS})
    return KernelGraph(
        fingerprint_module(module),
        "program",
        np.array(opcodes, np.int32),
        node_rows(nodes, work_of_nodes(nodes)),
        np.array(edges, np.int32).reshape(-1, 2),
        row,
        notes=(*(f"opcode {opcode!r} is not known" for opcode in unknown), *cost.notes),
    )


def _linked(module: Module) -> tuple[Nodes, list[tuple[int, int]]]:
    places: dict[int, int] = {}
    nodes: list[KernelNode] = []
    edges: list[tuple[int, int]] = []
    for computation in module.computations:
        for one in computation.instructions:
            read = tuple([places[id(operand)] for operand in one.operands])
            roots = [places[id(called.root)] for called in one.called]
            edges += [(place, len(nodes)) for place in dict.fromkeys((*read, *roots))]
            places[id(one)] = len(nodes)
            nodes.append(KernelNode(one.opcode, one.shape, one, read))
    return tuple(nodes), edges


VECTOR = 16
"""Elements of a vector loop's step: float32 of 512 bits, or two unrolled steps of 256."""

_PADDED = ("output_minor_size", "dot_m", "dot_n", "dot_k", "conv_in", "conv_out", "reduce_minor_size")
_FLAGS = ("is_division", "is_integer_division", "is_comparison", "is_select", "is_conversion", "moves_minor")

EXECUTION_NAMES: tuple[str, ...] = (
    *(f"executed_{opcode}" for opcode in OPCODES),
    *("executed", "executed_reshaped", "executed_awkward", *(f"executed_{name}" for name in _FLAGS)),
    *("least_minor_size", "executed_ratio"),
    *(f"padding_{name}" for name in _PADDED),
    *(f"fits_{name}" for name in _PADDED),
)
"""Columns of `execution_features`: logs of how often each opcode is executed, and all; those behind a reshape that
splits or joins the innermost dimension, and where its size is no power of two; the smallest innermost dimension; the
log of executions per element of the result; the log of how much a size grows when it is filled up to whole vectors,
and whether it need not."""

_COLUMN = {name: place for place, name in enumerate(NODE_FEATURE_NAMES)}
_KERNEL_COLUMN = [KERNEL_FEATURE_NAMES.index(name) for name in _PADDED]
_ID = {name: place for place, name in enumerate(OPCODES)}
_ROUTES = frozenset(
    _ID[name]
    for name in ("broadcast", "slice", "reshape", "transpose", "copy", "reverse", "dynamic-slice", "gather", "bitcast")
)
_PARTS = frozenset(_ID[name] for name in ("pad", "concatenate", "reduce"))
_WHOLE = frozenset(_ID[name] for name in ("scatter", "sort", "custom-call", "dot", "convolution"))
_RESHAPES = (_ID["bitcast"], _ID["reshape"])
_MOST = 1e15
"""Elements at most: whole numbers below it are exact in float64, and a module that claims more is damaged."""


def executed_elements(graph: KernelGraph) -> Floats:
    """How many elements of each node are computed, shape [n]; its elements, where a library runs the kernel."""
    features = graph.node_features
    own = np.minimum(features[:, _COLUMN["elements"]].astype(np.float64), _MOST)
    if graph.feature("is_custom_fusion") or graph.kind in ("dot", "convolution"):
        return own
    count = len(own)
    along, moved = [0.0] * count, [0.0] * count  # read element by element (once for all), read elsewhere (each time)
    read: list[list[int]] = [[] for _ in range(count)]
    for producer, consumer in graph.edges.tolist():
        read[consumer].append(producer)
    opcodes = graph.opcodes.tolist()
    is_tuple = opcodes[-1] == _ID["tuple"]
    for place in read[-1] if is_tuple else [count - 1]:
        along[place] = own[place]
    for place in range(count - 1 - is_tuple, -1, -1):
        total, opcode = min(along[place] + moved[place], _MOST), opcodes[place]
        for which, operand in enumerate(read[place]):
            if opcode in _ROUTES or opcode in _PARTS or opcode in _WHOLE or opcode == _ID["reduce-window"]:
                moved[operand] += _needed(total, opcode, (own[place], own[operand]), features[place], which)
            elif opcode == _ID["dynamic-update-slice"]:
                moved[operand] += 0.0 if which == 0 else own[operand]
            else:
                along[operand] = max(along[operand], total)
    counts: Floats = np.minimum(np.array(along) + np.array(moved), _MOST)
    return counts


def _needed(total: float, opcode: int, own: tuple[float, float], row: npt.NDArray[np.float32], number: int) -> float:
    """Elements of an operand that so many elements of a node read; own: elements of the node and of the operand."""
    here, there = own
    if opcode == _ID["broadcast"] and row[_COLUMN["broadcasts_minor"]]:
        return total / max(float(row[_COLUMN["minor_size"]]), 1.0)
    if opcode in _PARTS:
        return total * (there / max(here, 1.0)) if there > 1 else total
    if opcode == _ID["reduce-window"]:
        return total * (max(float(row[_COLUMN["window_size_product"]]), 1.0) if there > 1 else 1.0)
    if opcode in _WHOLE:
        return there
    return total if number == 0 else min(total, there)


def execution_features(graphs: Sequence[KernelGraph]) -> npt.NDArray[np.float32]:
    """Derived features, shape [n, len(EXECUTION_NAMES)], on scales to learn from."""
    rows = np.zeros((len(graphs), len(EXECUTION_NAMES)), np.float32)
    for row, graph in zip(rows, graphs, strict=True):
        row[:] = _row(graph)
    return rows


def _row(graph: KernelGraph) -> Floats:
    features, executed = graph.node_features, executed_elements(graph)
    made = np.bincount(graph.opcodes, weights=executed, minlength=len(OPCODES))
    minor = features[:, _COLUMN["minor_size"]]
    reshaped = awkward = 0.0
    for producer, consumer in graph.edges:
        if graph.opcodes[consumer] in _RESHAPES and minor[producer] != minor[consumer] and executed[consumer] > 1:
            reshaped += executed[consumer]
            least = int(min(minor[producer], minor[consumer]))
            awkward += executed[consumer] * bool(least & (least - 1))
    flags = [float((features[:, _COLUMN[name]] * executed).sum()) for name in _FLAGS]
    large = features[:, _COLUMN["elements"]] > 1
    sizes = graph.kernel_features[_KERNEL_COLUMN].astype(np.float64)
    filled = np.ceil(np.maximum(sizes, 1) / VECTOR) * VECTOR
    return np.concatenate(
        [
            np.log1p([*made, executed.sum(), reshaped, awkward, *flags, minor[large].min(initial=_MOST)]),
            [np.log1p(executed.sum() / max(graph.feature("output_elements"), 1.0))],
            np.where(sizes > 0, np.log(filled / np.maximum(sizes, 1)), 0.0),
            (sizes > 0) & (filled == sizes),
        ]
    )
