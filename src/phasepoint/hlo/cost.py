"""Cost of every instruction of a module: operations and bytes, with a note of what they leave out."""

from dataclasses import dataclass

from phasepoint.hlo.module import Computation, Instruction, Module
from phasepoint.hlo.traffic import bytes_of_instruction
from phasepoint.hlo.work import UNKNOWN, Operations, trip_count, work_of_instruction

MOST = 2**63 - 1
"""Largest count that a table can hold; a module that claims more is damaged."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one execution of an instruction, a computation or a program.

    Attributes:
        flop: floating-point operations, None where unknown.
        bytes: bytes read and written, None where unknown.
        transcendentals: transcendental operations, None where unknown.
    """

    flop: int | None
    bytes: int | None
    transcendentals: int | None


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """Costs of a module.

    Attributes:
        total: one execution of the entry computation, of what is known.
        instructions: cost of each instruction of `module.computations`, in their order.
        notes: what the total leaves out, in words.
    """

    total: Cost
    instructions: tuple[Cost, ...]
    notes: tuple[str, ...]


def cost_of_module(module: Module) -> ModuleCost:
    """Cost of every instruction and of one execution of the program.

    An instruction's cost holds that of all it calls: a fusion its body, a `while` its body times the known trip count.
    Totals add up what is known; `notes` names the instructions of the running part whose cost is not.
    """
    totals: dict[Computation, Cost] = {}

    def work_of(computation: Computation) -> Operations:
        total = totals[computation]
        return Operations(total.flop, total.transcendentals)

    def bytes_of(computation: Computation) -> int:
        return totals[computation].bytes or 0

    costs: list[Cost] = []
    for computation in module.computations:
        own = []
        for instruction in computation.instructions:
            try:
                work = work_of_instruction(instruction, work_of)
                size = bytes_of_instruction(instruction, bytes_of)
            except (IndexError, ValueError):  # attributes that do not fit the operands: noted below as unknown
                work, size = UNKNOWN, None
            own.append(_bounded(Cost(work.flop, size, work.transcendentals)))
        totals[computation] = _sum(own)
        costs += own
    return ModuleCost(totals[module.entry], tuple(costs), _notes(module, costs))


def _bounded(cost: Cost) -> Cost:
    flop, size, transcendentals = (
        None if count is None or not 0 <= count <= MOST else count
        for count in (cost.flop, cost.bytes, cost.transcendentals)
    )
    return Cost(flop, size, transcendentals)


def _sum(costs: list[Cost]) -> Cost:
    return _bounded(
        Cost(
            sum(cost.flop or 0 for cost in costs),
            sum(cost.bytes or 0 for cost in costs),
            sum(cost.transcendentals or 0 for cost in costs),
        )
    )


def _notes(module: Module, costs: list[Cost]) -> tuple[str, ...]:
    """One sentence for each kind of thing left out, with how often it occurs."""
    counts: dict[str, int] = {}
    instructions = (one for computation in module.computations for one in computation.instructions)
    for instruction, cost in zip(instructions, costs, strict=True):
        if reason := _unknown_of(instruction, cost):
            counts[reason] = counts.get(reason, 0) + 1
    return tuple(f"{reason} ({count})" if count > 1 else reason for reason, count in sorted(counts.items()))


def _unknown_of(instruction: Instruction, cost: Cost) -> str | None:
    if instruction.opcode == "while" and trip_count(instruction) is None:
        return "a while loop with unknown trip count is counted as one iteration"
    if cost.flop is not None and cost.bytes is not None and cost.transcendentals is not None:
        return None
    if instruction.opcode == "custom-call":
        return f"operations of custom call {instruction.proto.custom_call_target!r} are not known"
    return f"cost of {instruction.opcode} is not known"
