"""Bytes that each HLO opcode reads and writes in one execution.

The rule is operands plus result; what only forwards a pointer touches nothing, and what reads or writes a part of a
buffer counts the part. Intermediate values inside a fusion never reach memory. The exceptions follow XLA's
`HloCostAnalysis` (openxla/xla, `xla/service/hlo_cost_analysis.cc`).
"""

from collections.abc import Callable

from phasepoint.hlo.module import Computation, Instruction
from phasepoint.hlo.shapes import Shape
from phasepoint.hlo.work import trip_count

IMMEDIATE_CONSTANT_ELEMENTS = 8
"""A constant inside a fusion with more elements than this is read from memory (`immediate_constant_max_elements`)."""

MAX_NESTED_FUSIONS = 3
"""How deep a value is followed into fusions inside fusions; further down all of it counts as read."""

BytesOf = Callable[[Computation], int]
"""Bytes of one execution of a computation."""

_FREE = frozenset({"parameter", "constant", "get-tuple-element", "bitcast", "domain", "after-all", "add-dependency"})


def bytes_of_instruction(instruction: Instruction, bytes_of: BytesOf) -> int:
    """Bytes read and written by one execution of an instruction, of all that it calls included.

    Args:
        instruction: the instruction.
        bytes_of: bytes of the computations it calls.
    """
    if instruction.opcode in _FREE:
        return 0
    rule = _RULES.get(instruction.opcode)
    return rule(instruction, bytes_of) if rule else _operands_and_result(instruction)


def bytes_written_by(instruction: Instruction) -> int:
    """Bytes that one execution of a kernel writes; the rest of `bytes_of_instruction` is read.

    Args:
        instruction: a fusion or an instruction that calls no computation of its own size.
    """
    if instruction.opcode in _FREE:
        return 0
    if instruction.opcode == "fusion" and instruction.called:
        return _written_by_fusion(instruction.shape, instruction.called[0].root)
    if instruction.opcode == "dynamic-update-slice":
        return _size_of_operand(instruction, 1)
    if instruction.opcode == "scatter":
        return sum(operand.shape.size_bytes for operand in instruction.operands[len(instruction.operands) // 2 + 1 :])
    return 0 if instruction.opcode == "outfeed" else _leaf_bytes(instruction.shape)


def _operands_and_result(instruction: Instruction) -> int:
    return _leaf_bytes(instruction.shape) + sum(operand.shape.size_bytes for operand in instruction.operands)


def _leaf_bytes(shape: Shape) -> int:
    return sum(leaf.size_bytes for leaf in shape.leaves())


def _slice(instruction: Instruction, _: BytesOf) -> int:
    return 2 * instruction.shape.size_bytes


def _dynamic_slice(instruction: Instruction, _: BytesOf) -> int:
    return 2 * instruction.shape.size_bytes + _size_of_operand(instruction, 1)


def _dynamic_update_slice(instruction: Instruction, _: BytesOf) -> int:
    """The rest of the buffer stays where it is: the result takes the place of the first operand."""
    return 2 * instruction.operands[1].shape.size_bytes + _size_of_operand(instruction, 2)


def _size_of_operand(instruction: Instruction, place: int) -> int:
    return instruction.operands[place].shape.size_bytes if place < len(instruction.operands) else 0


def _tuple(instruction: Instruction, _: BytesOf) -> int:
    return instruction.shape.size_bytes


def _transpose(instruction: Instruction, _: BytesOf) -> int:
    """A transpose that only renames dimensions of the same memory is a bitcast."""
    source, result = instruction.operands[0].shape, instruction.shape
    dimensions = instruction.proto.dimensions
    renamed = tuple(dimensions[dim] for dim in result.minor_to_major)
    return 0 if renamed == source.minor_to_major else _operands_and_result(instruction)


def _gather(instruction: Instruction, _: BytesOf) -> int:
    return 2 * instruction.shape.size_bytes + instruction.operands[1].shape.size_bytes


def _scatter(instruction: Instruction, _: BytesOf) -> int:
    """Each update is read, its place read and written; then the indices."""
    inputs = len(instruction.operands) // 2
    updates = sum(operand.shape.size_bytes for operand in instruction.operands[inputs + 1 :])
    return 3 * updates + instruction.operands[inputs].shape.size_bytes


def _infeed(instruction: Instruction, _: BytesOf) -> int:
    return _leaf_bytes(instruction.shape)


def _outfeed(instruction: Instruction, _: BytesOf) -> int:
    return sum(_leaf_bytes(operand.shape) for operand in instruction.operands)


def _cholesky(instruction: Instruction, _: BytesOf) -> int:
    """Half of the operand is read, half of the result is written."""
    return instruction.operands[0].shape.size_bytes


def _triangular_solve(instruction: Instruction, _: BytesOf) -> int:
    a, b = (operand.shape.size_bytes for operand in instruction.operands[:2])
    return instruction.shape.size_bytes + a // 2 + b


def _called_once(instruction: Instruction, bytes_of: BytesOf) -> int:
    return bytes_of(instruction.called[0]) if instruction.called else _operands_and_result(instruction)


def _while(instruction: Instruction, bytes_of: BytesOf) -> int:
    body, condition = (bytes_of(called) for called in instruction.called[:2])
    trips = trip_count(instruction)
    return body + condition if trips is None else trips * body + (trips + 1) * condition


def _conditional(instruction: Instruction, bytes_of: BytesOf) -> int:
    return max((bytes_of(branch) for branch in instruction.called), default=0)


def _fusion(instruction: Instruction, _: BytesOf) -> int:
    if not instruction.called:
        return _operands_and_result(instruction)
    body = instruction.called[0]
    written = _written_by_fusion(instruction.shape, body.root)
    users = _users(body)
    read = 0
    for inner in body.instructions:
        if inner.opcode == "parameter":
            read += _read_of_parameter(inner, users)
        elif inner.opcode == "constant" and inner.shape.elements > IMMEDIATE_CONSTANT_ELEMENTS:
            read += inner.shape.size_bytes
    return written + read


def _written_by_fusion(shape: Shape, root: Instruction) -> int:
    """Arrays of the result; one that is updated in place counts the update alone."""
    if root.opcode == "tuple" and shape.is_tuple:
        return sum(_written_by_fusion(part, value) for part, value in zip(shape.parts, root.operands, strict=False))
    if root.opcode == "dynamic-update-slice":
        return root.operands[1].shape.size_bytes
    return sum(leaf.size_bytes for leaf in shape.leaves() if leaf.is_array)


Users = dict[int, list[Instruction]]
"""Who reads a value, by the identity of the instruction that makes it; once for each reader."""


def _users(body: Computation) -> Users:
    users: Users = {}
    for inner in body.instructions:
        for operand in dict.fromkeys(map(id, inner.operands)):
            users.setdefault(operand, []).append(inner)
    return users


def _read_of_parameter(value: Instruction, users: Users, depth: int = 0) -> int:
    """Bytes of a fusion's input that are read: a slice reads its part, all others share one reading of the whole."""
    if value.shape.is_tuple:
        readers = [user for user in users.get(id(value), []) if user.opcode == "get-tuple-element"]
        return sum(_read_of_parameter(reader, users, depth) for reader in readers)
    size = 0
    whole = False
    for user in users.get(id(value), []):
        if user.opcode == "slice" or (user.opcode == "dynamic-slice" and user.operands[0] is value):
            size += user.shape.size_bytes
        elif user.opcode == "fusion":
            size += _read_by_nested_fusion(value, user, depth + 1)
        elif user.opcode in ("broadcast", "reshape"):
            size += value.shape.size_bytes
        elif user.opcode == "dynamic-update-slice" and user.operands[0] is value:
            continue
        elif not whole:
            whole = True
            size += value.shape.size_bytes
    return size


def _read_by_nested_fusion(value: Instruction, fusion: Instruction, depth: int) -> int:
    if not fusion.called or depth > MAX_NESTED_FUSIONS:
        return value.shape.size_bytes
    body = fusion.called[0]
    users = _users(body)
    return sum(
        _read_of_parameter(inner, users, depth)
        for inner in body.instructions
        if inner.opcode == "parameter" and fusion.operands[inner.proto.parameter_number] is value
    )


_RULES: dict[str, Callable[[Instruction, BytesOf], int]] = {
    "async-start": _called_once,
    "call": _called_once,
    "cholesky": _cholesky,
    "conditional": _conditional,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "fusion": _fusion,
    "gather": _gather,
    "infeed": _infeed,
    "outfeed": _outfeed,
    "scatter": _scatter,
    "slice": _slice,
    "transpose": _transpose,
    "triangular-solve": _triangular_solve,
    "tuple": _tuple,
    "while": _while,
}
