"""What a compiled program sends: its collectives, their bytes and groups, and what of their time computation hides.

A collective with a `-start` and a `-done` runs beside the kernels between the two; a TPU's compiler also puts one into
a fusion with what it gives to or takes from it (a reduce-scatter appears as an all-reduce and a slice of it).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phasepoint.hlo.module import Instruction, Module, scheduled_instructions
from phasepoint.learn.hlo_graph.kernels import Kernel
from phasepoint.scale.pod.torus import COLLECTIVE_S, Axis

_STARTS = "-start"


@dataclass(frozen=True)
class Collective:
    """One collective of a program.

    Attributes:
        name: of its instruction.
        opcode: all-reduce, all-gather, reduce-scatter, all-to-all or collective-permute.
        bytes: the larger of what goes in and what comes out, on one device.
        group: devices that take part together; 0 where the program does not say, which means all.
        executions: in one execution of the program; None where that is not known.
        hidden_s: of the kernels between its start and its end, each time; 0 where it holds up what follows.
    """

    name: str
    opcode: str
    bytes: int
    group: int
    executions: int | None
    hidden_s: float = 0.0

    def seconds(self, axes: Sequence[Axis]) -> float:
        """All its executions on a torus."""
        return (self.executions or 1) * COLLECTIVE_S[self.opcode](float(self.bytes), axes)

    def exposed_s(self, axes: Sequence[Axis]) -> float:
        """What of them nothing hides."""
        return max(self.seconds(axes) - (self.executions or 1) * self.hidden_s, 0.0)


def collectives_of(module: Module, kernels: Sequence[Kernel], kernel_s: Mapping[str, float]) -> list[Collective]:
    """The collectives of a program, in its order.

    Args:
        module: the program, optimised and scheduled.
        kernels: of the program.
        kernel_s: seconds of one execution of each kernel, by its name; of collectives they are not looked at.
    """
    found, order = [], scheduled_instructions(module)
    for kernel in kernels:
        sender = _sender(kernel)
        if sender is None:
            continue
        opcode = sender.opcode.removesuffix(_STARTS)
        if opcode == "all-reduce" and sender is not kernel.instruction and _keeps_a_part(kernel):
            opcode = "reduce-scatter"
        hidden = 0.0
        if kernel.opcode.endswith(_STARTS):
            hidden = _between_s(kernel.instruction, order[kernel.computation], kernel_s)
        found.append(Collective(kernel.name, opcode, _bytes(sender), group_size(sender), kernel.executions, hidden))
    return found


def _sender(kernel: Kernel) -> Instruction | None:
    """The collective that a kernel is, or holds."""
    for node in reversed(kernel.nodes):
        if node.instruction is not None and node.opcode.removesuffix(_STARTS) in COLLECTIVE_S:
            return node.instruction
    return None


def _keeps_a_part(kernel: Kernel) -> bool:
    """Whether a fusion keeps only this device's part of what was added up."""
    return any(node.opcode in ("dynamic-slice", "reduce-scatter") for node in kernel.nodes)


def _bytes(sender: Instruction) -> int:
    """The larger of what goes in and what comes out."""
    given = sum(leaf.size_bytes for operand in sender.operands for leaf in operand.shape.leaves())
    if sender.opcode.endswith(_STARTS):  # its result holds what goes in as well
        return max(given, sum(leaf.size_bytes for leaf in sender.shape.leaves() if leaf.dims) - given)
    return max(given, sum(leaf.size_bytes for leaf in sender.shape.leaves()))


def group_size(sender: Instruction) -> int:
    """Devices that a collective joins; 0 for all."""
    proto = sender.proto
    groups = proto.replica_groups or proto.collective_device_list.replica_groups
    if groups:
        return len(groups[0].replica_ids)
    named = proto.mesh_axes_device_list
    if named.axes:
        return math.prod(axis.sub_axis.size or named.mesh.axes[axis.mesh_axis_index].size for axis in named.axes)
    return int(proto.collective_device_list.iota_replica_group_list.num_devices_per_group)


def _between_s(start: Instruction, order: Sequence[Instruction], kernel_s: Mapping[str, float]) -> float:
    """Seconds of the kernels that run between a collective's start and its end."""
    after = order[order.index(start) + 1 :]
    ends = (place for place, one in enumerate(after) if start in one.operands)
    return sum(kernel_s.get(one.name, 0.0) for one in after[: next(ends, 0)])
