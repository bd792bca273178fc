"""What no method can know of a kernel, and what that does to its interval."""

from collections.abc import Callable
from dataclasses import dataclass

from phasepoint.learn.kernels import Kernel
from phasepoint.sources.hlo_work import Work, work_of_instruction

UNKNOWN_WORK_FACTOR = 10.0
"""How much longer a kernel may take whose arithmetic is not known and of which only the bytes are: the ridge of a
roofline, flop per byte, is 5 to 20 on the CPUs and 30 to 300 on the accelerators of `devices/specs.toml`; a library's
call is rarely right of it and never far left. An assumption, not a measurement."""

UNKNOWN_OPCODE_FACTOR = 3.0
"""Either way, for an opcode that the featuriser does not know. An assumption, not a measurement."""

COLLECTIVE_FACTOR = 10.0
"""How much longer a collective may take than its bytes at the memory's bandwidth: links are 3 to 30 times slower
(`devices/specs.toml`), and it waits for the slowest device. An assumption, not a measurement."""

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "recv", "send")


@dataclass(frozen=True)
class Doubt:
    """Something about a kernel that is not known.

    Attributes:
        note: in words.
        low: the interval's lower end is multiplied by it, 0–1.
        high: its upper end, 1 or above.
    """

    note: str
    low: float
    high: float


def doubts_of_kernel(kernel: Kernel, known_opcodes: frozenset[str]) -> tuple[Doubt, ...]:
    """What is not known of a kernel.

    Args:
        kernel: the kernel.
        known_opcodes: those of the featuriser.
    """
    found = (find(kernel, known_opcodes) for find in _FINDERS)
    return tuple(doubt for doubt in found if doubt is not None)


def _custom_call(kernel: Kernel, _: frozenset[str]) -> Doubt | None:
    for node in kernel.nodes:
        one = node.instruction
        if one is not None and one.opcode == "custom-call":
            work = work_of_instruction(one, lambda _: Work(0, 0))
            if work.flop is None:
                target = one.proto.custom_call_target
                note = (
                    f"arithmetic of custom call {target!r} is not known: it may take up to "
                    f"{UNKNOWN_WORK_FACTOR:g} times its bytes' time"
                )
                return Doubt(note, 1.0, UNKNOWN_WORK_FACTOR)
    return None


def _dynamic_shape(kernel: Kernel, _: frozenset[str]) -> Doubt | None:
    if any("<=" in node.shape.text for node in kernel.nodes):
        return Doubt("dynamic shapes: the largest sizes are predicted, so it may take any less time", 0.0, 1.0)
    return None


def _unknown_opcode(kernel: Kernel, known: frozenset[str]) -> Doubt | None:
    unknown = sorted({node.opcode for node in kernel.nodes} - known)
    if not unknown:
        return None
    note = f"opcode {', '.join(unknown)} is not known: its time may be {UNKNOWN_OPCODE_FACTOR:g} times less or more"
    return Doubt(note, 1 / UNKNOWN_OPCODE_FACTOR, UNKNOWN_OPCODE_FACTOR)


def _collective(kernel: Kernel, _: frozenset[str]) -> Doubt | None:
    if not kernel.opcode.startswith(COLLECTIVES):
        return None
    note = (
        f"{kernel.opcode} waits for other devices, which are not predicted: it may take up to {COLLECTIVE_FACTOR:g} "
        f"times its bytes' time"
    )
    return Doubt(note, 1.0, COLLECTIVE_FACTOR)


_FINDERS: tuple[Callable[[Kernel, frozenset[str]], Doubt | None], ...] = (
    _custom_call,
    _dynamic_shape,
    _unknown_opcode,
    _collective,
)
