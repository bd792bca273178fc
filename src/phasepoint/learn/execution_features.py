"""What a loop over a fusion's result really executes, and how well its sizes fit into vectors: derived features.

A loop fusion computes nothing ahead: an element of a node is computed for each place that reads it. Behind a broadcast
over outer dimensions that is once for each element of the broadcast; behind one over the innermost dimension once a
row, for a compiler takes out of the loop what does not change in it. A reduction reads all that it reduces.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.learn.graphs import KERNEL_FEATURE_NAMES, NODE_FEATURE_NAMES, OPCODES, KernelGraph

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
