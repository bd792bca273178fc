"""What a prediction is for and what it says: the device; of each kernel, of the program, beside what a run measured."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.devices.specs import DeviceSpec, device_spec, device_specs

if TYPE_CHECKING:
    from phasepoint.learn.hlo_graph.graphs import KernelGraph
    from phasepoint.learn.hlo_graph.kernels import Kernel

CONFIDENCE = 0.9
"""Chance with which an interval is meant to hold the true time."""


@dataclass(frozen=True)
class Times:
    """What a method says of some kernels. Arrays are [n]; NaN where it has no answer.

    Attributes:
        time_ps: of one execution.
        low_ps: lower end of the 90 % interval.
        high_ps: upper end.
        distance: from what it learned from; NaN where it learned from nothing.
        notes: by the kernel's place: what that answer does not know.
    """

    time_ps: Floats
    low_ps: Floats
    high_ps: Floats
    distance: Floats
    notes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """Kernels put to a method, [n] each.

    Attributes:
        kernels: the kernels.
        graphs: their features.
        analytic_ps: what the analytic model says of them.
    """

    kernels: Sequence["Kernel"]
    graphs: Sequence["KernelGraph"]
    analytic_ps: Floats


Answer = Callable[[Asked], Times]


@dataclass(frozen=True)
class Start:
    """Whether a method can answer for a device.

    Attributes:
        answer: predicts; None where it cannot.
        notes: which model answers, or why none does, where the reader must know.
        is_learned: whether a learned model answers, which is fed with all features of a kernel.
        shared: correlation of the errors of two kernels of one program.
        basis: what its answers rest on, in words; said where it answered.
        device: the device that it knows, where that is more than the target's name says.
        launch_ps: what a program takes beside its kernels, for each execution of one; below 0 where labels hold more.
        program_ps: the same, once for each execution of the program.
    """

    answer: Answer | None
    notes: tuple[str, ...] = ()
    is_learned: bool = False
    shared: float = 1.0
    basis: str | None = None
    device: str | None = None
    launch_ps: float = 0.0
    program_ps: float = 0.0


@dataclass(frozen=True)
class KernelEstimate:
    """What is expected of one kernel.

    Attributes:
        kernel: name of its instruction.
        opcode: opcode of its instruction.
        executions: in one execution of the program; None where it stands in a loop whose trip count is not known.
        time_ps: of one execution.
        low_ps: lower end of the 90 % interval.
        high_ps: upper end.
        bound: what limits it: compute, memory, latency, or unknown.
        method: who says so: network, operators, analytic.
        analytic_ps: what the analytic model says of one execution.
        distance: from what the method learned from: 0 the like was seen, 1 edge, above 1 outside; None where the method
            learned from nothing.
        in_range: whether the distance is at most 1; never where the method learned from nothing.
        notes: what the estimate does not know: custom call, unknown opcode, dynamic shape.
        fingerprint: of what it computes; equal for kernels that are alike.
    """

    kernel: str
    opcode: str
    executions: int | None
    time_ps: int
    low_ps: int
    high_ps: int
    bound: str
    method: str
    analytic_ps: int
    distance: float | None
    in_range: bool
    notes: tuple[str, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True)
class MeasuredProgram:
    """What a recorded run says of a program's execution.

    Attributes:
        time_ps: self time of its kernels in one execution, mean over the captured ones.
        executions: captured executions.
        device: where it ran.
        kernels: self time of one execution of a kernel, by its name.
    """

    time_ps: int
    executions: int
    device: str
    kernels: Mapping[str, int]


@dataclass(frozen=True)
class ProgramEstimate:
    """What is expected of one execution of a program.

    Attributes:
        program: its name.
        device: on what.
        time_ps: None where a loop's trip count is not known.
        low_ps: lower end of the 90 % interval.
        high_ps: upper end.
        analytic_ps: the same sum of what the analytic model says.
        kernels: in the program's order.
        in_range_ratio: share of the predicted time that lies in kernels within the range of what was learned from.
        notes: what the reader must know.
        once_ps: time outside loops of unknown trip count; None where there is no such loop.
        once_interval_ps: its 90 % interval.
        iteration_ps: time of one iteration of each such loop, together; None where there is none.
        iteration_interval_ps: its 90 % interval.
        bound: what limits most of the time.
        method: who answered for most of the time.
        confidence: of the intervals.
        measured: what a recorded run says beside it.
        device_kind: cpu, gpu or tpu.
    """

    program: str
    device: str
    time_ps: int | None
    low_ps: int | None
    high_ps: int | None
    analytic_ps: int | None
    kernels: tuple[KernelEstimate, ...]
    in_range_ratio: float
    notes: tuple[str, ...] = ()
    once_ps: int | None = None
    once_interval_ps: tuple[int, int] | None = None
    iteration_ps: int | None = None
    iteration_interval_ps: tuple[int, int] | None = None
    bound: str = "unknown"
    method: str = "analytic"
    confidence: float = CONFIDENCE
    measured: MeasuredProgram | None = None
    device_kind: str = ""

    @property
    def measured_ratio(self) -> float | None:
        """Measured over predicted time; None where either is not known, or the kinds of device differ."""
        if self.measured is None or not self.time_ps or not self.measured.device.startswith(self.device_kind):
            return None
        return self.measured.time_ps / self.time_ps


_NAMES_SHOWN = 5
"""Products near a name that is not known, a choice."""
_TPU_ALIASES = ("tpu",)


@dataclass(frozen=True)
class TargetDevice:
    """What is predicted for.

    Attributes:
        name: product, or the CPU of the model that was trained on one.
        kind: cpu, gpu or tpu.
        spec: what it can do at most; None for a CPU, whose peaks stand in its model.
    """

    name: str
    kind: str
    spec: DeviceSpec | None


def resolve_target(text: str) -> TargetDevice:
    """The device of a name.

    Args:
        text: `cpu`, or a product as a driver reports it, or a part that only one product has: `tpu-v4`, `RTX 4090`;
            case and punctuation do not matter.

    Raises:
        ModelError: no device of the table is meant, or several could be.

    Example:
        >>> resolve_target("tpu-v4").name
        'TPU v4'
    """
    if text.strip().lower() == "cpu":
        return TargetDevice("cpu", "cpu", None)
    spec = device_spec(text)
    if spec is None:
        spec = _only_product(text)
    return TargetDevice(spec.name, "tpu" if spec.name.startswith("TPU") else "gpu", spec)


def _only_product(text: str) -> DeviceSpec:
    wanted = _plain(text)
    found = {}
    for spec in device_specs():
        names = {_plain(name) for name in _names_of(spec)}
        if wanted and any(wanted in name for name in names):
            found[spec.name] = spec
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ModelError(
            f"device {text!r} is several products, whose times differ: {', '.join(sorted(found))}; name one of them"
        )
    raise ModelError(_unknown(text))


def _unknown(text: str) -> str:
    plain = _plain_names()
    near = [plain[name].name for name in get_close_matches(_plain(text), plain, n=_NAMES_SHOWN, cutoff=0.5)]
    meant = f"near it are: {', '.join(dict.fromkeys(near))}; " if near else ""
    return (
        f"no device called {text!r} is known; {meant}`phasepoint devices` lists all, and `cpu` is the model's own CPU"
    )


def _names_of(spec: DeviceSpec) -> tuple[str, ...]:
    return (spec.name, f"{spec.vendor} {spec.name}", *([spec.architecture] if spec.architecture else []))


@cache
def _plain_names() -> Mapping[str, DeviceSpec]:
    return MappingProxyType({_plain(name): spec for spec in device_specs() for name in _names_of(spec)})


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
