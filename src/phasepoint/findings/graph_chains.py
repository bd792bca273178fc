"""Elementwise instructions of a program that read what another one wrote: bytes that one fusion would not move."""

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.core.shape_text import parse_array
from phasepoint.findings.device_ops import DeviceOps, read_device_ops
from phasepoint.findings.element_chains import LEAST_OP_PS
from phasepoint.findings.elementwise import CHEAP, class_of_instruction
from phasepoint.findings.program_graphs import Graph, Node, read_graphs
from phasepoint.findings.view import FindingsView

_PASSING = frozenset({"bitcast", "optimization-barrier", "opt-barrier"})


def needless_time(view: FindingsView) -> Floats:
    """`[n]` of each row of the devices' ops the time that goes with bytes which a fusion would not move.

    What is written once and read by elementwise instructions alone need not be written, nor read. An instruction's time
    is taken to go with its bytes; one that may be bound by its arithmetic counts at most at the rate of the others.
    """
    ops = view.once(read_device_ops)
    share = np.zeros(len(ops.kinds))
    per_op = ops.of_kinds(ops.self_ps) / np.maximum(ops.of_kinds(ops.count), 1)
    for key, graph in view.once(read_graphs).items():
        of_program = [i for i, kind in enumerate(ops.kinds) if (kind.host, kind.attempt, kind.program) == key]
        for i, ratio in _shares(graph, ops, of_program, per_op).items():
            share[i] = ratio
    return np.asarray(share[ops.kind] * ops.self_ps, np.float64)


def _shares(graph: Graph, ops: DeviceOps, kinds: list[int], per_op: Floats) -> dict[int, float]:
    """By op of the program, the share of its time that goes with needless bytes."""
    ran = {ops.kinds[i].op: i for i in kinds if per_op[i] >= LEAST_OP_PS}
    classes = {op: class_of_instruction(graph, graph.nodes[op]) for op in ran if op in graph.nodes}
    saved = _needless_bytes(graph, {op for op, kind in classes.items() if kind})
    rates = [per_op[ran[op]] / (graph.nodes[op].bytes or 1) for op, kind in classes.items() if kind == CHEAP]
    if not rates:
        return {}
    usual = float(np.median(rates))
    shares = {}
    for op, size in saved.items():
        moved = graph.nodes[op].bytes or 0
        slow = 1.0 if classes[op] == CHEAP else min(usual * moved / per_op[ran[op]], 1.0)
        if moved:
            shares[ran[op]] = min(size / moved, 1.0) * slow
    return shares


def _needless_bytes(graph: Graph, elementwise: set[str]) -> dict[str, int]:
    """By instruction, the bytes that it writes for, or reads from, other elementwise ones alone."""
    saved: dict[str, int] = {}
    for body in graph.bodies.values():
        if not any(node.op in elementwise for node in body):
            continue
        readers = _readers(body)
        for node in body:
            if node.op not in elementwise or node.is_root:
                continue
            reading = readers.get(node.op, [])
            shape = parse_array(node.shape)
            if not reading or shape is None or not all(_fits(graph, op, elementwise, shape.elements) for op in reading):
                continue
            size = _written(node)
            for op in {node.op, *reading}:
                saved[op] = saved.get(op, 0) + size
    return saved


def _fits(graph: Graph, op: str, elementwise: set[str], elements: int) -> bool:
    shape = parse_array(graph.nodes[op].shape)
    return op in elementwise and shape is not None and shape.elements == elements


def _written(node: Node) -> int:
    """Bytes of the result, from its text: `f32[8,8]` → 256."""
    shape = parse_array(node.shape)
    bits = "".join(c for c in (shape.element_type if shape else "")[1:] if c.isdigit() or c == "e").partition("e")[0]
    return shape.elements * max(int(bits or 8), 8) // 8 if shape else 0


def _readers(body: tuple[Node, ...]) -> dict[str, list[str]]:
    """By instruction, those that read it, through what passes a value on."""
    passing = {node.op: node.operands[0] for node in body if node.opcode in _PASSING and len(node.operands) == 1}
    readers: dict[str, list[str]] = {}
    for node in body:
        if node.op in passing:
            if node.is_root:
                readers.setdefault(node.operands[0], []).append(node.op)
            continue
        for operand in node.operands:
            readers.setdefault(_origin(operand, passing), []).append(node.op)
    return readers


def _origin(op: str, passing: dict[str, str]) -> str:
    while op in passing:
        op = passing[op]
    return op
