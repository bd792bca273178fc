"""Category of every instruction of a module, from what stands inside the fusions and calls.

A fusion's name says little and its opcode nothing. The rule: what only names, counts or forwards values (parameters,
constants, tuples, bitcasts, iota) says nothing; a fusion that exchanges anything between devices is communication, else
one that computes anything (a conversion of types included) is compute, else it moves data. A call, loop or branch is
compute if anything in it computes, as it may hold a whole step; so is an asynchronous start.
"""

from phasepoint.sources.categories import category_of_opcode
from phasepoint.sources.hlo_module import Computation, Instruction, Module

_NEUTRAL = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "iota", "after-all"})
"""Opcodes that say nothing about what a fusion does: they name, count or forward values."""


WRAPPERS = frozenset({"fusion", "call", "async-start", "async-update", "async-done", "while", "conditional"})
"""Opcodes that are what stands inside them."""


def categories_of_module(module: Module) -> list[str]:
    """Category of each instruction of `module.computations`, in their order."""
    inside: dict[Computation, str | None] = {}
    categories = []
    for computation in module.computations:
        own = [_category_of_instruction(one, inside) for one in computation.instructions]
        inside[computation] = _foremost(set(own), ("communication", "compute", "data_movement"))
        opcodes = [one.opcode for one in computation.instructions]
        categories += [known or category_of_opcode(opcode) for known, opcode in zip(own, opcodes, strict=True)]
    return categories


def _category_of_instruction(one: Instruction, inside: dict[Computation, str | None]) -> str | None:
    """Category of an instruction, None for one that says nothing."""
    if one.opcode in _NEUTRAL:
        return None
    if one.opcode not in WRAPPERS or not one.called:
        return category_of_opcode(one.opcode)
    found = {inside[callee] for callee in one.called}
    if one.opcode == "fusion":
        return _foremost(found, ("communication", "compute")) or "data_movement"
    return _foremost(found, ("compute", "communication")) or "data_movement"


def _foremost(found: set[str | None], order: tuple[str, ...]) -> str | None:
    return next((category for category in order if category in found), None)
