"""Kernels of a program: what a device starts as one piece, how often, and which of them are the same.

What stands inside a kernel: its instructions in an order that does not depend on names, and a fingerprint of it.

The order is that of a walk from the root: operands before users, the first operand first, parameters numbered as they
are met. Two kernels that compute the same have the same nodes, whatever their compiler called and numbered them.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from phasepoint.hlo.cost import MOST
from phasepoint.hlo.fingerprint import attributes_of, fingerprint_computation
from phasepoint.hlo.module import Computation, Instruction, Module
from phasepoint.hlo.shapes import Shape
from phasepoint.hlo.work import ANNOTATIONS, ELEMENTWISE, TRANSCENDENTAL, trip_count
from phasepoint.learn.hlo_graph.locality import ENTERED, UNPLACED, localities_of_module

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


RUNS_NOTHING = frozenset(
    {"add-dependency", "after-all", "bitcast", "constant", "domain", "get-dimension-size", "get-tuple-element"}
    | {"opt-barrier", "parameter", "partition-id", "replica-id", "tuple", "async-update", "async-done"}
    | {f"{name}-done" for name in ("all-gather", "all-reduce", "collective-permute", "copy", "recv", "send")}
)
"""Opcodes that name, count or forward values, or wait for what was started before."""


@dataclass(frozen=True)
class Kernel:
    """A piece that a device starts.

    Attributes:
        name: the instruction's name, which traces call `hlo_op`.
        opcode: of the instruction.
        instruction: where shapes and attributes are.
        computation: that the instruction stands in.
        executions: per execution of the program; None where the compiler does not know.
        fingerprint: of what it computes: opcodes, shapes, layouts, attributes; no names, no values of constants.
        notes: what is not known about it.
        nodes: the values that it computes, root last.
        localities: finds where operands and results lie when they run, `LOCALITY_NAMES` by instruction: a program is
            walked through for it, so it is asked where that counts; None outside a program.
    """

    name: str
    opcode: str
    instruction: Instruction
    computation: Computation = field(repr=False)
    executions: int | None
    fingerprint: str
    notes: tuple[str, ...] = ()
    nodes: Nodes = field(default=(), repr=False, compare=False)
    localities: Callable[[], Mapping[Instruction, tuple[float, ...]]] | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def locality(self) -> tuple[float, ...]:
        """Where its operands and results lie when it runs, `LOCALITY_NAMES`."""
        return UNPLACED if self.localities is None else self.localities().get(self.instruction, UNPLACED)


@dataclass(frozen=True)
class Kernels:
    """Kernels of one program, in the order in which it holds them, and what is not known about the program."""

    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...]


def kernels_of_module(module: Module) -> Kernels:
    """The kernels of a program with the number of their executions.

    Fusions, single instructions, copies and custom calls are kernels. Bodies of loops, branches and calls are entered:
    a loop's body runs as often as its trip count says, its condition once more, a branch an unknown number of times.
    A computation that is called from several places runs as often as all of them together.
    """
    notes: dict[str, None] = {}
    counts, reasons = _executions(module, notes)
    localities = cache(partial(localities_of_module, module, counts))
    kernels = []
    for computation in module.computations:
        if computation not in counts:
            continue
        why_unknown = (reasons[computation],) if computation in reasons else ()
        for one in computation.instructions:
            if _is_kernel(one):
                nodes = nodes_of_kernel(one)
                fingerprint = fingerprint_of_nodes(nodes, marks=_marks(one))
                kernels.append(
                    Kernel(
                        one.name,
                        one.opcode,
                        one,
                        computation,
                        counts[computation],
                        fingerprint,
                        why_unknown,
                        nodes,
                        localities,
                    )
                )
    if not kernels:
        notes[f"program {module.name!r} starts no kernel"] = None
    return Kernels(tuple(kernels), tuple(notes))


def _is_kernel(one: Instruction) -> bool:
    """Whether an instruction runs something itself."""
    if one.opcode in RUNS_NOTHING or (one.opcode in ENTERED and one.called):
        return False
    return one.opcode != "custom-call" or one.proto.custom_call_target not in ANNOTATIONS


def _marks(one: Instruction) -> str:
    if one.opcode == "fusion":
        return str(one.proto.fusion_kind)
    if one.opcode == "custom-call":  # what a library's call does stands in its configuration alone
        return f"{one.proto.custom_call_target} {one.proto.backend_config.hex()}"
    return ""


def _executions(module: Module, notes: dict[str, None]) -> tuple[dict[Computation, int | None], dict[Computation, str]]:
    """Executions of the computations that run as such, callers before callees, and why a number is unknown."""
    counts: dict[Computation, int | None] = {module.entry: 1}
    reasons: dict[Computation, str] = {}
    for computation in reversed(module.computations):
        if computation not in counts:
            continue
        for one in computation.instructions:
            if one.opcode not in ENTERED:
                continue
            reason = _unknown_executions(one) or reasons.get(computation)
            for callee, times in zip(one.called, _times(one), strict=True):
                counts[callee] = _sum(counts.get(callee, 0), counts[computation], times)
                if counts[callee] is None and reason:
                    reasons[callee] = reason
                    notes[reason] = None
    return counts, reasons


def _sum(before: int | None, own: int | None, times: int | None) -> int | None:
    """before + own × times; None where one is unknown, or beyond what a table can hold, as in a damaged module."""
    if before is None or own is None or times is None:
        return None
    count = before + own * times
    return count if 0 <= count <= MOST else None


def _times(one: Instruction) -> tuple[int | None, ...]:
    """How often each called computation runs in one execution of an instruction."""
    if one.opcode == "while":
        trips = trip_count(one)
        return (trips, None if trips is None else trips + 1, *([None] * len(one.called)))[: len(one.called)]
    if one.opcode == "conditional":
        return (None,) * len(one.called)
    return (1,) * len(one.called)


def _unknown_executions(one: Instruction) -> str | None:
    """Why it is not known how often an instruction's computations run; None where it is."""
    if one.opcode == "while" and trip_count(one) is None:
        return f"the compiler does not know how often loop {one.name} runs"
    return f"which branch of {one.name} runs is not known" if one.opcode == "conditional" else None
