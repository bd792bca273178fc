"""A plan from a recorded job: what its steps take on more devices of the same kind, part by part.

A device computes what it computed, and waits for input as it did. Beside that devices add up their gradients, and all
wait for the slowest host, whose step is the largest of as many draws from the recorded steps as there are hosts.
Devices that share the cores of one machine (`2*cpu`) share what the job left idle of them.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats
from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.core.units import PS_PER_S
from phasepoint.devices.cpu_peaks import cpu_identity, measured_cpu_spec
from phasepoint.devices.specs import device_spec
from phasepoint.hlo.module import Module
from phasepoint.learn.predict.programs import run_programs
from phasepoint.learn.predict.tpu.spread import gradient_bytes_of
from phasepoint.learn.predict.tpu.topology import Topology, parse_topology
from phasepoint.phases.clock.steps import read_numbers
from phasepoint.scale.plan.benchmark import CHIPS_A_HOST, sizes
from phasepoint.scale.plan.layouts import parse_machine
from phasepoint.scale.pod.torus import axes_of, reduce_s
from phasepoint.scale.steps.gpu import NETWORK_BYTES_PER_S, node_link
from phasepoint.summary.analysis import Analysis

LEAST_STEPS = 20
"""Of a phase from which a plan is made: fewer do not show how steps scatter. A choice."""

HIDES_RATIO = 2 / 3
"""Of a step's computation, its backward pass: beside that much gradients can be added up at best (two of the three
products of a layer are of its backward pass)."""

_SHARED = re.compile(r"(?:(\d+)\s*\*\s*)?cpu", re.IGNORECASE)


@dataclass(frozen=True)
class RecordedStep:
    """A step of a recorded job, of the phase that took most of its time.

    Attributes:
        phase: its name.
        steps: of it, on all hosts.
        device: on which it ran, as recorded; empty where that is not known.
        compute_ps: mean, without waits for input.
        input_ps: mean wait for input.
        ratios: of each step's computation to the mean, ascending.
        busy_cores: that the process' threads used meanwhile, mean; None where the machine was not watched.
        gradient_bytes: that replicas would add up; None where the run holds no program that tells.
    """

    phase: str
    steps: int
    device: str
    compute_ps: int
    input_ps: int
    ratios: Floats
    busy_cores: float | None
    gradient_bytes: int | None


@dataclass(frozen=True)
class Devices:
    """Devices that a plan is for.

    Attributes:
        name: as they were asked for.
        counts: of devices, each a row of the plan.
        device: a product of `phasepoint devices`, or `cpu`: host devices that share the cores of this machine.
        topology: the slice; None of what is no TPU.
    """

    name: str
    counts: tuple[int, ...]
    device: str
    topology: Topology | None = None

    @property
    def shares_cores(self) -> bool:
        """Whether all of them are this machine's cores."""
        return self.device == "cpu"

    def hosts(self, count: int) -> int:
        """That carry so many."""
        if self.shares_cores:
            return 1
        return -(-count // CHIPS_A_HOST["" if self.topology is None else "tpu"])


@dataclass(frozen=True)
class RecordedRow:
    """A step on so many devices.

    Attributes:
        devices: that share it.
        hosts: that carry them.
        parts_ps: compute, input, gradients, slowest host; they add up to the step.
        low_ps, high_ps: of the step: all of the sums hidden that can be, none of them.
        speedup: samples a second against one device.
    """

    devices: int
    hosts: int
    parts_ps: dict[str, int]
    low_ps: int
    high_ps: int
    speedup: float

    @property
    def step_ps(self) -> int:
        """Of a step."""
        return sum(self.parts_ps.values())


def recorded_step(analysis: Analysis) -> RecordedStep:
    """The step that a plan of a recorded job starts from.

    Raises:
        NoDataError: no phase has enough steps.
    """
    clock, result = analysis.clock, analysis.result
    own = {phase.id: (result.labels == phase.id) & ~result.slow for phase in result.phases}
    most = max((int(rows.sum()) for rows in own.values()), default=0)
    if most < LEAST_STEPS:
        raise NoDataError(
            f"{analysis.run.path}: {most} steps of one phase; a plan needs {LEAST_STEPS}, which show how they scatter"
        )
    enough = [phase for phase, rows in own.items() if rows.sum() >= LEAST_STEPS]  # not the one step that compiles
    chosen = max(enough, key=lambda phase: int(clock.dur_ps[own[phase]].sum()))
    rows = own[chosen]
    compute = (clock.dur_ps - clock.input_ps - clock.compile_ps)[rows].astype(np.float64)
    kinds = {text.partition(" ")[2] or text.partition(":")[0] for text in analysis.run.manifest.devices}
    return RecordedStep(
        phase=analysis.names[chosen],
        steps=int(rows.sum()),
        device=kinds.pop() if len(kinds) == 1 else "",
        compute_ps=round(compute.mean()),
        input_ps=round(clock.input_ps[rows].mean()),
        ratios=np.sort(compute / compute.mean()),
        busy_cores=_busy_cores(analysis, rows),
        gradient_bytes=_gradient_bytes(analysis),
    )


def _busy_cores(analysis: Analysis, rows: Bools) -> float | None:
    """CPU time of the process during some of the steps, over their time."""
    clock, used_ps, lasted_ps = analysis.clock, 0.0, 0
    looks = clock.split(analysis.tables["machine"])
    for session, own in zip(clock.sessions, looks, strict=True):
        if not own.num_rows or own.column("run_ps").null_count:
            continue
        of = rows & (clock.host == session.host) & (clock.attempt == session.attempt)
        start_ps, dur_ps, run_ps = (read_numbers(own, name) for name in ("start_ps", "dur_ps", "run_ps"))
        at, total = np.append(start_ps[:1], start_ps + dur_ps), np.append(0, np.cumsum(run_ps))
        begins, ends = clock.start_ps[of], clock.start_ps[of] + clock.dur_ps[of]
        watched = (begins >= at[0]) & (ends <= at[-1])
        used_ps += float((np.interp(ends, at, total) - np.interp(begins, at, total))[watched].sum())
        lasted_ps += int((ends - begins)[watched].sum())
    return used_ps / lasted_ps if lasted_ps else None


def _gradient_bytes(analysis: Analysis) -> int | None:
    """Of the program with most measured time: its state is what it gives back in the shapes that it took."""
    try:
        program, *_ = run_programs(analysis.run)
    except NoDataError:
        return None
    return state_gradient_bytes(program.module)


def state_gradient_bytes(module: Module) -> int | None:
    """Bytes of a gradient of a training step's program; None where it gives back nothing that it took."""
    taken = [leaf for one in module.entry.instructions if one.opcode == "parameter" for leaf in one.shape.leaves()]
    left = Counter((leaf.element_type, leaf.dims) for leaf in taken if leaf.text.startswith(("f", "bf")))
    given_back = Counter((leaf.element_type, leaf.dims) for leaf in module.entry.root.shape.leaves())
    state = [dims for (_, dims), count in (left & given_back).items() for _ in range(count) if dims]
    return gradient_bytes_of(state) if state else None


def parse_devices(text: str) -> Devices:
    """Devices by name: `2*cpu`, `64*H100 SXM5`, `tpu-v5p:4x4x4`.

    Raises:
        UsageError: no such devices.

    Example:
        >>> parse_devices("8*cpu").counts
        (1, 2, 4, 8)
    """
    shared = _SHARED.fullmatch(text.strip())
    if shared is not None:
        count = int(shared[1] or 1)
        if not 1 <= count <= 1024:
            raise UsageError(f"--to {text!r}: expected 1 to 1024 host devices")
        return Devices(text, _up_to(count), "cpu")
    machine = parse_machine(text)
    if machine.node:
        return Devices(text, _up_to(machine.devices), machine.device.name)
    if machine.slices > 1:
        raise UsageError(f"--to {text!r}: a recorded job is planned for one slice, as in {text.partition('*')[2]}")
    topology = parse_topology(text)
    return Devices(text, (topology.chips,), machine.device.name, topology)


def _up_to(count: int) -> tuple[int, ...]:
    return (1, *sizes(1, count)) if count > 1 else (1,)


def plan_recorded(
    step: RecordedStep, devices: Devices, *, is_divided: bool = False, gradient_bytes: int | None = None
) -> tuple[list[RecordedRow], list[str]]:
    """Steps of a recorded job on more devices.

    Args:
        step: as recorded on one device.
        devices: that it is planned for.
        is_divided: whether devices divide the batch that one had; else each has one like it.
        gradient_bytes: that replicas add up; None: as the recorded program tells.

    Returns:
        a row for each number of devices, and what the reader must know.

    Raises:
        UsageError: the job was recorded on another device; or cores are shared and the run does not say how many it
            used.
    """
    notes = _notes(step, devices, gradient_bytes)
    volume = gradient_bytes if gradient_bytes is not None else step.gradient_bytes or 0
    rows: list[RecordedRow] = []
    most_hosts = devices.hosts(devices.counts[-1])
    if most_hosts > step.steps:
        notes.append(
            f"{most_hosts:,} hosts draw from {step.steps} recorded steps: the slowest may be slower than any seen"
        )
    for count in devices.counts:
        share = step.compute_ps / count if is_divided else float(step.compute_ps)
        compute = share * _crowding(step, devices, count)
        sending = sum_s(devices, volume, count) * PS_PER_S
        hidden = 0.0 if devices.shares_cores else min(sending, compute * HIDES_RATIO)
        hosts = devices.hosts(count)
        slowest = compute * (expected_slowest(step.ratios, hosts) - 1.0)
        parts = {"compute": compute, "input": step.input_ps, "gradients": sending - hidden / 2, "slowest host": slowest}
        whole = {name: round(value) for name, value in parts.items()}
        total = sum(whole.values())
        samples = 1.0 if is_divided else float(count)
        one_ps = step.compute_ps + step.input_ps
        rows.append(
            RecordedRow(
                count,
                hosts,
                whole,
                round(total - hidden / 2),
                round(total + hidden / 2),
                samples * one_ps / max(total, 1),
            )
        )
    return rows, notes


def _crowding(step: RecordedStep, devices: Devices, count: int) -> float:
    """How much longer devices compute that share cores: as the cores that all of them use over those that there are."""
    if not devices.shares_cores:
        return 1.0
    if step.busy_cores is None:
        raise UsageError("the run does not say how many cores it used, so it cannot be told what host devices share")
    return max(1.0, count * step.busy_cores / cpu_identity().cpus)


def sum_s(devices: Devices, volume: float, count: int) -> float:
    """Seconds in which devices add up their gradients."""
    if count < 2 or not volume:
        return 0.0
    if devices.shares_cores:  # each reads what all have, and writes the sum
        return count * (count + 1) * volume / measured_cpu_spec().memory_bytes_per_s.value
    if devices.topology is not None:
        return reduce_s(volume, axes_of(devices.topology))
    spec = device_spec(devices.device)
    link = None if spec is None else node_link(spec)
    assert link is not None  # parse_devices has looked
    one_way = link.value / 2 if count <= CHIPS_A_HOST[""] else NETWORK_BYTES_PER_S
    return 2 * (count - 1) / count * volume / one_way


def expected_slowest(ratios: Floats, hosts: int) -> float:
    """Mean of the largest of so many independent draws.

    Args:
        ratios: what is drawn from, ascending.
        hosts: draws.

    Example:
        >>> import numpy as np
        >>> expected_slowest(np.array([1.0, 3.0]), 1), expected_slowest(np.array([1.0, 3.0]), 2)
        (2.0, 2.5)
    """
    below = (np.arange(len(ratios) + 1) / len(ratios)) ** hosts
    return float((ratios * np.diff(below)).sum())


def _notes(step: RecordedStep, devices: Devices, gradient_bytes: int | None) -> list[str]:
    ran_on = device_spec(step.device) if step.device else None
    recorded = "cpu" if step.device == "cpu" else ran_on.name if ran_on is not None else None
    if recorded is not None and recorded != devices.device:
        raise UsageError(
            f"the job was recorded on {step.device}; what its steps take on {devices.device} is not known from that: "
            f"record it there, or give its step, as in train.py:step"
        )
    notes = []
    if recorded is None:
        notes.append(f"the run does not say on which device it ran; it is taken to be {devices.device}")
    if gradient_bytes is None and step.gradient_bytes is None:
        notes.append("the run holds no program that tells the size of its gradients: say it with --gradients 100MB")
    if devices.shares_cores and step.busy_cores is not None:
        notes.append(
            f"one device used {step.busy_cores:.2f} cores; more of them share the {cpu_identity().cpus} cores of this "
            f"machine"
        )
    return notes
