"""How a kernel's loop walks through what it reads: steps of one element, of none, of many.

A loop over a result in the order of its memory reads each operand at places that broadcasts, transposes, slices and
reshapes decide. Those places are worked out exactly, for a few stretches of consecutive elements: a step of one element
fills vectors, a step of none is a register, a step of many fetches a cache line for every element.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Int64s
from phasepoint.hlo.shapes import Shape
from phasepoint.learn.hlo_graph.kernels import KernelNode, Nodes

ACCESS_NAMES: tuple[str, ...] = (
    *("reads_unit", "reads_same", "reads_near", "reads_far", "reads_page"),
    *("lines_per_read", "lines_most", "lines_touched", "loop_elements"),
)
"""Streams of reads, each split by its steps: one element on, the same one, less than a cache line, more, more than a
page; cache lines per element read, of all streams and of the worst; lines that the whole loop fetches so; elements that
the loop runs over."""

NO_ACCESS = (0.0,) * len(ACCESS_NAMES)
"""Of a kernel whose elements are not walked through."""

STRETCHES, LENGTH = 4, 32
"""Stretches of consecutive elements that are followed, and elements in one: two vectors of 512 bits."""
LINE_BYTES, PAGE_BYTES = 64, 4096
"""Cache line and page of x86-64 and most others."""
MOST_ELEMENTS = 1 << 48
"""Elements beyond which a shape is taken for damaged."""
MOST_STREAMS = 96
"""Values followed in one kernel: fusions with more paths have been seen well enough by then."""


_STOPS = frozenset(
    {"constant", "iota", "rng", "rng-bit-generator", "gather", "scatter", "sort", "dot", "convolution", "custom-call"}
    | {"fft", "cholesky", "triangular-solve", "while", "conditional", "call", "tuple", "get-tuple-element", "map"}
)


def access_row(nodes: Nodes) -> tuple[float, ...]:
    """`ACCESS_NAMES` of a kernel; zeros where nothing is walked through element by element."""
    if not nodes:
        return NO_ACCESS
    root = nodes[-1]
    roots = [nodes[place] for place in root.operands] if root.opcode == "tuple" else [root]
    steps, lines, elements = np.zeros(5), [], 0.0
    for one in roots[:4]:
        if one.opcode in _STOPS or not _is_walked(one.shape):
            continue
        elements += math.prod(one.shape.dims)
        for shape, places in _streams(nodes, one):
            kinds, touched = _steps(shape, places)
            steps += kinds
            lines.append(touched)
    if not lines:
        return (*NO_ACCESS[:-1], elements)
    return (*steps.tolist(), float(np.mean(lines)), max(lines), sum(lines) * elements, elements)


def _streams(nodes: Nodes, root: KernelNode) -> Iterator[tuple[Shape, Int64s]]:
    """What is read from outside, with the places that are read; a value that is reached on two ways is read twice."""
    stack, left = [(root, _walk_in_order(root.shape))], MOST_STREAMS
    while stack and left:
        left -= 1
        node, places = stack.pop()
        if node.opcode == "parameter":
            yield node.shape, places
            continue
        if node.opcode in _STOPS:
            continue
        for number, operand in enumerate(node.operands):
            read = nodes[operand]
            if read.shape.dims and _is_walked(read.shape):
                stack.append((read, _places_of_operand(node, number, read.shape, places)))


def _is_walked(shape: Shape) -> bool:
    return shape.is_array and 0 < math.prod(shape.dims) < MOST_ELEMENTS and min(shape.dims, default=1) > 0


def _places_of_operand(node: KernelNode, number: int, shape: Shape, places: Int64s) -> Int64s:
    """Where an operand is read to make a node's elements at some places; the first element where that is not known."""
    rank = len(shape.dims)
    unknown = np.zeros((*places.shape[:2], rank), np.int64)
    if number and node.opcode in ("pad", "reduce-window", "dynamic-slice"):
        return unknown
    found = _moved(node, shape, places) if node.instruction is not None else places
    return unknown if found is None or found.shape[-1] != rank else np.clip(found, 0, np.array(shape.dims) - 1)


def _moved(node: KernelNode, shape: Shape, places: Int64s) -> Int64s | None:
    """The places in an operand, before they are cut to its size; None where attributes and shapes do not agree."""
    assert node.instruction is not None
    proto, opcode, rank = node.instruction.proto, node.opcode, len(shape.dims)
    dims = list(proto.dimensions)
    if opcode == "broadcast":
        return places[..., dims] if _are_axes(dims, places.shape[-1]) else None
    if opcode in ("bitcast", "reshape"):
        physical = opcode == "bitcast"
        return _unravel(_offsets(node.shape, places, physical=physical), shape, physical=physical)
    if opcode == "slice":
        return _sliced(places, proto.slice_dimensions, rank)
    if opcode in ("transpose", "reverse"):
        return _turned(places, shape, dims, turns=opcode == "transpose")
    return _reduced(places, shape, dims) if opcode == "reduce" and _are_axes(dims, rank) else places


def _turned(places: Int64s, shape: Shape, dims: list[int], *, turns: bool) -> Int64s | None:
    rank = len(shape.dims)
    if not _are_axes(dims, rank) or places.shape[-1] != rank or (turns and len(dims) != rank):
        return None
    found = places.copy()
    found[..., dims] = places if turns else np.array(shape.dims)[dims] - 1 - places[..., dims]
    return found


def _sliced(places: Int64s, cuts: Sequence[Any], rank: int) -> Int64s | None:
    if len(cuts) != rank or places.shape[-1] != rank:
        return None
    strides = np.array([max(cut.stride, 1) for cut in cuts], np.int64)
    found: Int64s = places * strides + np.array([cut.start for cut in cuts], np.int64)
    return found


def _are_axes(dims: list[int], rank: int) -> bool:
    return len(set(dims)) == len(dims) and all(0 <= dim < rank for dim in dims)


def _reduced(places: Int64s, shape: Shape, dims: list[int]) -> Int64s:
    """The inner loop of a reduction: the first element of each stretch, through what is reduced."""
    rank = len(shape.dims)
    kept = [dim for dim in range(rank) if dim not in dims]
    if places.shape[-1] != len(kept) or not dims:
        return places
    order = [dim for dim in _sizes(shape, physical=True)[0] if dim in dims]
    sizes = [max(shape.dims[dim], 1) for dim in order]
    steps = np.arange(places.shape[1]) % max(math.prod(sizes), 1)
    found = np.zeros((*places.shape[:2], rank), np.int64)
    found[..., kept] = places[:, :1, :]
    for dim, index in zip(order, np.unravel_index(steps, sizes), strict=True):
        found[..., dim] = index[None, :]
    return found


def _walk_in_order(shape: Shape) -> Int64s:
    """Stretches of a result, spread over it, in the order of its memory."""
    elements = math.prod(shape.dims)
    last = max(elements - LENGTH, 0)
    starts = np.array([last * part // (STRETCHES - 1) for part in range(STRETCHES)])
    return _unravel((starts[:, None] + np.arange(LENGTH)) % elements, shape, physical=True)


def _sizes(shape: Shape, *, physical: bool) -> tuple[list[int], list[int]]:
    """Dimensions from the outermost to the innermost, and their sizes."""
    rank = len(shape.dims)
    laid_out = physical and sorted(shape.minor_to_major) == list(range(rank))
    order = list(reversed(shape.minor_to_major)) if laid_out else list(range(rank))
    return order, [max(shape.dims[dim], 1) for dim in order]


def _offsets(shape: Shape, places: Int64s, *, physical: bool) -> Int64s:
    order, sizes = _sizes(shape, physical=physical)
    if not order:
        return np.zeros(places.shape[:2], np.int64)
    strides = np.cumprod([1, *sizes[:0:-1]], dtype=np.int64)[::-1]
    return np.asarray(places[..., order] @ strides, np.int64)


def _unravel(offsets: Int64s, shape: Shape, *, physical: bool) -> Int64s:
    order, sizes = _sizes(shape, physical=physical)
    found = np.zeros((*offsets.shape, len(order)), np.int64)
    if order:
        inside = offsets % max(math.prod(sizes), 1)
        for dim, index in zip(order, np.unravel_index(inside, sizes), strict=True):
            found[..., dim] = index
    return found


def _steps(shape: Shape, places: Int64s) -> tuple[npt.NDArray[np.float64], float]:
    """Shares of the kinds of steps, and cache lines per element."""
    offsets = _offsets(shape, places, physical=True)
    size = max(shape.size_bytes // math.prod(shape.dims), 1)
    step = np.abs(np.diff(offsets, axis=1))
    far = step * size >= LINE_BYTES
    kinds = (step == 1, step == 0, (step > 1) & ~far, far, step * size >= PAGE_BYTES)
    lines = np.sort(offsets * size // LINE_BYTES, axis=1)
    distinct = 1 + (np.diff(lines, axis=1) > 0).sum(axis=1)
    return np.array([kind.mean() for kind in kinds]), float(distinct.mean() / offsets.shape[1])
