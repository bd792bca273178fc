"""Fidelity: whether a replay did what the original did, and if not, what was other: data, program, device, speed.

Each quantity is compared by itself, step number by step number, and what cannot be compared is named with its reason.
What differs is then put in the order of causes: another device or another program explains everything below it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from phasepoint.core.errors import NoDataError
from phasepoint.core.units import format_ratio
from phasepoint.replay.fidelity.ops import LEAST_COSINE, OpMatch, ProgramMatch, match_ops, match_programs
from phasepoint.replay.fidelity.scalars import ScalarMatch, Setting, compare_settings, match_scalars
from phasepoint.replay.fidelity.sides import CommonSteps, SideTables, match_steps
from phasepoint.replay.fidelity.times import StepTimeMatch, match_times
from phasepoint.replay.folder import ReplayRecord
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis

FAITHFUL, DIFFERS, UNCLEAR, NOT_COMPARABLE = "faithful", "differs", "unclear", "not comparable"

MOST_TIME_RATIO = 0.05
"""A median step time within this of the original's is the same."""

ENOUGH_ALONE = 20
"""Steps whose interval is believed where the phase is too short to show its own noise: a plan compares so many."""

ROUNDING_RATIO = 1e-4
"""Scalars closer than this in the first step may differ by the order of a sum alone (float32: 6e-8 an operation)."""

DRIFT_RATIO = 0.01
"""Scalars that come further apart than this later on do not show the same training any more."""

MOST_APART_RATIO = 0.02
"""Ops that one side alone has are other work where they take more of its time than this."""

ENOUGH_CAPTURED = 3
"""Fewer captured steps may be far from the original's by chance, where that does not show by how much."""

ALIKE_RATIO = 0.8
"""Share of the op time that must be slower by one factor for the machine to be the cause."""


Comparisons = tuple[OpMatch, StepTimeMatch, ProgramMatch, tuple[ScalarMatch, ...]]


@dataclass(frozen=True)
class Difference:
    """Something that is other in the replay.

    Attributes:
        code: device, versions, checkpoint, program, shapes, data, drift, ops, step-time, machine.
        text: in words, with its figures.
    """

    code: str
    text: str


@dataclass(frozen=True)
class Fidelity:
    """A replay held against its original.

    Attributes:
        original, replay: paths of the runs.
        phase, phase_id: what was replayed.
        target_first, target_last: the steps that the replay captured.
        first_step, last_step: steps that both have, null where there are none.
        verdict: faithful; differs; unclear, where a figure lies outside its limits and chance cannot be told from a
            difference; or not comparable.
        differences: what is other, causes first; empty where nothing is.
        unknown: what could not be compared or told, each with its reason.
        ops, times, programs, scalars, setting: each comparison.
        notes: what a reader should know beside it.
    """

    original: str
    replay: str
    phase: str
    phase_id: int
    target_first: int
    target_last: int
    first_step: int | None
    last_step: int | None
    verdict: str
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]
    ops: OpMatch
    times: StepTimeMatch
    programs: ProgramMatch
    scalars: tuple[ScalarMatch, ...]
    setting: Setting
    notes: tuple[str, ...]

    @property
    def faithful(self) -> bool:
        """Whether all that could be compared is within its limits."""
        return self.verdict == FAITHFUL


def compare_replay(original: Analysis, replay: Run, record: ReplayRecord) -> Fidelity:
    """Compare a replay with its original.

    Args:
        original: the run that was replayed, analysed; its captures are converted.
        replay: the replay, its captures converted.
        record: what was asked of the replay.

    Raises:
        NoDataError: the original has no step of the number of any target's step: it is another run.
        StoreError: a table cannot be read.
    """
    _check_original(original, record)
    common = match_steps(original, replay, record)
    before, after = SideTables.of_analysis(original), SideTables.of_run(replay)
    phase_rows = np.flatnonzero(original.labels == record.phase_id)
    ops = match_ops(before, after, common, phase_rows)
    times = match_times(before, after, common, phase_rows)
    programs = match_programs(before, after, common, phase_rows)
    scalars = match_scalars((original.run, before.steps), (replay, after.steps), common)
    setting = compare_settings(original, replay.manifest, record)
    comparisons = ops, times, programs, scalars
    why = f": {record.reason}" if record.reason else ""
    ended = () if record.status == "done" else (f"the replay did not come to its end ({record.status}{why})",)
    differences = (*(Difference(*one) for one in setting.differences), *_differences(*comparisons))
    unknown = tuple(_unknown(*comparisons))
    return Fidelity(
        original=original.run.path,
        replay=replay.path,
        phase=record.phase,
        phase_id=record.phase_id,
        target_first=record.target_first,
        target_last=record.target_last,
        first_step=int(common.step.min()) if len(common.step) else None,
        last_step=int(common.step.max()) if len(common.step) else None,
        verdict=_verdict(common, comparisons, differences),
        differences=differences,
        unknown=unknown,
        ops=ops,
        times=times,
        programs=programs,
        scalars=scalars,
        setting=setting,
        notes=(*ended, *setting.notes, *replay.problems),
    )


def _check_original(original: Analysis, record: ReplayRecord) -> None:
    step = original.clock.step
    if not ((step >= record.target_first) & (step <= record.target_last)).any():
        asked = f"{record.target_first}–{record.target_last}"
        raise NoDataError(
            f"{original.run.path}: has no step {asked}, which the replay was made for; "
            f"give the run that was replayed: {record.original}"
        )


def _verdict(common: CommonSteps, found: Comparisons, differences: tuple[Difference, ...]) -> str:
    if differences:
        return DIFFERS
    ops, times, programs, scalars = found
    told = ops.cosine is not None or programs.same > 0 or any(one.values for one in scalars)
    told |= times.ratio is not None and not times.apart
    if not told or not (common.target & common.of_phase).any():
        return NOT_COMPARABLE
    other_ops = ops.cosine is not None and ops.cosine < LEAST_COSINE and ops.own_cosine is None
    other_time = _is_other_time(times) and not times.apart and not _is_own_noise(times)
    return UNCLEAR if other_ops or other_time else FAITHFUL


def _differences(
    ops: OpMatch, times: StepTimeMatch, programs: ProgramMatch, scalars: tuple[ScalarMatch, ...]
) -> Iterator[Difference]:
    if programs.differs:
        yield Difference("program", _other_programs(programs))
    if programs.other_shapes:
        yield Difference("shapes", f"other shapes go into {', '.join(programs.other_shapes)}")
    for scalar in scalars:
        yield from _other_scalar(scalar, programs)
    if _is_other_work(ops):
        yield Difference(
            "ops", f"the time goes into other ops: cosine {ops.cosine:.3f}, expected {LEAST_COSINE} or more"
        )
    if times.ratio is not None and _tells(times):
        yield _other_speed(ops, times)


def _is_other_work(ops: OpMatch) -> bool:
    """Whether the op vectors are further apart than they may be, and than chance explains."""
    if ops.cosine is None or ops.cosine >= LEAST_COSINE:
        return False
    if ops.same_steps and (ops.apart_ratio or 0.0) > MOST_APART_RATIO:
        return True
    if ops.own_cosine is not None:
        return ops.cosine < ops.own_cosine
    return ops.same_steps and min(ops.original_steps, ops.replay_steps) >= ENOUGH_CAPTURED


def _other_programs(programs: ProgramMatch) -> str:
    parts = []
    if programs.only_replay:
        parts.append(f"only the replay runs {', '.join(programs.only_replay)}")
    if programs.only_original:
        parts.append(f"only the original runs {', '.join(programs.only_original)}")
    return f"other programs: {'; '.join(parts)} (by fingerprint)"


def _other_scalar(scalar: ScalarMatch, programs: ProgramMatch) -> Iterator[Difference]:
    if scalar.first_differing is None:
        return
    if scalar.first_ratio is None or scalar.first_ratio > ROUNDING_RATIO:
        cause = (
            "other data or another state" if not programs.differs else "as another program, other data or state give"
        )
        by = "" if scalar.first_ratio is None else f" by {format_ratio(scalar.first_ratio)}"
        yield Difference("data", f"{scalar.name} differs{by} in the first common step, {scalar.first_step}: {cause}")
    elif scalar.largest_ratio is None or scalar.largest_ratio > DRIFT_RATIO:
        by = "" if scalar.largest_ratio is None else f" to {format_ratio(scalar.largest_ratio)}"
        text = f"{scalar.name} is the same in step {scalar.first_step} and comes apart from step"
        yield Difference("drift", f"{text} {scalar.first_differing} on, up{by}: part of the state was not restored")


def _tells(times: StepTimeMatch) -> bool:
    """Whether the time differs by more than it may, and by more than can be chance."""
    if times.ratio is None or times.apart or times.low is None or times.high is None:
        return False
    if times.noise_ratio is None and times.steps < ENOUGH_ALONE:
        return False
    beyond = times.low > 1 + MOST_TIME_RATIO or times.high < 1 - MOST_TIME_RATIO
    return beyond and abs(times.ratio - 1) > (times.noise_ratio or 0.0)


def _is_other_time(times: StepTimeMatch) -> bool:
    return times.ratio is not None and abs(times.ratio - 1) > MOST_TIME_RATIO


def _is_own_noise(times: StepTimeMatch) -> bool:
    """Whether stretches of the original differ from one another by as much."""
    return times.noise_ratio is not None and abs((times.ratio or 1) - 1) <= times.noise_ratio


def _other_speed(ops: OpMatch, times: StepTimeMatch) -> Difference:
    ratio = times.ratio or 1.0
    longer = f"the median step is {format_ratio(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'}"
    factor, alike = ops.factor, ops.alike_ratio
    same_way = factor is not None and abs(factor - 1) > MOST_TIME_RATIO and (factor > 1) == (ratio > 1)
    if factor is not None and alike is not None and same_way and alike >= ALIKE_RATIO:
        why = f"ops with {format_ratio(alike)} of the time all take about {factor:.2f} × as long"
        return Difference("machine", f"{longer}: a {'slower' if ratio > 1 else 'faster'} machine, since {why}")
    return Difference("step-time", f"{longer}, and not all ops alike")


def _unknown(
    ops: OpMatch, times: StepTimeMatch, programs: ProgramMatch, scalars: tuple[ScalarMatch, ...]
) -> Iterator[str]:
    for what, reason in (("ops", ops.reason), ("step times", times.reason), ("programs", programs.reason)):
        if reason is not None:
            yield f"{what}: {reason}"
    if not scalars:
        yield "loss: neither run logged a scalar (run.log(loss=loss))"
    for scalar in scalars:
        if not scalar.values:
            yield f"{scalar.name}: no common step has it on both sides"
    if ops.cosine is not None and ops.cosine < LEAST_COSINE and not _is_other_work(ops):
        own = f"but stretches of the original come to {ops.own_cosine:.3f} with one another" if ops.own_cosine else None
        yield f"ops: cosine {ops.cosine:.3f}, {own or f'but of {ops.replay_steps} steps it cannot be told from chance'}"
    if _is_other_time(times) and not _tells(times):
        yield f"step times: {times.ratio:.2f} × the original's, {_why_unclear(times)}"


def _why_unclear(times: StepTimeMatch) -> str:
    if times.apart:
        return "but these steps were captured on one side alone"
    if times.low is None or times.high is None or (times.noise_ratio is None and times.steps < ENOUGH_ALONE):
        return f"but of {times.steps} steps it cannot be told from chance"
    if times.noise_ratio is not None and _is_own_noise(times):
        return f"but stretches of the original differ by {format_ratio(times.noise_ratio)} from one another"
    return f"but its interval is {times.low:.2f}–{times.high:.2f}"
