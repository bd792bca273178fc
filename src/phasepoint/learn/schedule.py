"""The order in which a computation's instructions run: the compiler's, or the one in which they stand."""

from collections.abc import Mapping

from phasepoint.sources.hlo_module import Computation, Instruction, Module
from phasepoint.sources.proto.schema import load_schema


def scheduled_instructions(module: Module) -> Mapping[Computation, tuple[Instruction, ...]]:
    """Instructions of each computation in the order in which they run.

    Where the schedule is missing, damaged or not of this module, they run as they stand, operands before users.
    """
    from google.protobuf.message import DecodeError

    proto = load_schema("hlo")["HloScheduleProto"]()
    try:
        proto.ParseFromString(module.schedule)
    except DecodeError:
        return {computation: computation.instructions for computation in module.computations}
    orders = [tuple(entry.sequence.instruction_ids) for entry in proto.sequences]
    by_members = {frozenset(order): order for order in orders}
    return {computation: _ordered(computation, by_members) for computation in module.computations}


def _ordered(computation: Computation, orders: Mapping[frozenset[int], tuple[int, ...]]) -> tuple[Instruction, ...]:
    """By the sequence that holds exactly its instructions: an instruction's id is of one computation alone."""
    by_id = {one.proto.id: one for one in computation.instructions}
    order = orders.get(frozenset(by_id))
    return computation.instructions if order is None else tuple(by_id[key] for key in order)
