"""From programs to estimates: the sum over kernels with its interval, loops and branches, and what must be said.

The time of a program from those of its kernels: a sum with an interval between independent and common errors.

How often a program's computations run where the compiler does not say: loops and branches.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.errors import ModelError
from phasepoint.hlo.module import Computation, Instruction, Module
from phasepoint.hlo.work import trip_count
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.predict.answers import Answers, ask_methods
from phasepoint.learn.predict.hlo import HloProgram
from phasepoint.learn.predict.types import KernelEstimate, ProgramEstimate, TargetDevice


@dataclass(frozen=True)
class Weights:
    """Executions of each computation in one execution of the program.

    Attributes:
        once: outside loops of unknown trip count; branches of one conditional share its executions.
        looped: inside such loops, for one iteration of each (or the given number).
        loops: names of those loops.
        branches: each conditional that runs, with how often and the computations that it chooses from.
    """

    once: Mapping[Computation, float]
    looped: Mapping[Computation, float]
    loops: tuple[str, ...]
    branches: tuple[tuple[float, tuple[Computation, ...]], ...]

    def of(self, computation: Computation) -> float:
        """All executions of a computation."""
        return self.once.get(computation, 0.0) + self.looped.get(computation, 0.0)


def weigh_computations(module: Module, *, trip_counts: int = 1) -> Weights:
    """Count executions, callers before callees.

    Args:
        module: the program.
        trip_counts: iterations of loops whose number the compiler does not know.
    """
    once: dict[Computation, float] = {module.entry: 1.0}
    looped: dict[Computation, float] = {}
    loops, branches = [], []
    for computation in reversed(module.computations):
        here = once.get(computation, 0.0), looped.get(computation, 0.0)
        if not any(here):
            continue
        for one in computation.instructions:
            unknown = one.opcode == "while" and trip_count(one) is None
            if unknown:
                loops.append(one.name)
            if one.opcode == "conditional" and one.called:
                branches.append((sum(here), one.called))
            for callee, times in zip(one.called, _times(one, trip_counts), strict=True):
                looped[callee] = looped.get(callee, 0.0) + times * (sum(here) if unknown else here[1])
                once[callee] = once.get(callee, 0.0) + (0.0 if unknown else times * here[0])
    return Weights(once, looped, tuple(loops), tuple(branches))


def _times(one: Instruction, trip_counts: int) -> tuple[float, ...]:
    if one.opcode == "while":
        found = trip_count(one)
        trips = float(trip_counts if found is None else found)
        return (trips, *[trips + 1] * (len(one.called) - 1))  # the proto lists the body first, then the condition
    if one.opcode == "conditional":
        return (1.0 / len(one.called),) * len(one.called)
    return (1.0,) * len(one.called)


def branch_spread_ps(module: Module, weights: Weights, own_ps: Mapping[Computation, float]) -> tuple[float, float]:
    """How far below and above the mean over branches a program's time can be.

    Args:
        module: the program.
        weights: its executions.
        own_ps: time of one execution of a computation's own kernels, ps; what it calls is left out.
    """
    if not weights.branches:
        return 0.0, 0.0
    whole: dict[Computation, float] = {}
    for computation in module.computations:
        whole[computation] = own_ps.get(computation, 0.0) + sum(
            times * whole.get(callee, 0.0)
            for one in computation.instructions
            if one.opcode in ("while", "conditional", "call", "async-start")
            for callee, times in zip(one.called, _times(one, 1), strict=True)
        )
    below = above = 0.0
    for count, callees in weights.branches:
        times = [whole[callee] for callee in callees]
        mean = sum(times) / len(times)
        below += count * (mean - min(times))
        above += count * (max(times) - mean)
    return below, above


@dataclass(frozen=True)
class Sum:
    """A sum of times with its interval, ps."""

    time_ps: float
    low_ps: float
    high_ps: float


def sum_times(weight: Floats, ends: tuple[Floats, Floats, Floats], *, same: Sequence[str], shared: Floats) -> Sum:
    """Σ weight × time, its interval from the kernels' intervals.

    Errors of executions of one kernel are one error. Those of two kernels are correlated by `shared` (0: they cancel
    as independent ones do; 1: all are too long together): the half-widths d of a 90 % interval add up as
    √((1 − ρ) Σ d² + ρ (Σ d)²), each side for itself, ρ their mean weighted by d.

    Args:
        weight: shape [n], executions.
        ends: time, lower and upper end, each of shape [n], ps.
        same: [n] names of what is computed; equal ones have equal errors.
        shared: shape [n], ρ of the method that predicted each, 0–1.
    """
    time_ps, low_ps, high_ps = ends
    total = float(weight @ time_ps)
    places = {name: place for place, name in enumerate(dict.fromkeys(same))}
    groups = np.array([places[name] for name in same], dtype=np.int64)
    below = _half_width(weight * (time_ps - low_ps), groups, shared)
    above = _half_width(weight * (high_ps - time_ps), groups, shared)
    return Sum(total, max(total - below, 0.0), total + above)


def _half_width(width: Floats, groups: npt.NDArray[np.int64], shared: Floats) -> float:
    if not width.sum() > 0:
        return 0.0
    of_group = np.bincount(groups, weights=width)
    rho = float(width @ shared / width.sum())
    return float(np.sqrt((1 - rho) * (of_group**2).sum() + rho * of_group.sum() ** 2))


OTHER_BACKEND_FACTOR = 2.0
"""How far off, either way, a program's time may be because it was compiled for another kind of device: another compiler
fuses other instructions and picks other layouts. An assumption, not a measurement."""

MODEL_KINDS = ("kernels", "operators")
"""Kinds of stored model that predict kernels of programs."""

_MOST_ITERATIONS = 10**12
"""Of a loop, a choice: a day at a hundred nanoseconds each."""
_LOOPS_NAMED = 3
"""In a note, a choice."""
_LEAST_OF_SUM = 0.1
"""Of the sum, where what is beside the kernels is negative: labels hold what the trace itself took."""

_KINDS = {"cpu": "a CPU", "gpu": "a GPU", "tpu": "a TPU"}
_STREAM = {
    "cpu": "one core: kernels run one after the other, so their times add up, with what lies between them",
    "gpu": "one stream: kernels run one after the other, so their times add up; gaps between them are not in it",
    "tpu": "one core of the device: kernels run one after the other, so their times add up",
}


@dataclass(frozen=True)
class _Case:
    """One program with all that is known of it.

    Attributes:
        program: what is predicted.
        answers: of all programs' kernels.
        target: the device.
        weights: executions of its computations.
        trip_count: the user's number for loops that have none.
    """

    program: HloProgram
    answers: Answers
    target: TargetDevice
    weights: Weights
    trip_count: int | None

    @property
    def is_foreign(self) -> bool:
        """Whether it was compiled for another kind of device."""
        return self.program.backend is not None and self.program.backend != self.target.kind


@dataclass(frozen=True)
class _KernelColumns:
    """A program's kernels, [n] each.

    Attributes:
        place: of each in the answers.
        once: executions outside loops of unknown trip count.
        looped: inside them.
        same: fingerprints.
        widen: factor on both ends of the intervals.
    """

    place: Int64s
    once: Floats
    looped: Floats
    same: tuple[str, ...]
    widen: float


def estimate_programs(
    programs: Sequence[HloProgram],
    target: TargetDevice,
    *,
    model: StoredModel | None = None,
    trip_count: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ProgramEstimate, ...]:
    """One estimate per program.

    Args:
        programs: read.
        target: the device.
        model: the user's; None takes those of the package.
        trip_count: iterations of loops whose number is not known.
        progress: called with (kernels done, kernels in all).

    Raises:
        ModelError: the model cannot be used for the device.
    """
    if trip_count is not None and not 0 <= trip_count <= _MOST_ITERATIONS:
        raise ValueError(f"trip_count is {trip_count}; expected 0 to {_MOST_ITERATIONS}")
    if model is not None and model.kind not in MODEL_KINDS:
        raise ModelError(
            f"model {model.name!r} is of kind {model.kind!r}, which predicts no programs; expected one of kind "
            f"{' or '.join(MODEL_KINDS)}"
        )
    kernels = [kernel for program in programs for kernel in program.kernels.kernels]
    answers = ask_methods(kernels, target, model, progress)
    trips = 1 if trip_count is None else trip_count
    return tuple(
        _estimate(_Case(program, answers, target, weigh_computations(program.module, trip_counts=trips), trip_count))
        for program in programs
    )


def _estimate(case: _Case) -> ProgramEstimate:
    answers, rows = case.answers, _columns(case)
    estimates = _kernel_estimates(case, rows)
    unknown = bool(case.weights.loops) and case.trip_count is None
    weight = rows.once + rows.looped
    total = _with_branches(_sum(rows, answers, weight), case, rows)
    once, iteration = _sum(rows, answers, rows.once), _sum(rows, answers, rows.looped, starts=0)
    shares = weight * answers.time_ps[rows.place]
    return ProgramEstimate(
        program=case.program.name,
        device=answers.device or case.target.name,
        time_ps=None if unknown else round(total.time_ps),
        low_ps=None if unknown else round(total.low_ps),
        high_ps=None if unknown else round(total.high_ps),
        analytic_ps=None if unknown else round(float(weight @ answers.analytic_ps[rows.place])),
        kernels=estimates,
        in_range_ratio=_share(shares, np.array([one.in_range for one in estimates], dtype=bool)),
        notes=_notes(case, estimates),
        once_ps=round(once.time_ps) if unknown else None,
        once_interval_ps=_ends(once) if unknown else None,
        iteration_ps=round(iteration.time_ps) if unknown else None,
        iteration_interval_ps=_ends(iteration) if unknown else None,
        bound=_largest(shares, [one.bound for one in estimates]),
        method=_largest(shares, [one.method for one in estimates]),
        measured=case.program.measured,
        device_kind=case.target.kind,
    )


def _columns(case: _Case) -> _KernelColumns:
    kernels, weights = case.program.kernels.kernels, case.weights
    return _KernelColumns(
        place=np.array([case.answers.place[kernel.fingerprint] for kernel in kernels], dtype=np.int64),
        once=np.array([weights.once.get(kernel.computation, 0.0) for kernel in kernels]),
        looped=np.array([weights.looped.get(kernel.computation, 0.0) for kernel in kernels]),
        same=tuple(kernel.fingerprint for kernel in kernels),
        widen=OTHER_BACKEND_FACTOR if case.is_foreign else 1.0,
    )


def _kernel_estimates(case: _Case, rows: _KernelColumns) -> tuple[KernelEstimate, ...]:
    answers = case.answers
    estimates = []
    for kernel, place in zip(case.program.kernels.kernels, rows.place, strict=True):
        distance = float(answers.distance[place])
        known = not np.isnan(distance)
        low = max(float(answers.low_ps[place]) / rows.widen, float(answers.bound_ps[place]))
        estimates.append(
            KernelEstimate(
                kernel=kernel.name,
                opcode=kernel.opcode,
                executions=kernel.executions,
                time_ps=round(float(answers.time_ps[place])),
                low_ps=round(min(low, float(answers.time_ps[place]))),
                high_ps=round(float(answers.high_ps[place]) * rows.widen),
                bound=answers.bound[place],
                method=answers.method[place],
                analytic_ps=round(float(answers.analytic_ps[place])),
                distance=distance if known else None,
                in_range=known and distance <= 1,
                notes=tuple(answers.notes[place]),
                fingerprint=kernel.fingerprint,
            )
        )
    return tuple(estimates)


def _ends(found: Sum) -> tuple[int, int]:
    return round(found.low_ps), round(found.high_ps)


def _sum(rows: _KernelColumns, answers: Answers, weight: Floats, *, starts: int = 1) -> Sum:
    """The sum with its interval; that the compiler was another is one error, common to all kernels."""
    place = rows.place
    ends = answers.time_ps[place], answers.low_ps[place], answers.high_ps[place]
    found = sum_times(weight, ends, same=rows.same, shared=answers.shared[place])
    least = float(weight @ answers.bound_ps[place])
    beside = _beside(weight, answers, place, starts)
    time_ps = max(found.time_ps + beside, _LEAST_OF_SUM * found.time_ps, least)
    low = max((found.low_ps + beside) / rows.widen, _LEAST_OF_SUM * found.low_ps / rows.widen, least)
    return Sum(time_ps, min(low, time_ps), max((found.high_ps + beside) * rows.widen, time_ps))


def _beside(weight: Floats, answers: Answers, place: Int64s, starts: int) -> float:
    """What a program takes beside its kernels; `starts` is 0 for an iteration of a loop in it."""
    if not weight.any():
        return 0.0
    launches = float(weight @ answers.launch_ps[place])
    return launches + starts * float(weight @ answers.program_ps[place] / weight.sum())


def _with_branches(total: Sum, case: _Case, rows: _KernelColumns) -> Sum:
    """The interval reaches from the shortest branch of every conditional to the longest."""
    if not case.weights.branches:
        return total
    times: dict[Computation, list[float]] = {}
    for kernel, place in zip(case.program.kernels.kernels, rows.place, strict=True):
        times.setdefault(kernel.computation, []).append(float(case.answers.time_ps[place]))
    own = {computation: sum(of) for computation, of in times.items()}
    below, above = branch_spread_ps(case.program.module, case.weights, own)
    return Sum(total.time_ps, max(total.low_ps - below, 0.0), total.high_ps + above)


def _share(times: Floats, chosen: npt.NDArray[np.bool_]) -> float:
    """Of the chosen in all times; 0 of nothing."""
    whole = float(times.sum())
    return float(times[chosen].sum()) / whole if whole > 0 else 0.0


def _largest(times: Floats, names: Sequence[str]) -> str:
    totals: dict[str, float] = {}
    for name, time_ps in zip(names, times, strict=True):
        totals[name] = totals.get(name, 0.0) + float(time_ps)
    return max(totals, key=totals.__getitem__, default="unknown")


def _notes(case: _Case, estimates: Sequence[KernelEstimate]) -> tuple[str, ...]:
    kind = case.target.kind
    notes = [*case.program.notes, *case.answers.said, _STREAM[kind], *_loop_notes(case.weights, case.trip_count)]
    if case.is_foreign:
        compiled_for = _KINDS.get(str(case.program.backend), case.program.backend)
        notes.append(
            f"compiled for {compiled_for}, predicted for {_KINDS[kind]}: another compiler would make other kernels, so "
            f"both ends of the intervals are moved out by a factor of {OTHER_BACKEND_FACTOR:g}"
        )
    outside = sum(not one.in_range for one in estimates if one.distance is not None)
    if outside:
        notes.append(
            f"{outside} of {len(estimates)} kernels lie outside the range of what was learned from (distance above 1): "
            f"their intervals are widened"
        )
    if case.weights.branches:
        notes.append("which branch of a conditional runs is not known: the mean is taken, the interval holds all")
    return tuple(dict.fromkeys([*notes, *case.program.kernels.notes, *_kernel_notes(case)]))


def _loop_notes(weights: Weights, trip_count: int | None) -> list[str]:
    if not weights.loops:
        return []
    names = ", ".join(weights.loops[:_LOOPS_NAMED]) + (" …" if len(weights.loops) > _LOOPS_NAMED else "")
    if trip_count is None:
        return [
            f"how often a loop runs is not known ({names}), so no time is given for the whole; the time of one "
            f"iteration is: give --trip-count N to have it multiplied"
        ]
    return [f"loops of unknown trip count ({names}) are taken to run {trip_count:,} times, as --trip-count says"]


def _kernel_notes(case: _Case) -> list[str]:
    """Each kind of doubt once, with how many kernels have it."""
    answers = case.answers
    counts = Counter(
        note for kernel in case.program.kernels.kernels for note in answers.notes[answers.place[kernel.fingerprint]]
    )
    return [f"{note} ({count} kernels)" if count > 1 else note for note, count in counts.items()]
