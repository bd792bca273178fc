"""A plan for a program on a slice: what a step takes and needs, by batch, from what the TPU's compiler makes of it.

A step is what its kernels take by the compiler's cycles, and what of its collectives nothing hides. Both stand in the
program for the whole slice, so that sharding, fusions and memory are the compiler's own.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from phasepoint.core.errors import ModelError, UsageError
from phasepoint.core.units import PS_PER_S
from phasepoint.devices.specs import device_spec
from phasepoint.learn.predict.hlo import errors_of_tracing, lower_function, program_of_executable, read_hlo
from phasepoint.learn.predict.predict import predict_programs
from phasepoint.learn.predict.programs import python_function
from phasepoint.learn.predict.tpu.compile import (
    NO_COMPILER,
    Function,
    SpreadStep,
    compile_function_for,
    has_compiler,
    left_out,
)
from phasepoint.learn.predict.tpu.topology import Topology
from phasepoint.scale.plan.benchmark import CHIPS_A_HOST, sizes
from phasepoint.scale.plan.recorded import RecordedStep, expected_slowest
from phasepoint.scale.plan.whole import RunAsked, RunParts
from phasepoint.scale.pod.collectives import Collective, collectives_of
from phasepoint.scale.pod.torus import COLLECTIVE_S, axes_of

ANALYTIC_ERROR = 2.0
"""Of a step without the TPU's compiler, either way: fusions and layouts are the CPU's. An assumption."""

LINKS_ERROR = 2.0
"""Of collectives by their closed form, either way: none was measured beside kernels. An assumption."""

_SIZE = r"([0-9.]+)([KMGT]?)"
_NO_ROOM = re.compile(rf"(?:Used {_SIZE} of {_SIZE} hbm|temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\))")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class ProgramRow:
    """A step with one batch on a slice.

    Attributes:
        batch: samples of a step, all devices together.
        devices: that share it.
        compute_ps: of the kernels.
        sending_ps: of the collectives, whether something hides them or not.
        exposed_ps: what of them nothing hides.
        input_ps: wait for input, as a recorded job had it; 0 without one.
        slowest_ps: that hosts wait for the slowest of them, by the scatter of that job; 0 without one.
        low_ps, high_ps: of the step, 90 %.
        memory_bytes: that a device needs.
        limit_bytes: that it has.
        collectives: one by one.
        compile_s: seconds that compiling took; 0 where it was compiled before.
        problem: why there is no program; empty where there is one.
        run: what a whole run takes; None where that was not asked for.
        cost: of it; None likewise.
        notes: for the reader.
    """

    batch: int
    devices: int
    compute_ps: int = 0
    sending_ps: int = 0
    exposed_ps: int = 0
    input_ps: int = 0
    slowest_ps: int = 0
    low_ps: int = 0
    high_ps: int = 0
    memory_bytes: int = 0
    limit_bytes: int = 0
    collectives: tuple[Collective, ...] = ()
    compile_s: float = 0.0
    problem: str = ""
    run: RunParts | None = None
    cost: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def step_ps(self) -> int:
        """Of a step."""
        return self.compute_ps + self.exposed_ps + self.input_ps + self.slowest_ps

    @property
    def widest(self) -> str:
        """What makes most of the interval: "kernels" or "links"."""
        is_links = self.exposed_ps * (LINKS_ERROR - 1) > self.high_ps - self.step_ps
        return "links" if is_links else "kernels"

    @property
    def fits(self) -> bool:
        """Whether the compiler found memory for it."""
        return not self.problem

    @property
    def samples_per_s(self) -> float:
        """Of the whole slice; 0 where there is no program."""
        return self.batch * PS_PER_S / self.step_ps if self.step_ps else 0.0


def plan_program(
    asked: Function,
    topology: Topology,
    batches: Sequence[int | None],
    *,
    data: Sequence[int] = (),
    batch_axis: int = 0,
    without: Sequence[str] = (),
    run: RunAsked | None = None,
    like: RecordedStep | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ProgramRow]:
    """Steps of a program on a slice, for each batch.

    Args:
        asked: the step, and where its arguments come from.
        topology: the slice.
        batches: samples of a step; None: as the arguments have them.
        data: places of the arguments that are batches; none: those that the step does not return.
        batch_axis: dimension of the batches along which their samples lie: 1 where time comes first.
        without: techniques of `phasepoint.scale` that the step does without, by name.
        run: that the step is part of.
        like: a recorded job whose waits for input and scatter of steps the hosts have.
        progress: called with (batches done, batches in all).

    Raises:
        MissingExtraError: there is no JAX.
        UsageError: no such function, a batch that the devices can't share, links that are not known.
        ModelError: the function raises, or the compiler refuses it for another reason than its memory.
    """
    rows = []
    for number, batch in enumerate(batches, start=1):
        row = _plan_row(asked, topology, SpreadStep(batch, tuple(data), batch_axis, tuple(without)))
        if like is not None and row.fits:
            row = _with_waits(row, like, hosts_of(topology))
        if run is not None and row.fits:
            parts = run.with_steps(row.step_ps / PS_PER_S, row.batch, hosts_of(topology))
            row = replace(row, run=parts, cost=run.cost(parts, topology.chips))
        rows.append(row)
        if progress is not None:
            progress(number, len(batches))
    return rows


def _plan_row(asked: Function, topology: Topology, spread: SpreadStep) -> ProgramRow:
    axes = axes_of(topology)
    name = topology.generation.device
    spec = device_spec(name)
    assert spec is not None  # axes_of has looked
    if not has_compiler():
        return _analytic_row(asked, topology, spread)
    try:
        compiled = compile_function_for(asked, topology, spread=spread)
    except ModelError as error:
        room = _NO_ROOM.search(str(error))
        if room is None:
            raise
        number, unit, most, most_unit = (part for part in room.groups() if part is not None)
        used, limit = round(float(number) * _UNITS[unit]), round(float(most) * _UNITS[most_unit])
        return ProgramRow(
            spread.batch or 0, _devices(topology), memory_bytes=used, limit_bytes=limit, problem="does not fit"
        )
    program = read_hlo(compiled.program, f"{asked.path.name}:{asked.name}")
    (estimate,) = predict_programs([program], name)
    kernel_s = {one.kernel: one.time_ps / PS_PER_S for one in estimate.kernels}
    sent = collectives_of(program.module, program.kernels.kernels, kernel_s, spec.devices_per_chip)
    senders = {one.name for one in sent}
    compute_ps = sum((one.executions or 1) * one.time_ps for one in estimate.kernels if one.kernel not in senders)
    exposed_ps = round(sum(one.exposed_s(axes) for one in sent) * PS_PER_S)
    memory = compiled.memory
    needed = memory["argument"] + memory["output"] - memory["alias"] + memory["temp"]
    error_ratio = topology.generation.error
    return ProgramRow(
        batch=compiled.batch or 0,
        devices=_devices(topology),
        compute_ps=compute_ps,
        sending_ps=round(sum(one.seconds(axes) for one in sent) * PS_PER_S),
        exposed_ps=exposed_ps,
        low_ps=round((compute_ps + exposed_ps) / error_ratio),
        high_ps=round((compute_ps + exposed_ps) * error_ratio),
        memory_bytes=needed,
        limit_bytes=round(spec.memory_bytes.value),
        collectives=tuple(sent),
        compile_s=compiled.compile_s,
        notes=(*compiled.notes, *(note for note in estimate.notes if not note.startswith(tuple(COLLECTIVE_S)))),
    )


def _with_waits(row: ProgramRow, like: RecordedStep, hosts: int) -> ProgramRow:
    """The step with what hosts wait for input and for each other, as steps of a recorded job did."""
    slowest_ps = round(row.compute_ps * (expected_slowest(like.ratios, hosts) - 1))
    more_ps = like.input_ps + slowest_ps
    return replace(
        row,
        input_ps=like.input_ps,
        slowest_ps=slowest_ps,
        low_ps=row.low_ps + more_ps,
        high_ps=row.high_ps + more_ps,
    )


def _analytic_row(asked: Function, topology: Topology, spread: SpreadStep) -> ProgramRow:
    """The same without the TPU's compiler: the CPU's program of one device's share, and one sum of the gradients."""
    from phasepoint.learn.predict.tpu.spread import looped_over, share_of_one

    axes, devices, device = axes_of(topology), _devices(topology), topology.generation.device
    spec = device_spec(device)
    assert spec is not None  # axes_of has looked
    where = f"{asked.path.name}:{asked.name}"
    with (
        left_out(spread.without),
        python_function(asked.path, asked.name, args=asked.args, args_from=asked.args_from) as (function, values),
    ):
        with errors_of_tracing(where, values):
            shapes, batch, gradient = share_of_one(
                function, values, devices, batch=spread.batch, data=spread.data, batch_axis=spread.batch_axis
            )
            notes = [] if spread.batch_axis else looped_over(function, values, spread.data)
        compiled = lower_function(function, shapes, where).compile()
    (estimate,) = predict_programs([program_of_executable(compiled, where)], device)
    summed = Collective("gradients", "all-reduce", gradient, 0, 1)
    memory = compiled.memory_analysis()
    needed = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    needed += memory.temp_size_in_bytes
    compute_ps = sum((one.executions or 1) * one.time_ps for one in estimate.kernels)
    sending_ps = round(summed.seconds(axes) * PS_PER_S)
    step_ps, limit = compute_ps + sending_ps, round(spec.memory_bytes.value)
    return ProgramRow(
        batch=batch,
        devices=devices,
        compute_ps=compute_ps,
        sending_ps=sending_ps,
        exposed_ps=sending_ps,
        low_ps=round(step_ps / ANALYTIC_ERROR),
        high_ps=round(step_ps * ANALYTIC_ERROR),
        memory_bytes=needed,
        limit_bytes=limit,
        collectives=(summed,),
        problem="" if needed <= limit else "does not fit",
        notes=(*notes, NO_COMPILER, *estimate.notes),
    )


def _devices(topology: Topology) -> int:
    """Devices of a slice: cores, where the compiler sees each of them."""
    spec = device_spec(topology.generation.device)
    return topology.chips * (spec.devices_per_chip if spec is not None else 1)


def hosts_of(topology: Topology) -> int:
    """Hosts of a slice: four chips each."""
    return -(-topology.chips // CHIPS_A_HOST["tpu"])


def batches_between(text: str) -> list[int]:
    """`4096..65536` as 4096, 8192, … 65536; `4096,6144` as it is.

    Raises:
        UsageError: it is neither.

    Example:
        >>> batches_between("4096..16384")
        [4096, 8192, 16384]
    """
    first, dots, last = text.partition("..")
    try:
        numbers = [int(part) for part in ([first, last] if dots else text.split(","))]
    except ValueError as error:
        raise UsageError(f"--batch {text!r}: expected 4096, 4096,8192 or 4096..65536") from error
    if any(number < 1 for number in numbers) or (dots and numbers[0] > numbers[1]):
        raise UsageError(f"--batch {text!r}: expected positive numbers, the smaller one first")
    if not dots:
        return numbers
    first_batch, last_batch = numbers
    return [first_batch, *sizes(first_batch, last_batch)] if first_batch < last_batch else [first_batch]
