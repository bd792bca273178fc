"""Which category an operation's time belongs to: by HLO opcode, or by its name where the opcode is not known.

Source of the opcodes: openxla/xla, `xla/hlo/ir/hlo_opcode.h` (November 2026). The split follows the tables of a run:
communication is what devices exchange with each other, data movement is bytes that change place, shape or layout
and nothing else, everything that computes a value is compute.

Category of every instruction of a module, from what stands inside the fusions and calls.

A fusion's name says little and its opcode nothing. The rule: what only names, counts or forwards values (parameters,
constants, tuples, bitcasts, iota) says nothing; a fusion that exchanges anything between devices is communication, else
one that computes anything (a conversion of types included) is compute, else it moves data. A call, loop or branch is
compute if anything in it computes, as it may hold a whole step; so is an asynchronous start.
"""

import re
from functools import cache

from phasepoint.hlo.module import Computation, Instruction, Module

COMMUNICATION_OPCODES = frozenset(
    {"all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "partition-id"}
    | {"ragged-all-to-all", "recv", "reduce-scatter", "replica-id", "send"}
)

DATA_MOVEMENT_OPCODES = frozenset(
    {"bitcast", "bitcast-convert", "broadcast", "concatenate", "copy", "dynamic-reshape", "dynamic-slice"}
    | {"dynamic-update-slice", "gather", "get-tuple-element", "infeed", "outfeed", "pad", "parameter", "constant"}
    | {"reshape", "reverse", "slice", "transpose", "tuple", "add-dependency", "optimization-barrier", "after-all"}
    | {"set-dimension-size", "get-dimension-size"}
)

_ASYNC_SUFFIX = re.compile(r"-(start|update|done)$")
_COPY_SUFFIX = re.compile(r"[._](\d+|clone|remat\d*|sunk|cloned)$")
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")

_NAME_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "communication",
        (
            "allgather",
            "allreduce",
            "alltoall",
            "broadcastring",
            "collectivebroadcast",
            "collectivepermute",
            "deepep",
            "ncclkernel",
            "nccldev",
            "ncclsymk",
            "raggedalltoall",
            "rcclgeneric",
            "reducescatter",
            "sendrecv",
        ),
    ),
    (
        "data_movement",
        ("memcpy", "memset", "infeed", "outfeed", "copybuffer", "fillbuffer", "copydeviceto", "copyhostto"),
    ),
)
"""Squeezed name (letters only, lower case) → category, for kernels and runtime calls that have no HLO opcode."""


@cache
def category_of_opcode(opcode: str) -> str:
    """Category of an HLO opcode, as HLO text writes it: `"all-reduce-start"` → `"communication"`.

    An asynchronous half (`-start`, `-update`, `-done`) has the category of its operation. A fusion, a call or a custom
    call is `"compute"` here; whoever knows what stands inside decides better.

    Args:
        opcode: HLO opcode: `dot`, `fusion`, `copy-start`.

    Returns:
        One of `compute`, `communication`, `data_movement`.
    """
    plain = _ASYNC_SUFFIX.sub("", opcode)
    if plain in COMMUNICATION_OPCODES:
        return "communication"
    if plain in DATA_MOVEMENT_OPCODES:
        return "data_movement"
    return "compute"


@cache
def category_of_name(name: str) -> str:
    """Category of an op known by its name alone: an HLO instruction of an unknown program, a kernel, a copy.

    `"%all-reduce-start.12"` → `"communication"`, `"copy_bitcast_fusion.3"` → `"data_movement"`,
    `"MemcpyH2D"` → `"data_movement"`, `"ncclDevKernel_AllReduce_Sum"` → `"communication"`.
    A fusion named after several opcodes moves data only if every opcode in its name does.

    Args:
        name: name as the profiler gave it.

    Returns:
        One of `compute`, `communication`, `data_movement`.
    """
    plain = strip_clone_suffix(name).removeprefix("wrapped_")
    by_opcode = category_of_opcode(plain)
    if by_opcode != "compute":
        return by_opcode
    squeezed = re.sub(r"[^a-z]", "", plain.lower())
    for category, words in _NAME_RULES:
        if any(word in squeezed for word in words):
            return category
    return _category_of_fusion_name(plain)


@cache
def strip_clone_suffix(name: str) -> str:
    """An instruction's name without `%` and without the numbers XLA appends: `"%copy.12.clone"` → `"copy"`."""
    plain = name.removeprefix("%")
    while (shorter := _COPY_SUFFIX.sub("", plain)) != plain:
        plain = shorter
    return plain


def _category_of_fusion_name(plain: str) -> str:
    """XLA names a fusion after its opcodes: `copy_bitcast_fusion`; all must move data for the fusion to."""
    head, fusion, _ = plain.partition("_fusion")
    if not fusion:
        return "compute"
    words = [word for word in head.split("_") if _WORD.fullmatch(word)]
    if words and all(category_of_opcode(word) == "data_movement" for word in words):
        return "data_movement"
    return "compute"


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
