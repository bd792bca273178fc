"""How often a `while` runs, where its counter shows it: it starts at a constant, grows by one, and is held against one.

The TPU's compiler leaves out the count that others write into the configuration of a loop.
"""

import json

from phasepoint.hlo.module import Instruction, decode_module, link_module
from phasepoint.hlo.schema import load_schema
from phasepoint.hlo.work import backend_config, trip_count

COUNTS_VERSION = 1
"""Of what `write_trip_counts` finds: programs that are kept with counts of another are counted anew."""

_COPIES = frozenset({"copy", "bitcast", "convert", "copy-done", "copy-start"})
"""Instructions that hand on a number as it is."""

_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def write_trip_counts(data: bytes) -> bytes:
    """The same serialised `HloModuleProto`, with the counts that its loops show, where none is written down;
    what else the compiler says of a loop stays.

    Raises:
        SourceError: it is no module.
    """
    proto = decode_module(data, "HloModuleProto")
    for computation in link_module(proto).computations:
        for one in computation.instructions:
            if one.opcode == "while" and trip_count(one) is None:
                said, trips = backend_config(one), counted_trips(one)
                if trips is not None and bool(said) == bool(one.proto.backend_config):
                    one.proto.backend_config = json.dumps({**said, "known_trip_count": {"n": str(trips)}}).encode()
    written: bytes = proto.SerializeToString()
    return written


def counted_trips(loop: Instruction) -> int | None:
    """Iterations of a `while` whose condition compares a counter with a constant; None of any other."""
    if len(loop.called) != 2 or not loop.operands:
        return None
    body, condition = loop.called
    compared = condition.root
    if compared.opcode != "compare" or len(compared.operands) != 2:
        return None
    direction, (left, right) = compared.proto.comparison_direction, compared.operands
    if _place(left) is None:
        direction, left, right = _FLIPPED.get(direction, ""), right, left
    place = _place(left)
    if place is None:
        return None
    limit = _number(right) if _place(right) is None else _kept(loop, body.root, _place(right))
    start, step = _number(_part(loop.operands[0], place)), _step(_part(body.root, place), place)
    if limit is None or start is None or not step:
        return None
    return _trips(direction, limit - start, step)


def _trips(direction: str, distance: int, step: int) -> int | None:
    """Steps until the condition no longer holds; None where it would hold for ever, or is of another kind."""
    if step < 0:
        direction, distance, step = _FLIPPED.get(direction, ""), -distance, -step
    if direction == "LT":
        return max(-(-distance // step), 0)
    if direction == "LE":
        return max(distance // step + 1, 0)
    if direction == "NE" and distance >= 0 and distance % step == 0:
        return distance // step
    never = {"GT": distance >= 0, "GE": distance > 0}
    return 0 if never.get(direction) else None


def _place(one: Instruction | None) -> int | None:
    """Which part of the loop's state this is; None where it is none."""
    one = _original(one)
    if one is None or one.opcode != "get-tuple-element" or one.operands[0].opcode != "parameter":
        return None
    return int(one.proto.tuple_index)


def _step(next_value: Instruction | None, place: int) -> int | None:
    """What the counter grows by in an iteration."""
    changed = _original(next_value)
    if changed is None or changed.opcode not in ("add", "subtract") or len(changed.operands) != 2:
        return None
    left, right = changed.operands
    if changed.opcode == "add" and _place(left) != place:
        left, right = right, left
    number = _number(right)
    if _place(left) != place or number is None:
        return None
    return number if changed.opcode == "add" else -number


def _kept(loop: Instruction, root: Instruction, place: int | None) -> int | None:
    """A number that the loop's state holds from its start to its end."""
    if place is None or _place(_part(root, place)) != place:
        return None
    return _number(_part(loop.operands[0], place))


def _part(whole: Instruction, place: int) -> Instruction | None:
    return whole.operands[place] if whole.opcode == "tuple" and place < len(whole.operands) else None


def _original(one: Instruction | None) -> Instruction | None:
    while one is not None and one.opcode in _COPIES and one.operands:
        one = one.operands[0]
    return one


def _number(one: Instruction | None) -> int | None:
    """The value of an integer constant."""
    one = _original(one)
    if one is None or one.opcode != "constant" or one.shape.dims or not one.proto.literal:
        return None
    literal = load_schema("hlo")["LiteralProto"].FromString(one.proto.literal)
    found = [*literal.s32s, *literal.s64s]
    return int(found[0]) if len(found) == 1 else None
