"""Features of a whole kernel: its work, its traffic, what its largest pieces are. Raw numbers, named."""

import numpy as np
import numpy.typing as npt

from phasepoint.learn.kernel_nodes import Nodes
from phasepoint.learn.node_feature_names import COLUMN_OF
from phasepoint.learn.node_rules import Rows, number
from phasepoint.learn.opcodes import INDEXED, MATRIX, MOVEMENT, REDUCING
from phasepoint.sources.hlo_module import Computation, Instruction
from phasepoint.sources.hlo_traffic import bytes_of_instruction, bytes_written_by
from phasepoint.sources.hlo_work import ELEMENTWISE, TRANSCENDENTAL, Work

FloatRow = npt.NDArray[np.float32]

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
)
"""Name of each entry of `kernel_features`; what counts operations counts those of one execution."""

KERNEL_COLUMN_OF = {name: place for place, name in enumerate(KERNEL_FEATURE_NAMES)}
"""Name → place."""

_FLAGS = frozenset({"dot_lhs_k_minor", "dot_rhs_k_minor", "reduces_minor", "axis_is_minor", "indexes_whole_minor"})
KERNEL_FLAGS = np.array([name.startswith("is_") or name in _FLAGS for name in KERNEL_FEATURE_NAMES])
"""Which entries are flags, 0 or 1; the others are sizes and counts."""


def kernel_row(instruction: Instruction, nodes: Nodes, rows: Rows, work: list[Work]) -> FloatRow:
    """Features of a kernel.

    Args:
        instruction: that starts it.
        nodes: what stands inside.
        rows: their features, raw.
        work: their operations.

    Returns:
        Shape [len(KERNEL_FEATURE_NAMES)], raw.
    """
    classes = [class_of(node.opcode) for node in nodes]
    values: dict[str, float] = {f"nodes_{name}": classes.count(name) for name in _CLASSES}
    values |= _operations(nodes, rows, classes)
    values |= _traffic(instruction, nodes)
    values |= _sizes(nodes, rows, classes)
    values |= _largest(rows, classes)
    values["is_fusion"] = instruction.opcode == "fusion"
    values["is_custom_fusion"] = instruction.proto.fusion_kind == "kCustom"
    values["unknown_nodes"] = sum([one.flop is None for one in work])
    bounds = any("<=" in node.shape.text for node in nodes)
    values["is_dynamic"] = bounds or bool(rows[:, COLUMN_OF["is_dynamic"]].any())
    row = np.zeros(len(KERNEL_FEATURE_NAMES), np.float32)
    for name, value in values.items():
        row[KERNEL_COLUMN_OF[name]] = number(value)
    return row


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


def _operations(nodes: Nodes, rows: Rows, classes: list[str]) -> dict[str, float]:
    flop, transcendentals = (rows[:, COLUMN_OF[name]].astype(np.float64) for name in ("flop", "transcendentals"))
    by_class = dict.fromkeys(_CLASSES, 0.0)
    by_kind = {f"transcendentals_{kind}": 0.0 for kind in _TRANSCENDENTAL_KINDS}
    for node, name, operations, slow in zip(nodes, classes, flop.tolist(), transcendentals.tolist(), strict=True):
        by_class[name] += operations
        kind = _KIND_OF.get(node.opcode)
        if kind is not None:
            by_kind[f"transcendentals_{kind}"] += slow
    elements = rows[:, COLUMN_OF["elements"]].astype(np.float64)
    costly = {target: float(elements @ rows[:, COLUMN_OF[flag]]) for flag, target in _COSTLY.items()}
    return {
        "flop": float(flop.sum()),
        "matrix_flop": by_class["matrix"] + by_class["convolution"],
        "reduce_flop": by_class["reducing"],
        "elementwise_flop": by_class["elementwise"],
        "transcendentals": float(transcendentals.sum()),
        **by_kind,
        **costly,
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


def _sizes(nodes: Nodes, rows: Rows, classes: list[str]) -> dict[str, float]:
    elements, sizes = rows[:, COLUMN_OF["elements"]], rows[:, COLUMN_OF["size_bytes"]]
    inner = (rows[:, COLUMN_OF["is_parameter"]] == 0) & (rows[:, COLUMN_OF["is_output"]] == 0)
    out_of_order = (rows[:, COLUMN_OF["moves_minor"]] > 0) | (
        (rows[:, COLUMN_OF["reduces_minor"]] == 0) & (np.array(classes) == "reducing")
    )
    strided = np.maximum(elements, rows[:, COLUMN_OF["input_elements"]])[out_of_order]
    output = _first_output(nodes)
    floats = rows[:, COLUMN_OF["is_float"]] > 0
    widths = rows[floats, COLUMN_OF["element_bytes"]]
    return {
        "output_minor_size": float(rows[output, COLUMN_OF["minor_size"]]),
        "output_element_bytes": float(rows[output, COLUMN_OF["element_bytes"]]),
        "largest_elements": float(elements.max()),
        "largest_intermediate_bytes": float(sizes[inner].max(initial=0)),
        "intermediate_bytes": float(sizes[inner].astype(np.float64).sum()),
        "strided_elements": float(strided.astype(np.float64).sum()),
        "strided_bytes": float(sizes[out_of_order].astype(np.float64).sum()),
        "depth": _depth(nodes),
        "is_float64": bool((widths == 8).any()),
        "is_narrow": bool((widths < 4).any()),
    }


def _first_output(nodes: Nodes) -> int:
    root = nodes[-1]
    return root.operands[0] if root.opcode == "tuple" and root.operands else len(nodes) - 1


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


def _largest(rows: Rows, classes: list[str]) -> dict[str, float]:
    """Columns of the node of each class that does most: by its operations, then by what it reads."""
    weight = rows[:, COLUMN_OF["flop"]].astype(np.float64) * 1e3 + rows[:, COLUMN_OF["input_elements"]]
    values: dict[str, float] = {}
    for name, columns in _TAKEN.items():
        of = [place for place, one in enumerate(classes) if one == name]
        if of:
            row = rows[max(of, key=lambda place: weight[place])]
            values |= {column: float(row[COLUMN_OF[column]]) for column in columns}
    of = [place for place, one in enumerate(classes) if one == "reducing"]
    if of:
        row = rows[max(of, key=lambda place: rows[place, COLUMN_OF["input_elements"]])]
        taken = max(float(row[COLUMN_OF["reduced_elements"]]), float(row[COLUMN_OF["window_size_product"]]))
        values |= {
            "reduce_input_elements": float(row[COLUMN_OF["input_elements"]]),
            "reduced_elements": taken,
            "reduces_minor": float(row[COLUMN_OF["reduces_minor"]] or row[COLUMN_OF["window_covers_minor"]]),
            "reduce_minor_size": float(row[COLUMN_OF["minor_size"]]),
        }
    return values
