"""What a compiled program sends: its collectives, their bytes and groups, and what of their time computation hides.

A collective with a `-start` and a `-done` runs beside the kernels between the two; a TPU's compiler also puts one into
a fusion with what it gives to or takes from it (a reduce-scatter appears as an all-reduce and a slice of it).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.hlo.module import Instruction, Module, scheduled_instructions
from phasepoint.learn.hlo_graph.kernels import Kernel
from phasepoint.scale.pod.torus import COLLECTIVE_S, Axis, axes_of_group

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
        chips: that the devices of a group are cores of; 0 where the program does not say.
    """

    name: str
    opcode: str
    bytes: int
    group: int
    executions: int | None
    hidden_s: float = 0.0
    chips: int = 0

    def seconds(self, axes: Sequence[Axis]) -> float:
        """All its executions on a torus; groups of devices are neighbours on it."""
        own = axes_of_group(axes, self.chips) if self.chips else axes
        return (self.executions or 1) * COLLECTIVE_S[self.opcode](float(self.bytes), own)

    def exposed_s(self, axes: Sequence[Axis]) -> float:
        """What of them nothing hides."""
        return max(self.seconds(axes) - (self.executions or 1) * self.hidden_s, 0.0)


def collectives_of(
    module: Module, kernels: Sequence[Kernel], kernel_s: Mapping[str, float], devices_per_chip: int = 1
) -> list[Collective]:
    """The collectives of a program, in its order.

    Args:
        module: the program, optimised and scheduled.
        kernels: of the program.
        kernel_s: seconds of one execution of each kernel, by its name; of collectives they are not looked at.
        devices_per_chip: cores of a chip, where the compiler sees each of them.
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
        group = first_group(sender)
        chips = len({device // devices_per_chip for device in group})
        sent = _bytes(sender), len(group)
        found.append(Collective(kernel.name, opcode, *sent, kernel.executions, hidden, chips))
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


def first_group(sender: Instruction) -> Sequence[int]:
    """Numbers of the devices that a collective joins, of its first group; empty where it does not say: all of them."""
    proto = sender.proto
    listed = proto.collective_device_list
    groups = proto.replica_groups or listed.replica_groups
    if groups:
        return tuple(groups[0].replica_ids)
    for numbered in (listed.iota_replica_group_list, proto.iota_collective_device_list):
        if numbered.num_devices_per_group:
            return _first_of(numbered)
    named = proto.mesh_axes_device_list
    if not named.axes:
        return ()
    # Places of the axes in the mesh say which devices they are; where an axis is divided, its minor part is taken.
    sizes, numbers = [axis.size for axis in named.mesh.axes], np.arange(math.prod(a.size for a in named.mesh.axes))
    kept = [axis.mesh_axis_index for axis in named.axes]
    if any(axis.sub_axis.size for axis in named.axes):
        size = math.prod(axis.sub_axis.size or sizes[axis.mesh_axis_index] for axis in named.axes)
        return tuple(range(size))
    others = [place for place in range(len(sizes)) if place not in kept]
    return tuple(numbers.reshape(sizes).transpose(others + kept).reshape(-1, math.prod(sizes[at] for at in kept))[0])


def _first_of(numbered: Any) -> Sequence[int]:
    """The first group of a list that is written as `[groups, size] <= [dims] T(permutation)`."""
    groups, size = int(numbered.num_replica_groups), int(numbered.num_devices_per_group)
    dims, order = list(numbered.iota_reshape_dims), list(numbered.iota_transpose_perm)
    if math.prod(dims or [1]) != groups * size:
        return tuple(range(size))
    numbers = np.arange(groups * size).reshape(dims).transpose(order or range(len(dims)))
    return tuple(numbers.reshape(groups, size)[0])


def _between_s(start: Instruction, order: Sequence[Instruction], kernel_s: Mapping[str, float]) -> float:
    """Seconds of the kernels that run between a collective's start and its end."""
    after = order[order.index(start) + 1 :]
    ends = (place for place, one in enumerate(after) if start in one.operands)
    return sum(kernel_s.get(one.name, 0.0) for one in after[: next(ends, 0)])
