"""Features of a kernel's nodes: one row of numbers for each value."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from phasepoint.core.arrays import Float32s
from phasepoint.hlo.module import Computation, Instruction
from phasepoint.hlo.shapes import Shape
from phasepoint.hlo.work import NONE, UNKNOWN, Work, work_of_instruction
from phasepoint.learn.hlo_graph.kernels import KernelNode, Nodes
from phasepoint.learn.hlo_graph.node_rules import (
    COLUMN_OF,
    INTEGER_TYPES,
    NODE_FEATURE_NAMES,
    RULES,
    Rule,
    cut,
    memory_order,
    number,
)

_SHAPE_END, _USE_START, _USE_END = COLUMN_OF["is_root"], COLUMN_OF["is_root"], COLUMN_OF["applied_flop"]
_COMPLEX = frozenset({15, 18})


def node_rows(nodes: Nodes, work: list[Work]) -> Float32s:
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


def work_of_nodes(nodes: Nodes) -> list[Work]:
    """Operations of each node; None in it where they cannot be known."""
    known: dict[Computation, Work] = {}

    def work_of(computation: Computation) -> Work:
        if computation not in known:
            known[computation] = NONE  # whoever meets it again while it is counted closes a circle
            parts = [_work(one, work_of) for one in computation.instructions]
            known[computation] = Work(
                sum([part.flop or 0 for part in parts]), sum([part.transcendentals or 0 for part in parts])
            )
        return known[computation]

    return [NONE if node.instruction is None else _work(node.instruction, work_of) for node in nodes]


def _work(one: Instruction, work_of: Callable[[Computation], Work]) -> Work:
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
