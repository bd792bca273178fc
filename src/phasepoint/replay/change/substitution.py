"""One phase exchanged: its steps as they were, its replays, and what its whole time becomes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.errors import NoDataError
from phasepoint.core.units import format_counted, format_ps
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.replay.change.clean_steps import CleanSteps, MadeReplay, StepMeans, mean_steps
from phasepoint.replay.change.parts import compare_ops, compare_parts, compare_scalars, estimate_replay
from phasepoint.replay.change.ratio import SLOW_RATIO, ChangeRatio, compare_steps, without_slow
from phasepoint.replay.change.types import Exchange, OpChange, PartChange, Value
from phasepoint.summary.analysis import Analysis

FEW_STEPS = 20
"""Below so many compared steps there are fewer than five batches, and the interval is wide for that alone."""

_CAPTURED = (
    "most of the original's steps were captured, so captured ones are compared too: without --baseline, what capturing "
    "cost them counts as the change's gain"
)


@dataclass(frozen=True, eq=False)
class Order:
    """What is to be exchanged.

    Attributes:
        phases: ids: the replayed phase, then those joined to it.
        changes: replays with the change, one or more.
        baselines: replays without it, of the same phase.
        steps_ratio: steps under the change over steps without it.
        confidence: of the intervals.
    """

    phases: tuple[int, ...]
    changes: tuple[MadeReplay, ...]
    baselines: tuple[MadeReplay, ...]
    steps_ratio: float
    confidence: float


def exchange_phase(original: Analysis, mine: CleanSteps, order: Order) -> Exchange:
    """Exchange a phase.

    Args:
        original: the run.
        mine: its steps.
        order: what for what.

    Raises:
        NoDataError: no step of the phase can be compared.
    """
    of_phase = np.isin(original.labels, order.phases)
    numbers = np.unique(original.clock.step[of_phase])
    captured = 2 * int((mine.clean & of_phase).sum()) < int((mine.settled & of_phase).sum())
    if captured:
        mine = replace(mine, clean=mine.settled)
    own = mean_steps([mine], [of_phase])
    changes, baselines = ([without_slow(one.steps, own) for one in made] for made in (order.changes, order.baselines))
    changed = mean_steps(changes).at(numbers)
    base = mean_steps(baselines).at(numbers) if baselines else None
    found = _compare(original, order, changed, own if base is None else base, own)
    machine = None
    if base is not None and len(np.intersect1d(base.step, own.step)):
        machine = _ratio(base, own, own, order.confidence)
    before_ps, steps = sum_ps(mine.own_ps[of_phase]), int(of_phase.sum())
    after_ps = [
        None if r is None else round(before_ps * r * order.steps_ratio) for r in (found.ratio, found.low, found.high)
    ]
    after = Value(after_ps[0] or 0, after_ps[1], after_ps[2])
    compared = np.intersect1d(changed.step, (own if base is None else base).step)
    parts, ops = _parts(original, order, numbers, before_ps, after.value_ps)
    scalars = original.table("scalars"), order.changes[0].tables["scalars"]
    return Exchange(
        phases=tuple(original.names[phase] for phase in order.phases),
        changes=tuple(one.run.path for one in order.changes),
        baselines=tuple(one.run.path for one in order.baselines),
        steps=steps,
        steps_ratio=order.steps_ratio,
        compared_steps=found.steps,
        first_step=int(compared[0]),
        last_step=int(compared[-1]),
        step_before_ps=round(before_ps / steps),
        step_after_ps=round(before_ps * found.ratio / steps),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        within=found.within,
        place=found.place,
        machine_ratio=machine.ratio if machine else None,
        machine_low=machine.low if machine else None,
        machine_high=machine.high if machine else None,
        before_ps=before_ps,
        after=after,
        categories=parts,
        ops=ops,
        scalars=compare_scalars(*scalars, np.intersect1d(numbers, order.changes[0].clock.step)),
        notes=(
            *([_CAPTURED] if captured else []),
            *_notes(original, order, found, machine),
            *_slow_notes((*order.changes, *order.baselines), (*changes, *baselines)),
        ),
    )


def _compare(original: Analysis, order: Order, changed: StepMeans, reference: StepMeans, own: StepMeans) -> ChangeRatio:
    if not len(np.intersect1d(changed.step, reference.step)):
        names = ", ".join(original.names[phase] for phase in order.phases)
        raise NoDataError(
            f"{order.changes[0].run.path}: no step of phase {names} can be compared: the first steps of a replay, "
            "captured ones, and steps that compile or save do not count. Give the replay more steps before its target: "
            "an earlier checkpoint, or a longer target"
        )
    return _ratio(changed, reference, own, order.confidence)


def _ratio(changed: StepMeans, reference: StepMeans, own: StepMeans, confidence: float) -> ChangeRatio:
    common = np.intersect1d(changed.step, reference.step)
    return compare_steps(changed.at(common).own_ps, reference.at(common).own_ps, own.own_ps, confidence=confidence)


def _parts(
    original: Analysis, order: Order, numbers: Int64s, before_ps: int, after_ps: int
) -> tuple[tuple[PartChange, ...], tuple[OpChange, ...]]:
    """Categories and ops, from the first replay that captured the phase."""
    steps = int(np.isin(original.labels, order.phases).sum())
    for replay in order.changes:
        replayed = estimate_replay(replay, numbers)
        if replayed is not None:
            raised = steps * order.steps_ratio / int(np.isin(replay.clock.step, numbers).sum())
            parts = compare_parts(original, order.phases, replayed, before_ps, after_ps)
            return parts, compare_ops(original, order.phases, replayed, raised)
    return (), ()


def _notes(original: Analysis, order: Order, found: ChangeRatio, machine: ChangeRatio | None) -> tuple[str, ...]:
    notes = []
    if found.low is None:
        notes.append(f"{found.steps} step compared: nothing says how sure the ratio is")
    elif found.steps < FEW_STEPS:
        notes.append(f"only {found.steps} steps could be compared: the interval is wide for that alone")
    if found.low is not None and found.place is None:
        notes.append(
            "the phase is no longer than two such stretches: how much their choice matters is not in the interval"
        )
    if not order.baselines:
        notes.append("no --baseline replay: a machine that is slower or faster today counts as the change's doing")
    elif machine is None:
        notes.append("the baseline has no step that the original has uncaptured: the machine's speed is not compared")
    for replay in order.changes:
        notes += _replay_notes(original, replay)
    return tuple(notes)


def _slow_notes(made: Sequence[MadeReplay], kept: Sequence[CleanSteps]) -> Iterator[str]:
    for one, steps in zip(made, kept, strict=True):
        slow, clean = int((one.steps.clean & ~steps.clean).sum()), int(one.steps.clean.sum())
        if slow:
            yield (
                f"{one.run.path}: {slow} of {clean} steps were more than {SLOW_RATIO - 1:.0%} slower than its others, "
                "stretch by stretch, and are left out: the machine was slow then"
            )


def _replay_notes(original: Analysis, replay: MadeReplay) -> list[str]:
    notes = []
    record = replay.record
    if record is None:
        notes.append(f"{replay.run.path}: not made by `replay run`; taken as a replay because its step numbers match")
    elif record.status == "ended-early":
        notes.append(f"{replay.run.path}: ended early{f': {record.reason}' if record.reason else ''}")
    settled = replay.clock.compile_ps[np.cumsum(replay.steps.clean) > 0]
    if (settled > 0).any():
        notes.append(
            f"{int((settled > 0).sum())} of the replay's steps compiled after its first ones "
            f"({format_ps(sum_ps(settled))}); compiling is kept as it was in the original"
        )
    hosts = [len({session.host for session in clock.sessions}) for clock in (original.clock, replay.clock)]
    if hosts[0] != hosts[1]:
        there = format_counted(hosts[1], "host")
        notes.append(f"the replay ran on {there}, the original on {hosts[0]}: a step is the mean over hosts")
    devices = [
        sorted({name for shard in run.shards for name in shard.session.devices}) for run in (original.run, replay.run)
    ]
    if devices[0] != devices[1] and all(devices):
        notes.append(
            f"the replay ran on {', '.join(devices[1])}, the original on {', '.join(devices[0])}: prices may differ"
        )
    return notes
