"""Where a kernel of a TPU has its arrays, how they fill its registers, and its tile: features beside the general ones.

A layout's tile `T(8,128)` says how an array is filled up to whole registers; `S(1)`, that it is in the vector memory,
so that nothing of it comes from the main memory while the kernel runs. An array that is read from the main memory
tile by tile, and one that is written there, each make a kernel wait once for a whole transfer.
"""

import re
from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from phasepoint.core.arrays import Float32s
from phasepoint.hlo.module import Instruction
from phasepoint.hlo.shapes import Shape
from phasepoint.hlo.work import backend_config
from phasepoint.learn.hlo_graph.features import class_of
from phasepoint.learn.hlo_graph.kernels import Nodes
from phasepoint.learn.hlo_graph.node_rules import COLUMN_OF, MOVEMENT, memory_order
from phasepoint.learn.hlo_graph.tiles import (
    LANES,
    SUBLANES,
    TILE_FEATURE_NAMES,
    TileSize,
    inputs_of,
    layout_units,
    tile_features,
)

_SPACES = ("main", "vector", "other")
_SPACE = re.compile(r"S\((\d+)\)")
_SPACE_NAMES = {None: "main", "1": "vector"}
"""Memory space in a layout → where the array is. Source: layouts of TPU programs, where 1 is the vector memory."""

_MOST = 1e30
"""Largest entry: a damaged module may claim more than float32 holds."""

_WORK = ("transcendental", "reducing", "reducing_minor", "movement", "division", "choosing", "conversion", "broadcast")
_OPCODES_OF = {
    "division": frozenset({"divide", "remainder", "sqrt", "rsqrt"}),
    "choosing": frozenset({"select", "compare"}),
    "conversion": frozenset({"convert"}),
    "broadcast": frozenset({"broadcast"}),
    "movement": MOVEMENT - {"broadcast", "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota"},
}

PLACEMENT_NAMES: tuple[str, ...] = (
    *(f"{way}_{space}_bytes" for way in ("read", "written") for space in _SPACES),
    *(f"{way}_main_{what}" for way in ("read", "written") for what in ("arrays", "lines", "scalars")),
    *("read_arrays", "written_arrays", "left_main_bytes", "right_main_bytes"),
    *("output_registers", "output_fill", "minor_rest", "second_minor_rest", "most_registers", "registers"),
    *(f"{name}_registers" for name in _WORK),
    *("product_passes", "product_rows", "product_summed", "product_columns", "product_fill"),
    *("is_split", *(f"tile_{name}" for name in TILE_FEATURE_NAMES)),
)
"""Entries of a kernel's placement: padded bytes by memory; arrays of the main memory of two dimensions and more, of
one, of none; what of it the two sides of a product need; registers of the result, of the largest value and of all, and
by kind of work; a product in passes of the matrix unit; whether both cores share the kernel; what its tile means."""


def is_tiled(instruction: Instruction) -> bool:
    """Whether what a kernel reads or writes is laid out in tiles, as a TPU has it."""
    return any("T(" in one.shape.text for one in (*instruction.operands, instruction))


def placement_row(instruction: Instruction, nodes: Nodes, rows: Float32s, *, flop: float) -> Float32s | None:
    """Where a kernel's arrays are, by `PLACEMENT_NAMES`; None where no layout has tiles: it is of no TPU.

    Args:
        instruction: that starts the kernel.
        nodes: its values, root last.
        rows: their features, raw.
        flop: of the kernel.
    """
    if not is_tiled(instruction):
        return None
    read = [leaf for operand in instruction.operands for leaf in operand.shape.leaves() if leaf.is_array]
    written = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
    try:
        values = _values(instruction, nodes, rows, (read, written), flop)
    except (IndexError, ValueError, OverflowError):  # layouts or attributes that do not fit: a damaged module
        return None
    return np.array([min(values.get(name, 0.0), _MOST) for name in PLACEMENT_NAMES], np.float32)


def _values(
    instruction: Instruction, nodes: Nodes, rows: Float32s, ends: tuple[list[Shape], list[Shape]], flop: float
) -> dict[str, float]:
    read, written = ends
    said = backend_config(instruction)
    tile = tile_features(nodes, _tile_of(said.get("window_config")), flop=flop, is_default=True)
    return {
        **_traffic("read", read),
        **_traffic("written", written),
        **_registers(nodes, rows),
        **_result(written),
        **_product(instruction, nodes, rows),
        "is_split": float(bool(said.get("megacore_config"))),
        **{f"tile_{name}": float(value) for name, value in zip(TILE_FEATURE_NAMES, tile, strict=True)},
    }


def _tile_of(window: object) -> TileSize:
    """The tile that the compiler took."""
    said = window if isinstance(window, dict) else {}

    def bounds(name: str) -> tuple[int, ...]:
        listed = said.get(name)
        return tuple(int(one) for one in listed if str(one).isdigit()) if isinstance(listed, list) else ()

    names = ("kernel_window_bounds", "output_window_bounds", "input_window_bounds", "iteration_bounds")
    return TileSize(*map(bounds, names))


def _space(shape: Shape) -> str:
    found = _SPACE.search(shape.text)
    return _SPACE_NAMES.get(found[1] if found else None, "other")


def _padded(shape: Shape) -> int:
    """Elements of an array, filled up to whole tiles."""
    _, per_unit, sizes = layout_units(shape)
    return prod(per_unit) * prod(sizes)


def _padded_bytes(shape: Shape) -> float:
    return _padded(shape) * shape.size_bytes / max(shape.elements, 1)


def _traffic(way: str, shapes: Sequence[Shape]) -> dict[str, float]:
    values: dict[str, float] = {f"{way}_arrays": len(shapes)}
    for shape in shapes:
        space = _space(shape)
        counted = {f"{way}_{space}_bytes": _padded_bytes(shape)}
        if space == "main":
            wide = sum(size > 1 for size in shape.dims)
            counted[f"{way}_main_{'arrays' if wide > 1 else 'lines' if wide else 'scalars'}"] = 1
        for name, value in counted.items():
            values[name] = values.get(name, 0) + value
    return values


def _result(written: Sequence[Shape]) -> dict[str, float]:
    """How the first result fills its registers."""
    if not written or not written[0].dims:
        return {}
    shape = written[0]
    order = memory_order(shape)
    return {
        "output_registers": _padded(shape) / (SUBLANES * LANES),
        "output_fill": shape.elements / max(_padded(shape), 1),
        "minor_rest": shape.dims[order[0]] % LANES / LANES,
        "second_minor_rest": shape.dims[order[1]] % SUBLANES / SUBLANES if len(order) > 1 else 0.0,
    }


def _registers(nodes: Nodes, rows: Float32s) -> dict[str, float]:
    """Registers that a kernel's values fill, all and by kind of work; a reduction's are those that it reads."""
    values: dict[str, float] = {}
    for place, node in enumerate(nodes):
        if not node.shape.is_array or node.opcode in ("parameter", "constant"):
            continue
        name, reads = class_of(node.opcode), node.shape
        if name == "reducing" and node.operands and nodes[node.operands[0]].shape.is_array:
            reads = nodes[node.operands[0]].shape
        count = max(_padded(reads), 1) / (SUBLANES * LANES)
        kinds = [kind for kind, opcodes in _OPCODES_OF.items() if node.opcode in opcodes]
        kinds += [name] if name in ("transcendental", "reducing") else []
        if name == "reducing" and rows[place, COLUMN_OF["reduces_minor"]]:
            kinds.append("reducing_minor")
        for kind in kinds:
            values[f"{kind}_registers"] = values.get(f"{kind}_registers", 0) + count
        values["registers"] = values.get("registers", 0) + count
        values["most_registers"] = max(values.get("most_registers", 0), count)
    return values


def _product(instruction: Instruction, nodes: Nodes, rows: Float32s) -> dict[str, float]:
    """The largest product as the matrix unit does it: rows of eight, 128 summed and 128 columns at a time."""
    found: dict[str, float] = {}
    for place, node in enumerate(nodes):
        name = class_of(node.opcode)
        if name not in ("matrix", "convolution") or len(node.operands) < 2:
            continue
        count, across, summed, columns = _product_sizes(rows[place], is_dot=name == "matrix")
        passes = count * ceil(across / SUBLANES) * ceil(summed / LANES) * ceil(columns / LANES)
        if passes > found.get("product_passes", 0):
            left, right = (_main_bytes(instruction, nodes, side) for side in node.operands[:2])
            found = {
                "product_passes": passes,
                "product_rows": across,
                "product_summed": summed,
                "product_columns": columns,
                "product_fill": count * across * summed * columns / (passes * SUBLANES * LANES * LANES),
                "left_main_bytes": left,
                "right_main_bytes": right,
            }
    return found


def _product_sizes(row: Float32s, *, is_dot: bool) -> tuple[float, float, float, float]:
    """How many products, and of each the rows, what is summed over, and the columns; at least 1."""

    def of(name: str) -> float:
        return max(float(row[COLUMN_OF[name]]), 1.0)

    if is_dot:
        return of("dot_batch"), of("dot_m"), of("dot_k"), of("dot_n")
    groups = of("conv_groups")
    across = of("conv_batch") * of("conv_output_places")
    return groups, across, max(of("conv_in") / groups, 1) * of("conv_kernel_places"), max(of("conv_out") / groups, 1)


def _main_bytes(instruction: Instruction, nodes: Nodes, side: int) -> float:
    """Padded bytes in the main memory that one side of a product is computed from."""
    total = 0.0
    for place in inputs_of(nodes, side):
        node = nodes[place]
        number = node.instruction.proto.parameter_number if node.instruction is not None else place
        operands = instruction.operands
        shape = operands[number].shape if number < len(operands) else node.shape
        total += _padded_bytes(shape) if shape.is_array and _space(shape) == "main" else 0.0
    return total
