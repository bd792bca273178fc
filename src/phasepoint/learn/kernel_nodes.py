"""What stands inside a kernel: its instructions in an order that does not depend on names, and a fingerprint of it.

The order is that of a walk from the root: operands before users, the first operand first, parameters numbered as they
are met. Two kernels that compute the same have the same nodes, whatever their compiler called and numbered them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from phasepoint.sources.hlo_fingerprint import attributes_of, fingerprint_computation
from phasepoint.sources.hlo_module import Computation, Instruction
from phasepoint.sources.hlo_shapes import Shape
from phasepoint.sources.hlo_work import ELEMENTWISE, TRANSCENDENTAL

MOST_NODES = 4096
"""Instructions of nested fusions beyond which they are left closed; fusions hold tens, rarely hundreds."""

_PLAIN = (ELEMENTWISE | TRANSCENDENTAL | {"parameter", "constant", "bitcast", "copy", "tuple"}) - {
    "compare",
    "reduce-precision",
}
"""Opcodes whose attributes say nothing about their cost: shapes and operands are all there is. Values of constants
count among those."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelNode:
    """A value inside a kernel.

    Attributes:
        opcode: as HLO text writes it; what a kernel reads is `parameter`, whoever made it.
        shape: of the value.
        instruction: where its attributes are; None for what stands outside the kernel.
        operands: places of the nodes it reads, each below its own.
    """

    opcode: str
    shape: Shape
    instruction: Instruction | None
    operands: tuple[int, ...]


Nodes = tuple[KernelNode, ...]


def nodes_of_kernel(instruction: Instruction) -> Nodes:
    """The values that an instruction computes, root last: a fusion's body, or the instruction and what it reads.

    Fusions inside fusions are opened, up to `MOST_NODES`; what the root does not need is left out.
    """
    nodes: list[KernelNode] = []
    if instruction.opcode == "fusion" and instruction.called:
        _walk(instruction.called[0], nodes, {}, [MOST_NODES])
    else:
        places = {}
        for operand in instruction.operands:
            if id(operand) not in places:
                places[id(operand)] = len(nodes)
                nodes.append(KernelNode("parameter", operand.shape, None, ()))
        read = tuple([places[id(operand)] for operand in instruction.operands])
        nodes.append(KernelNode(instruction.opcode, instruction.shape, instruction, read))
    return tuple(nodes)


def _walk(body: Computation, nodes: list[KernelNode], inputs: Mapping[int, int], left: list[int]) -> int:
    """Append what the root of a body needs; the place of the root.

    Args:
        body: the computation.
        nodes: what is there already.
        inputs: places of the body's parameters by number, where they stand outside; others become nodes.
        left: how many more instructions of nested fusions may be opened; a damaged module nests them without end.
    """
    places: dict[int, int] = {}
    stack = [(body.root, False)]
    while stack:
        one, ready = stack.pop()
        if id(one) in places:
            continue
        if not ready and one.operands:
            stack.append((one, True))
            stack += [(operand, False) for operand in reversed(one.operands) if id(operand) not in places]
            continue
        read = tuple([places[id(operand)] for operand in one.operands])
        if one.opcode == "parameter" and one.proto.parameter_number in inputs:
            places[id(one)] = inputs[one.proto.parameter_number]
        elif one.opcode == "fusion" and one.called and len(one.called[0].instructions) <= left[0]:
            left[0] -= len(one.called[0].instructions)
            places[id(one)] = _walk(one.called[0], nodes, dict(enumerate(read)), left)
        else:
            places[id(one)] = len(nodes)
            nodes.append(KernelNode(one.opcode, one.shape, one, read))
    return places[id(body.root)]


def fingerprint_of_nodes(nodes: Nodes, *, marks: str = "") -> str:
    """Hash of opcodes, shapes with layouts, attributes and edges; 32 hexadecimal digits.

    Names, source lines and the values of constants are left out: they do not change how long a kernel takes.

    Args:
        nodes: of a kernel.
        marks: what else tells it from others: how a fusion is run, what a custom call calls.
    """
    digest = hashlib.blake2b(marks.encode(), digest_size=16)
    for node in nodes:
        digest.update(f"{node.opcode} {node.shape.text} {node.operands}\n".encode())
        if node.instruction is not None and node.opcode not in _PLAIN:
            digest.update(attributes_of(node.instruction))
            for called in node.instruction.called:
                digest.update(fingerprint_computation(called).encode())
    return digest.hexdigest()
