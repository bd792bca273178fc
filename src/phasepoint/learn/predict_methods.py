"""The methods that predict a kernel's time, one row each, tried in order: what one leaves open, the next answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from phasepoint.core.arrays import Floats
from phasepoint.learn.model_file import Model
from phasepoint.learn.predict_target import Target

if TYPE_CHECKING:
    from phasepoint.learn.graphs import KernelGraph
    from phasepoint.learn.kernels import Kernel


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
        shared: correlation of the errors of two kernels of one program.
        basis: what its answers rest on, in words; said where it answered.
        device: the device that it knows, where that is more than the target's name says.
        launch_ps: what a program takes beside its kernels, for each execution of one; below 0 where labels hold more.
        program_ps: the same, once for each execution of the program.
    """

    answer: Answer | None
    notes: tuple[str, ...] = ()
    shared: float = 1.0
    basis: str | None = None
    device: str | None = None
    launch_ps: float = 0.0
    program_ps: float = 0.0


@dataclass(frozen=True)
class Method:
    """A way to predict kernels.

    Attributes:
        name: as results say it.
        start: for a device, and a model that the user gave.
    """

    name: str
    start: Callable[[Target, Model | None], Start]


def _network(target: Target, model: Model | None) -> Start:
    from phasepoint.learn.predict_network import start_network

    return start_network(target, model)


def _operators(target: Target, model: Model | None) -> Start:
    from phasepoint.learn.predict_gpu import start_operators

    return start_operators(target, model)


def _analytic(target: Target, model: Model | None) -> Start:
    from phasepoint.learn.predict_analytic import start_analytic

    return start_analytic(target, model)


METHODS: tuple[Method, ...] = (
    Method("network", _network),
    Method("operators", _operators),
    Method("analytic", _analytic),
)
