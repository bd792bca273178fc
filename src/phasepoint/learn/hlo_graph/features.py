"""Features of a kernel: a row of numbers for each of its nodes, and one for the kernel as a whole.

The whole: its work, its traffic, what its largest pieces are. Raw numbers, named.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from phasepoint.core.arrays import Float32s
from phasepoint.hlo.module import Computation, Instruction
from phasepoint.hlo.shapes import Shape
from phasepoint.hlo.traffic import bytes_of_instruction, bytes_written_by
from phasepoint.hlo.work import ELEMENTWISE, NONE, TRANSCENDENTAL, UNKNOWN, Operations, work_of_instruction
from phasepoint.learn.hlo_graph.access_patterns import ACCESS_NAMES
from phasepoint.learn.hlo_graph.kernels import KernelNode, Nodes
from phasepoint.learn.hlo_graph.locality import LOCALITY_NAMES
from phasepoint.learn.hlo_graph.node_rules import (
    COLUMN_OF,
    INDEXED,
    INTEGER_TYPES,
    MATRIX,
    MOVEMENT,
    NODE_FEATURE_NAMES,
    REDUCING,
    RULES,
    Rule,
    cut,
    memory_order,
    number,
)

_SHAPE_END, _USE_START, _USE_END = COLUMN_OF["is_root"], COLUMN_OF["is_root"], COLUMN_OF["applied_flop"]
_COMPLEX = frozenset({15, 18})


def node_rows(nodes: Nodes, work: list[Operations]) -> Float32s:
    """Feature rows of a kernel's nodes.

    Args:
        nodes: of a kernel, root last.
        work: operations of each node.

    Returns:
        Shape [nodes, len(NODE_FEATURE_NAMES)], raw.
    """
    rows = np.zeros((len(nodes), len(NODE_FEATURE_NAMES)), np.float32)
    users = [0] * len(nodes)
    for node in nodes:
        for place in node.operands:
            users[place] += 1
    outputs = nodes[-1].operands if nodes[-1].opcode == "tuple" else (len(nodes) - 1,)
    for place, node in enumerate(nodes):
        row = rows[place]
        row[:_SHAPE_END] = _shape_features(node.shape)
        read = [nodes[operand].shape for operand in node.operands]
        row[_USE_START:_USE_END] = (
            place == len(nodes) - 1,
            node.opcode == "parameter",
            place in outputs,
            users[place],
            len(read),
            number(sum([shape.elements for shape in read])),
            number(sum([shape.size_bytes for shape in read])),
            number(work[place].flop or 0),
            number(work[place].transcendentals or 0),
        )
        rule = RULES.get(node.opcode)
        if rule and node.instruction is not None:
            _apply(rule, row, node, read)
    return rows


def _apply(rule: Rule, row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    try:
        rule(row, node, read)
    except (
        IndexError,
        ValueError,
        OverflowError,
    ):  # attributes that do not fit the operands: said, and the rest left 0
        row[COLUMN_OF["is_opaque"]] = 1


def work_of_nodes(nodes: Nodes) -> list[Operations]:
    """Operations of each node; None in it where they cannot be known."""
    known: dict[Computation, Operations] = {}

    def work_of(computation: Computation) -> Operations:
        if computation not in known:
            known[computation] = NONE  # whoever meets it again while it is counted closes a circle
            parts = [_work(one, work_of) for one in computation.instructions]
            known[computation] = Operations(
                sum([part.flop or 0 for part in parts]), sum([part.transcendentals or 0 for part in parts])
            )
        return known[computation]

    return [NONE if node.instruction is None else _work(node.instruction, work_of) for node in nodes]


def _work(one: Instruction, work_of: Callable[[Computation], Operations]) -> Operations:
    try:
        return work_of_instruction(one, work_of)
    except (IndexError, ValueError, KeyError):  # attributes that do not fit the operands
        return UNKNOWN


@lru_cache(maxsize=65536)
def _shape_features(shape: Shape) -> Float32s:
    if shape.is_tuple:  # the first array stands for what a tuple holds, its sizes for all of it
        leaves = [leaf for leaf in shape.leaves() if leaf.is_array]
        row = _shape_features(leaves[0]).copy() if leaves else np.zeros(_SHAPE_END, np.float32)
        row[COLUMN_OF["elements"]] = number(sum(leaf.elements for leaf in leaves))
        row[COLUMN_OF["size_bytes"]] = number(sum(leaf.size_bytes for leaf in leaves))
        return row
    kind, dims, order = shape.element_type, shape.dims, memory_order(shape)
    element_bytes = shape.size_bytes / shape.elements if shape.elements else 0
    minor = [dims[dim] for dim in order if dim < len(dims)] + [1, 1]
    values = [
        float(shape.is_array and kind not in INTEGER_TYPES | _COMPLEX and kind != 1),
        float(kind in INTEGER_TYPES),
        float(kind == 1),
        float(kind in _COMPLEX),
        element_bytes,
        float(len(dims)),
        *cut(dims),
        number(sum(dims)),
        number(shape.elements),
        number(shape.size_bytes),
        *cut(order),
        number(minor[0]),
        number(minor[1]),
        number(minor[0] * element_bytes),
    ]
    return np.array(values, np.float32)


_TRANSCENDENTAL_KINDS = {
    "exponential": ("exponential", "exponential-minus-one", "logistic"),
    "log": ("log", "log-plus-one"),
    "tanh": ("tanh", "erf"),
    "power": ("power",),
    "root": ("sqrt", "rsqrt", "cbrt"),
    "angle": ("sine", "cosine", "tan", "atan2"),
}
_KIND_OF = {opcode: kind for kind, opcodes in _TRANSCENDENTAL_KINDS.items() for opcode in opcodes}
_COSTLY = {
    "is_division": "divisions",
    "is_integer_division": "integer_divisions",
    "is_comparison": "comparisons",
    "is_select": "selects",
    "is_conversion": "conversions",
}
_CLASSES = ("elementwise", "transcendental", "movement", "reducing", "matrix", "convolution", "indexed", "other")

SURROUNDING_NAMES = (*ACCESS_NAMES, *LOCALITY_NAMES)
"""Of a kernel's features those that learned models alone are fed with: dear to compute."""

KERNEL_FEATURE_NAMES: tuple[str, ...] = (
    # operations
    *("flop", "matrix_flop", "reduce_flop", "elementwise_flop", "transcendentals"),
    *(f"transcendentals_{kind}" for kind in _TRANSCENDENTAL_KINDS),
    *_COSTLY.values(),
    # traffic and sizes
    *("bytes_read", "bytes_written", "working_set_bytes", "largest_operand_bytes", "output_bytes", "output_elements"),
    *("output_minor_size", "output_element_bytes", "largest_elements", "largest_intermediate_bytes"),
    *("intermediate_bytes", "strided_elements", "strided_bytes"),
    # shape of the graph
    *("nodes", "inputs", "outputs", "depth"),
    *(f"nodes_{name}" for name in _CLASSES),
    # the largest dot, convolution and reduction
    *("dot_batch", "dot_m", "dot_n", "dot_k", "dot_lhs_k_minor", "dot_rhs_k_minor"),
    *("conv_batch", "conv_in", "conv_out", "conv_groups", "conv_batch_groups", "conv_output_places"),
    *("conv_kernel_places", "window_stride_product", "window_base_dilation_product"),
    *("reduce_input_elements", "reduced_elements", "reduces_minor", "reduce_minor_size"),
    # sorted, gathered
    *("axis_size", "axis_is_minor", "indexed_elements", "index_count", "indexes_whole_minor"),
    # how it is run, what is not known
    *("is_fusion", "is_custom_fusion", "is_float64", "is_narrow", "unknown_nodes", "is_dynamic"),
    # how its loop reads, and where it stands in its program
    *SURROUNDING_NAMES,
)
"""Name of each entry of `kernel_features`; what counts operations counts those of one execution."""

KERNEL_COLUMN_OF = {name: place for place, name in enumerate(KERNEL_FEATURE_NAMES)}
"""Name → place."""

_FLAGS = frozenset({"dot_lhs_k_minor", "dot_rhs_k_minor", "reduces_minor", "axis_is_minor", "indexes_whole_minor"})
KERNEL_FLAGS = np.array([name.startswith("is_") or name in _FLAGS for name in KERNEL_FEATURE_NAMES])
"""Which entries are flags, 0 or 1; the others are sizes and counts."""


def kernel_row(
    instruction: Instruction,
    nodes: Nodes,
    rows: Float32s,
    work: list[Operations],
    *,
    surroundings: Sequence[float] = (),
) -> Float32s:
    """Features of a kernel.

    Args:
        instruction: that starts it.
        nodes: what stands inside.
        rows: their features, raw.
        work: their operations.
        surroundings: how its loop reads and where it stands in its program, `SURROUNDING_NAMES`; none: not known, 0.

    Returns:
        Shape [len(KERNEL_FEATURE_NAMES)], raw.
    """
    classes = [class_of(node.opcode) for node in nodes]
    columns = dict(zip(_READ, rows[:, _READ_AT].T.tolist(), strict=True))
    values: dict[str, float] = {f"nodes_{name}": classes.count(name) for name in _CLASSES}
    values |= _operations(nodes, columns, classes)
    values |= _traffic(instruction, nodes)
    values |= _sizes(nodes, columns, classes)
    values |= _largest(rows, columns, classes)
    values["is_fusion"] = instruction.opcode == "fusion"
    values["is_custom_fusion"] = instruction.proto.fusion_kind == "kCustom"
    values["unknown_nodes"] = sum([one.flop is None for one in work])
    bounds = any("<=" in node.shape.text for node in nodes)
    values["is_dynamic"] = bounds or any(columns["is_dynamic"])
    values |= zip(SURROUNDING_NAMES, surroundings, strict=bool(surroundings))
    return np.array([number(values.get(name, 0.0)) for name in KERNEL_FEATURE_NAMES], np.float32)


_READ = (
    *("elements", "size_bytes", "is_parameter", "is_output", "is_float", "element_bytes", "minor_size", "flop"),
    *("transcendentals", "input_elements", "moves_minor", "reduces_minor", "window_covers_minor", "is_dynamic"),
    *_COSTLY,
)
_READ_AT = [COLUMN_OF[name] for name in _READ]
Columns = dict[str, list[float]]
"""The columns of the nodes' rows that are read here, as lists: kernels are small, and arrays slow for a few entries."""


def class_of(opcode: str) -> str:
    """Which of a few classes an opcode belongs to."""
    return _CLASS_OF.get(opcode, "other")


_CLASS_OF = {
    **dict.fromkeys(ELEMENTWISE, "elementwise"),
    **dict.fromkeys(TRANSCENDENTAL, "transcendental"),
    **dict.fromkeys(MOVEMENT, "movement"),
    **dict.fromkeys(REDUCING, "reducing"),
    **dict.fromkeys(MATRIX, "matrix"),
    **dict.fromkeys(INDEXED, "indexed"),
    "convolution": "convolution",
}


def _operations(nodes: Nodes, columns: Columns, classes: list[str]) -> dict[str, float]:
    by_class = dict.fromkeys(_CLASSES, 0.0)
    by_kind = dict.fromkeys(_TRANSCENDENTAL_KINDS, 0.0)
    for name, operations in zip(classes, columns["flop"], strict=True):
        by_class[name] += operations
    for node, slow in zip(nodes, columns["transcendentals"], strict=True):
        kind = _KIND_OF.get(node.opcode)
        if kind is not None:
            by_kind[kind] += slow
    elements = columns["elements"]
    return {
        "flop": sum(columns["flop"]),
        "matrix_flop": by_class["matrix"] + by_class["convolution"],
        "reduce_flop": by_class["reducing"],
        "elementwise_flop": by_class["elementwise"],
        "transcendentals": sum(columns["transcendentals"]),
        **{f"transcendentals_{kind}": slow for kind, slow in by_kind.items()},
        **{
            target: sum([n for n, is_one in zip(elements, columns[flag], strict=True) if is_one])
            for flag, target in _COSTLY.items()
        },
    }


def _traffic(instruction: Instruction, nodes: Nodes) -> dict[str, float]:
    read, written = _bytes(instruction)
    read = max(read - _not_gathered(nodes), 0)
    operands = {id(operand): operand.shape for operand in instruction.operands}
    sizes = [sum([leaf.size_bytes for leaf in shape.leaves()]) for shape in operands.values()]
    output = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
    output_bytes = sum([leaf.size_bytes for leaf in output])
    return {
        "bytes_read": read,
        "bytes_written": written,
        "working_set_bytes": sum(sizes) + output_bytes,
        "largest_operand_bytes": max(sizes, default=0),
        "output_bytes": output_bytes,
        "output_elements": sum([leaf.elements for leaf in output]),
        "outputs": len(output),
        "inputs": len(operands),
        "nodes": len(nodes),
    }


def _not_gathered(nodes: Nodes) -> int:
    """Bytes of inputs that are counted as read whole though a gather takes a part: an embedding's table, above all."""
    readers: dict[int, list[tuple[int, int]]] = {}
    for consumer, node in enumerate(nodes):
        for place, operand in enumerate(node.operands):
            readers.setdefault(operand, []).append((consumer, place))
    left = 0
    for place, node in enumerate(nodes):
        of = readers.get(place, [])
        if node.opcode == "parameter" and node.instruction is not None and of:
            gathers = [nodes[consumer] for consumer, order in of if order == 0 and nodes[consumer].opcode == "gather"]
            taken = sum([gather.shape.size_bytes for gather in gathers])
            left += max(node.shape.size_bytes - taken, 0) if len(gathers) == len(of) else 0
    return left


def _bytes(instruction: Instruction) -> tuple[int, int]:
    def bytes_of(computation: Computation) -> int:
        return sum(bytes_of_instruction(one, bytes_of) for one in computation.instructions)

    try:
        both, written = bytes_of_instruction(instruction, bytes_of), bytes_written_by(instruction)
    except (IndexError, ValueError, RecursionError):  # attributes that do not fit: all of operands and result
        written = sum(leaf.size_bytes for leaf in instruction.shape.leaves())
        both = written + sum(operand.shape.size_bytes for operand in instruction.operands)
    return max(both - written, 0), written


def _sizes(nodes: Nodes, columns: Columns, classes: list[str]) -> dict[str, float]:
    elements, sizes = columns["elements"], columns["size_bytes"]
    places = range(len(nodes))
    inner = [sizes[one] for one in places if not columns["is_parameter"][one] and not columns["is_output"][one]]
    strided = [one for one in places if columns["moves_minor"][one] or _reduces_outer(classes[one], columns, one)]
    root = nodes[-1]
    output = root.operands[0] if root.opcode == "tuple" and root.operands else len(nodes) - 1
    widths = {width for width, is_float in zip(columns["element_bytes"], columns["is_float"], strict=True) if is_float}
    return {
        "output_minor_size": columns["minor_size"][output],
        "output_element_bytes": columns["element_bytes"][output],
        "largest_elements": max(elements),
        "largest_intermediate_bytes": max(inner, default=0.0),
        "intermediate_bytes": sum(inner),
        "strided_elements": sum([max(elements[one], columns["input_elements"][one]) for one in strided]),
        "strided_bytes": sum([sizes[one] for one in strided]),
        "depth": _depth(nodes),
        "is_float64": 8.0 in widths,
        "is_narrow": bool(widths) and min(widths) < 4,
    }


def _reduces_outer(name: str, columns: Columns, place: int) -> bool:
    """Whether a reduction leaves the innermost dimension alone, so that it strides through memory."""
    return name == "reducing" and not columns["reduces_minor"][place] and not columns["window_covers_minor"][place]


def _depth(nodes: Nodes) -> int:
    """Nodes on the longest way from an input to the root."""
    depth: list[int] = []
    for node in nodes:
        depth.append(1 + max([depth[place] for place in node.operands], default=0))
    return depth[-1]


_TAKEN = {
    "matrix": ("dot_batch", "dot_m", "dot_n", "dot_k", "dot_lhs_k_minor", "dot_rhs_k_minor"),
    "convolution": (
        *("conv_batch", "conv_in", "conv_out", "conv_groups", "conv_batch_groups", "conv_output_places"),
        *("conv_kernel_places", "window_stride_product", "window_base_dilation_product"),
    ),
    "indexed": ("indexed_elements", "index_count", "indexes_whole_minor"),
    "other": ("axis_size", "axis_is_minor"),
}


def _largest(rows: Float32s, columns: Columns, classes: list[str]) -> dict[str, float]:
    """Columns of the node of each class that does most: by its operations, then by what it reads."""
    flop, read = columns["flop"], columns["input_elements"]
    values: dict[str, float] = {}
    for name, taken in _TAKEN.items():
        of = [place for place, one in enumerate(classes) if one == name]
        if of:
            row = rows[max(of, key=lambda place: (flop[place], read[place]))].tolist()
            values |= {column: row[COLUMN_OF[column]] for column in taken}
    of = [place for place, one in enumerate(classes) if one == "reducing"]
    if of:
        largest = max(of, key=lambda place: read[place])
        row = rows[largest].tolist()
        values |= {
            "reduce_input_elements": read[largest],
            "reduced_elements": max(row[COLUMN_OF["reduced_elements"]], row[COLUMN_OF["window_size_product"]]),
            "reduces_minor": not _reduces_outer("reducing", columns, largest),
            "reduce_minor_size": columns["minor_size"][largest],
        }
    return values
