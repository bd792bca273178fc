"""Fingerprint of a program: equal wherever the same instructions were compiled.

Names, ids, source lines and scopes are left out, as they change from process to process; so is the backend's
configuration, which holds tuning choices and addresses. Instructions are named by their place instead.
"""

import hashlib

from phasepoint.hlo.module import Computation, Instruction, Module
from phasepoint.hlo.schema import load_schema

_NAMED_BY_PLACE = (
    "name",
    "metadata",
    "id",
    "operand_ids",
    "called_computation_ids",
    "backend_config",
    "opcode",
    "shape",
)


def fingerprint_module(module: Module) -> str:
    """Hash over the canonical form of the computations that the entry reaches, 32 hexadecimal digits."""
    return fingerprint_computation(module.entry)


def fingerprint_computation(entry: Computation) -> str:
    """The same of a computation and all that it reaches."""
    order = _reached(entry)
    place_of = {computation: place for place, computation in enumerate(order)}
    digest = hashlib.blake2b(digest_size=16)
    for computation in order:
        digest.update(f"computation {len(computation.instructions)}\n".encode())
        places = {id(one): place for place, one in enumerate(computation.instructions)}
        for one in computation.instructions:
            operands = [places[id(operand)] for operand in one.operands]
            called = [place_of[callee] for callee in one.called]
            digest.update(f"{one.opcode} {one.shape.text} {operands} {called} ".encode())
            digest.update(attributes_of(one))
        digest.update(f"root {places[id(computation.root)]}\n".encode())
    return digest.hexdigest()


def attributes_of(instruction: Instruction) -> bytes:
    """What is left of the message once all that is named by place is gone; fields we do not declare are left out."""
    scratch = load_schema("hlo")["HloInstructionProto"]()
    scratch.CopyFrom(instruction.proto)
    for field in _NAMED_BY_PLACE:
        scratch.ClearField(field)
    scratch.DiscardUnknownFields()
    wire: bytes = scratch.SerializeToString(deterministic=True)
    return wire


def _reached(entry: Computation) -> list[Computation]:
    """Computations in the order in which a walk from the entry first meets them."""
    order: dict[Computation, None] = {}
    stack = [entry]
    while stack:
        computation = stack.pop()
        if computation in order:
            continue
        order[computation] = None
        stack += [callee for one in reversed(computation.instructions) for callee in reversed(one.called)]
    return list(order)
