"""What each technique of a step is worth on a slice: the step is compiled with it and without it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phasepoint.core.errors import UsageError
from phasepoint.learn.predict.tpu.compile import Function
from phasepoint.learn.predict.tpu.topology import Topology
from phasepoint.scale.plan.program import ProgramRow, plan_program
from phasepoint.scale.techniques.left_out import CAN_BE_LEFT_OUT


@dataclass(frozen=True)
class TechniqueLeftOut:
    """A step without one technique.

    Attributes:
        technique: its name.
        does: what the step does instead.
        is_used: whether the step is another one without it.
        row: the step without it.
    """

    technique: str
    does: str
    is_used: bool
    row: ProgramRow


def leave_out(
    asked: Function,
    topology: Topology,
    batch: int | None,
    names: Sequence[str],
    *,
    data: Sequence[int] = (),
    batch_axis: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ProgramRow, list[TechniqueLeftOut]]:
    """The step as it is, and without each of the techniques.

    Args:
        asked: the step, and where its arguments come from.
        topology: the slice.
        batch: samples of a step; None: as the arguments have them.
        names: techniques to leave out, one at a time; none: each that can be.
        data: places of the arguments that are batches; none: those that the step does not return.
        batch_axis: as of `plan_program`.
        progress: called with (steps compiled, steps in all).

    Raises:
        UsageError: a technique that cannot be left out; and what `plan_program` raises.
        ModelError: the function raises, or the compiler refuses it.
    """
    names = tuple(dict.fromkeys(names)) or tuple(CAN_BE_LEFT_OUT)
    for name in names:
        if name not in CAN_BE_LEFT_OUT:
            raise UsageError(f"--without {name!r}: expected one of {', '.join(CAN_BE_LEFT_OUT)}")
    rows = []
    for number, without in enumerate([(), *((name,) for name in names)], start=1):
        rows += plan_program(asked, topology, [batch], data=data, batch_axis=batch_axis, without=without)
        if progress is not None:
            progress(number, len(names) + 1)
    whole, *others = rows
    return whole, [
        TechniqueLeftOut(name, CAN_BE_LEFT_OUT[name], _facts(row) != _facts(whole), row)
        for name, row in zip(names, others, strict=True)
    ]


def _facts(row: ProgramRow) -> tuple[object, ...]:
    """What tells two programs apart."""
    return row.compute_ps, row.sending_ps, row.memory_bytes, row.collectives, row.problem
