"""What a tile of a TPU kernel means: how often it is loaded, what of it hangs over, how much it moves.

A TPU works on registers of 8 × 128 values: the innermost two dimensions in memory are counted in those. A tile's
bounds come outermost first. A product (XLA writes it as a convolution) has a tile of the output and one of the kernel;
other kernels have one of the array that is walked.

How long a TPU kernel takes with a tile: double buffering in eight coefficients.

The TPU computes on one tile while it moves the next, so an iteration takes the longer of the two; the first tile's
reading and the last one's writing are exposed, and sums that do not fit one pass are read and written again:

    first + iterations × (max(flop × a, transfers × d + bytes × b + runs × r) + o) + partial sums × s

The coefficients are fitted to measured tiles. What is fitted is the logarithm of times less its mean within the kernel:
only the order and the spacing of a kernel's own tiles count, as for a choice among them nothing else does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Floats
from phasepoint.core.errors import ModelError
from phasepoint.hlo.shapes import Shape
from phasepoint.learn.hlo_graph.graphs import KernelGraph
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


def _units(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
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
    order, per_unit, full = _units(shape)
    if len(bounds) != len(full) or any(not 0 < bound <= size for bound, size in zip(bounds, full, strict=True)):
        return None
    elements = [0] * len(order)
    for dim, unit, bound in zip(order, per_unit, bounds, strict=True):
        elements[dim] = min(unit * bound, shape.dims[dim])
    return _Tiled(order, full, bounds, tuple(elements))


def tile_features(graph: KernelGraph, nodes: Nodes, tile: TileSize, *, is_default: bool) -> Float32s:
    """What a tile means for a kernel; entries by `TILE_FEATURE_NAMES`.

    Args:
        graph: of the kernel.
        nodes: its values.
        tile: the tile. One whose bounds fit no array of the kernel has only zeros, and `bounds_known` says so.
        is_default: whether the compiler would take it.
    """
    product = next((node for node in nodes if node.opcode == "convolution"), None)
    values: dict[str, float] = {"is_default": is_default}
    if product is not None and tile.kernel_bounds:
        values |= {"is_product": 1, **_of_product(graph, nodes, product, tile)}
    elif tile.output_bounds:
        values |= _of_array(graph, nodes, tile)
    values["transfers"] = values.get("iterations", 0) * len(_in_memory(nodes))
    for side, bounds in (("output", tile.output_bounds), ("kernel", tile.kernel_bounds)):
        values |= {f"{side}_{place}": bound for place, bound in enumerate(bounds[:6])}
    return np.array([values.get(name, 0.0) for name in TILE_FEATURE_NAMES], np.float32)


def _of_array(graph: KernelGraph, nodes: Nodes, tile: TileSize) -> dict[str, float]:
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
        "flop": graph.feature("flop") * tiled.overhang(tiled.order),
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
    order, per_unit, _ = _units(shape)
    units = [
        _units_touched(tiled.elements[dim], shape.dims[dim], unit) for dim, unit in zip(order, per_unit, strict=True)
    ]
    return prod(tiled.counts().values()) * prod(units) * prod(per_unit) * _bytes(shape)


def _units_touched(taken: int, size: int, unit: int) -> float:
    """Units that a stretch of elements lies in: aligned where it can be, else on average over its starts."""
    if taken >= size or taken % unit == 0:
        return ceil(min(taken, size) / unit)
    return 1 + (taken - 1) / unit


def _of_product(graph: KernelGraph, nodes: Nodes, product: KernelNode, tile: TileSize) -> dict[str, float]:
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
        "flop": graph.feature("flop") * overhang,
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
    before = [_inputs_of(nodes, place) for place in (left, right)]
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


def _inputs_of(nodes: Nodes, place: int) -> set[int]:
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


COEFFICIENT_NAMES = (
    *("s_per_product_flop", "s_per_other_flop", "s_per_byte", "s_per_transfer", "s_per_run", "exposed_ratio"),
    *("s_per_accumulated_byte", "s_per_iteration"),
)
"""Seconds for each of what is counted; `exposed_ratio`: how much of a tile's transfer is not hidden."""

_START = (2e-14, 1e-12, 2e-12, 2e-7, 1e-9, 1.0, 2e-12, 1e-7)
"""Where the fit starts: peaks of a TPU v3 core (61 Tflop/s of products, 450 GB/s) and orders of magnitude.

Source of the peaks: "A Domain-Specific Supercomputer for Training Deep Neural Networks", CACM 2020, table 3, halved.
"""

LEAST_KERNELS = 3
"""Kernels with known tiles without which coefficients are not fitted."""

_PULL = 0.1
"""Weight that holds each logarithm at its start: what no kernel tells apart stays where it is."""

_AT = {name: place for place, name in enumerate(TILE_FEATURE_NAMES)}


@dataclass(frozen=True)
class TileTimes:
    """Measured tiles of one kernel, for the fit.

    Attributes:
        features: shape [t, TILE_FEATURES], raw.
        time_s: measured, shape [t], above 0.
    """

    features: npt.NDArray[np.float32]
    time_s: Floats


def tile_time_s(features: npt.ArrayLike, coefficients: Floats) -> Floats:
    """Times of tiles, up to a factor of their kernel.

    Args:
        features: shape [t, TILE_FEATURES], raw.
        coefficients: by `COEFFICIENT_NAMES`.

    Returns:
        Seconds, shape [t]; NaN where the tile says nothing (`bounds_known` is 0).
    """
    rows = np.asarray(features, np.float64)
    column = {name: rows[:, place] for name, place in _AT.items()}
    product, other, per_byte, per_transfer, per_run, exposed, per_sum, per_iteration = coefficients
    computing = column["flop"] * np.where(column["is_product"] > 0, product, other)
    moving = column["transfers"] * per_transfer + column["moved_bytes"] * per_byte + column["runs"] * per_run
    times: Floats = (
        exposed * column["tile_bytes"] * per_byte
        + np.maximum(computing, moving)
        + column["iterations"] * per_iteration
        + column["accumulated_bytes"] * per_sum
    )
    return np.where(column["bounds_known"] > 0, times, np.nan)


def fit_tile_cost(kernels: Sequence[TileTimes]) -> Floats:
    """Coefficients that bring the times of tiles of some kernels into their measured proportions.

    Every kernel counts by the root of the root of the number of its tiles, and a tile in proportion to how close it is
    to its kernel's best: slow tiles are not to be told apart.

    Raises:
        ModelError: fewer than `LEAST_KERNELS` kernels have at least two tiles with known bounds.
    """
    from scipy.optimize import least_squares  # comes with scikit-learn

    known = [one for one in map(_known, kernels) if len(one.time_s) > 1]
    if len(known) < LEAST_KERNELS:
        raise ModelError(
            f"a tile model is fitted to at least {LEAST_KERNELS} kernels with known tiles, not {len(known)}"
        )
    weights = [one.time_s.min() / one.time_s for one in known]
    weights = [weight / weight.sum() for weight in weights]
    start = np.log(np.array(_START))

    def residuals(logs: Floats) -> Floats:
        parts = [_PULL * (logs - start)]
        coefficients = np.exp(logs)
        for one, weight in zip(known, weights, strict=True):
            off = np.log(tile_time_s(one.features, coefficients)) - np.log(one.time_s)
            parts.append((off - weight @ off) * np.sqrt(weight) * len(weight) ** 0.25)
        return np.concatenate(parts)

    return np.exp(np.asarray(least_squares(residuals, start).x, np.float64))


def _known(one: TileTimes) -> TileTimes:
    of = one.features[:, _AT["bounds_known"]] > 0
    return TileTimes(one.features[of], one.time_s[of])
