"""What a tile of a TPU kernel means: how often it is loaded, what of it hangs over, how much it moves.

A TPU works on registers of 8 × 128 values: the innermost two dimensions in memory are counted in those. A tile's
bounds come outermost first. A product (XLA writes it as a convolution) has a tile of the output and one of the kernel;
other kernels have one of the array that is walked.
"""

import re
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from phasepoint.core.arrays import Float32s
from phasepoint.hlo.shapes import Shape
from phasepoint.learn.hlo_graph.kernels import KernelNode, Nodes
from phasepoint.learn.hlo_graph.node_rules import memory_order

SUBLANES, LANES = 8, 128
"""Rows and columns of a register. Source: "A Domain-Specific Supercomputer for Training Deep Neural Networks", CACM
2020, the vector unit; the tiles T(8,128) of XLA's TPU layouts."""

TILE_FEATURE_NAMES: tuple[str, ...] = (
    *("iterations", "passes", "overhang", "tile_bytes", "moved_bytes", "accumulated_bytes", "runs", "flop"),
    *("transfers", "is_product", "volume_ratio", "whole_dims", "dims", "is_default", "bounds_known"),
    *(f"output_{place}" for place in range(6)),
    *(f"kernel_{place}" for place in range(6)),
)
"""Entries of `config_features` of a tile: iterations of the loop over tiles; passes over the summed dimensions; padded
work over real work; bytes of one iteration, of all, of partial sums; pieces of memory that are contiguous, of all
iterations; padded flop; arrays that each iteration moves, of all iterations; tile's volume over the whole; dimensions
taken whole, and all; bounds outermost first. Times need the first ten and `bounds_known`."""

_LAYOUT_TILE = re.compile(r"T\((\d+(?:,\d+)*)\)")


@dataclass(frozen=True)
class TileSize:
    """A tile of a kernel, in elements; the innermost dimension in memory first. What the kernel has not is empty.

    Attributes:
        kernel_bounds: of the kernel of a convolution (or the summed side of a product).
        output_bounds: of the output.
        input_bounds: of the input.
        iteration_bounds: of the loop around them.
    """

    kernel_bounds: tuple[int, ...]
    output_bounds: tuple[int, ...]
    input_bounds: tuple[int, ...]
    iteration_bounds: tuple[int, ...]


@dataclass(frozen=True)
class _Tiled:
    """One array under a tile.

    Attributes:
        order: its dimensions, outermost first.
        full: its size in units of the tile, in that order.
        bounds: the tile, in that order, at most `full`.
        elements: the tile in elements by dimension (logical order).
    """

    order: tuple[int, ...]
    full: tuple[int, ...]
    bounds: tuple[int, ...]
    elements: tuple[int, ...]

    def counts(self) -> dict[int, int]:
        """Tiles along each dimension."""
        return {dim: ceil(full / bound) for dim, full, bound in zip(self.order, self.full, self.bounds, strict=True)}

    def overhang(self, dims: tuple[int, ...]) -> float:
        """Padded over real size along some dimensions, a product."""
        sizes = zip(self.order, self.full, self.bounds, strict=True)
        return prod([ceil(full / bound) * bound / full for dim, full, bound in sizes if dim in dims])

    def runs(self) -> int:
        """Contiguous pieces of memory in one tile."""
        inner = len(self.order)
        while inner and self.bounds[inner - 1] == self.full[inner - 1]:
            inner -= 1
        return prod(self.bounds[: max(inner - 1, 0)])


def layout_units(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Dimensions outermost first, what one unit of each holds, and their sizes in units.

    A unit is a tile of the layout, `T(8,128)` or `T(1024)` of an array of one dimension; a register without one.
    """
    order = tuple(reversed(memory_order(shape)))
    written = _LAYOUT_TILE.search(shape.text)
    tile = [max(int(size), 1) for size in written[1].split(",")] if written else [SUBLANES, LANES]
    inner = tile[max(len(tile) - len(order), 0) :]
    per_unit = [1] * (len(order) - len(inner)) + inner
    sizes = tuple(ceil(shape.dims[dim] / unit) for dim, unit in zip(order, per_unit, strict=True))
    return order, tuple(per_unit), sizes


def _tiled(shape: Shape, bounds: tuple[int, ...]) -> _Tiled | None:
    """An array under a tile; None where the tile does not fit it."""
    order, per_unit, full = layout_units(shape)
    if len(bounds) != len(full) or any(not 0 < bound <= size for bound, size in zip(bounds, full, strict=True)):
        return None
    elements = [0] * len(order)
    for dim, unit, bound in zip(order, per_unit, bounds, strict=True):
        elements[dim] = min(unit * bound, shape.dims[dim])
    return _Tiled(order, full, bounds, tuple(elements))


def tile_features(nodes: Nodes, tile: TileSize, *, flop: float, is_default: bool) -> Float32s:
    """What a tile means for a kernel; entries by `TILE_FEATURE_NAMES`.

    Args:
        nodes: values of the kernel, root last.
        tile: the tile. One whose bounds fit no array of the kernel has only zeros, and `bounds_known` says so.
        flop: of the kernel.
        is_default: whether the compiler would take it.
    """
    product = next((node for node in nodes if node.opcode == "convolution"), None)
    values: dict[str, float] = {"is_default": is_default}
    if product is not None and tile.kernel_bounds:
        values |= {"is_product": 1, **_of_product(nodes, product, tile, flop)}
    elif tile.output_bounds:
        values |= _of_array(nodes, tile, flop)
    values["transfers"] = values.get("iterations", 0) * len(_in_memory(nodes))
    for side, bounds in (("output", tile.output_bounds), ("kernel", tile.kernel_bounds)):
        values |= {f"{side}_{place}": bound for place, bound in enumerate(bounds[:6])}
    return np.array([values.get(name, 0.0) for name in TILE_FEATURE_NAMES], np.float32)


def _of_array(nodes: Nodes, tile: TileSize, flop: float) -> dict[str, float]:
    """A kernel that walks one array: the largest that the tile fits."""
    shapes = [leaf for node in nodes for leaf in node.shape.leaves() if leaf.is_array]
    largest = sorted(dict.fromkeys(shapes), key=lambda shape: -shape.elements)
    fitting = [(shape, tiled) for shape in largest if (tiled := _tiled(shape, tile.output_bounds)) is not None]
    if not fitting:
        return {}
    walked, tiled = fitting[0]
    iterations = prod(tiled.counts().values())
    moved = sum([_moved_bytes(shape, walked, tiled) for shape in _in_memory(nodes)])
    return {
        "iterations": iterations,
        "passes": 1,
        "overhang": tiled.overhang(tiled.order),
        "tile_bytes": moved / iterations,
        "moved_bytes": moved,
        "runs": iterations * tiled.runs(),
        "flop": flop * tiled.overhang(tiled.order),
        **_coverage((tiled,)),
    }


def _in_memory(nodes: Nodes) -> list[Shape]:
    """Arrays that a kernel reads and writes."""
    ends = [node.shape for node in nodes if node.opcode == "parameter"] + [nodes[-1].shape]
    return [leaf for shape in ends for leaf in shape.leaves() if leaf.is_array]


def _moved_bytes(shape: Shape, walked: Shape, tiled: _Tiled) -> float:
    """Bytes of an array that all iterations move: whole registers in its own layout, however little a tile needs.

    An array of other dimensions than the walked one is taken to be moved once, with its share of what hangs over.
    """
    if shape.dims != walked.dims:
        return shape.size_bytes * tiled.overhang(tiled.order)
    order, per_unit, _ = layout_units(shape)
    units = [
        _units_touched(tiled.elements[dim], shape.dims[dim], unit) for dim, unit in zip(order, per_unit, strict=True)
    ]
    return prod(tiled.counts().values()) * prod(units) * prod(per_unit) * _bytes(shape)


def _units_touched(taken: int, size: int, unit: int) -> float:
    """Units that a stretch of elements lies in: aligned where it can be, else on average over its starts."""
    if taken >= size or taken % unit == 0:
        return ceil(min(taken, size) / unit)
    return 1 + (taken - 1) / unit


def _of_product(nodes: Nodes, product: KernelNode, tile: TileSize, flop: float) -> dict[str, float]:
    assert product.instruction is not None
    numbers = product.instruction.proto.convolution_dimension_numbers
    left, right = product.operands[:2]
    lhs, rhs = nodes[left].shape, nodes[right].shape
    output, kernel = _tiled(product.shape, tile.output_bounds), _tiled(rhs, tile.kernel_bounds)
    if output is None or kernel is None:
        return {}
    summed = tuple(dim for dim in kernel.order if dim != numbers.kernel_output_feature_dimension)
    counts = kernel.counts()
    passes = prod([counts[dim] for dim in summed])
    tiles = prod(output.counts().values())
    overhang = output.overhang(output.order) * kernel.overhang(summed)
    element_bytes = _element_bytes(nodes, left, right, product.shape)
    taken, held = _input_elements(product, lhs, output, kernel), prod(kernel.elements)
    features = output.counts()[numbers.output_feature_dimension]
    loads = _loads(tiles, passes, features, wholes=(taken >= lhs.elements, held >= rhs.elements))
    parts = (taken * element_bytes[0], held * element_bytes[1])
    own = prod(output.elements) * element_bytes[2]
    return {
        "iterations": tiles * passes,
        "passes": passes,
        "overhang": overhang,
        "tile_bytes": sum(parts) + own,
        "moved_bytes": min([sum([part * n for part, n in zip(parts, one, strict=True)]) for one in loads])
        + tiles * own,
        "accumulated_bytes": (passes - 1) * tiles * prod(output.elements) * _bytes(product.shape),
        "runs": tiles * passes * kernel.runs() + tiles * output.runs(),
        "flop": flop * overhang,
        **_coverage((output, kernel)),
    }


def _loads(tiles: int, passes: int, features: int, *, wholes: tuple[bool, bool]) -> tuple[tuple[int, int], ...]:
    """How often a tile of the input and one of the kernel are loaded, for each order of the loops that may be.

    What does not change from one iteration to the next stays where it is. With one pass the kernel changes with the
    output's features alone and the input with all else; which of them is the outer loop is not known.

    Args:
        tiles: of the output.
        passes: over the summed dimensions, the inner loop.
        features: tiles along the output's features.
        wholes: whether a tile of the input and one of the kernel are all of it, so that one load is enough.
    """
    orders = [(tiles * passes, tiles * passes)]
    if passes == 1:
        orders = [(tiles, features), (tiles // features, tiles)]
    return tuple((1 if wholes[0] else first, 1 if wholes[1] else second) for first, second in orders)


def _element_bytes(nodes: Nodes, left: int, right: int, result: Shape) -> tuple[float, float, float]:
    """Bytes that memory moves for one element of the input, the kernel and the output of a fused product.

    What is fused before an operand is read in its stead, what is fused behind the product is read beside it.
    """
    before = [inputs_of(nodes, place) for place in (left, right)]
    sides = [
        sum([_bytes(nodes[one].shape) for one in inputs if nodes[one].shape.elements == nodes[place].shape.elements])
        for inputs, place in zip(before, (left, right), strict=True)
    ]
    beside = [
        node.shape
        for place, node in enumerate(nodes)
        if node.opcode == "parameter" and place not in before[0] | before[1]
    ]
    written = [leaf for leaf in nodes[-1].shape.leaves() if leaf.is_array]
    around = sum([_bytes(shape) for shape in (*beside, *written) if shape.elements == result.elements])
    return sides[0], sides[1], around


def inputs_of(nodes: Nodes, place: int) -> set[int]:
    """Parameters that a node is computed from."""
    found, stack, seen = set(), [place], {place}
    while stack:
        one = stack.pop()
        if nodes[one].opcode == "parameter":
            found.add(one)
        fresh = set(nodes[one].operands) - seen
        seen |= fresh
        stack += fresh
    return found


def _input_elements(product: KernelNode, lhs: Shape, output: _Tiled, kernel: _Tiled) -> int:
    """Elements of the input that one tile of the output and one of the kernel need."""
    assert product.instruction is not None
    proto = product.instruction.proto
    numbers = proto.convolution_dimension_numbers
    sizes = [
        output.elements[numbers.output_batch_dimension],
        min(kernel.elements[numbers.kernel_input_feature_dimension], lhs.dims[numbers.input_feature_dimension]),
    ]
    for place, window in enumerate(proto.window.dimensions):
        across = output.elements[numbers.output_spatial_dimensions[place]]
        deep = kernel.elements[numbers.kernel_spatial_dimensions[place]]
        reach = (across - 1) * max(window.stride, 1) + (deep - 1) * max(window.window_dilation, 1) + 1
        sizes.append(min(reach, lhs.dims[numbers.input_spatial_dimensions[place]]))
    return prod(sizes)


def _bytes(shape: Shape) -> float:
    return shape.size_bytes / max(shape.elements, 1)


def _coverage(tiled: tuple[_Tiled, ...]) -> dict[str, float]:
    pairs = [pair for one in tiled for pair in zip(one.full, one.bounds, strict=True)]
    return {
        "volume_ratio": prod([bound / full for full, bound in pairs]),
        "whole_dims": sum([bound == full for full, bound in pairs]),
        "dims": len(pairs),
        "bounds_known": 1,
    }
