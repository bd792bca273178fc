"""One phase exchanged: its steps as they were, its replays, and what its whole time becomes and goes into."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.errors import NoDataError
from phasepoint.core.statistics import apportion
from phasepoint.core.units import format_counted, format_ps
from phasepoint.estimates.captured import COMPILING, PARTS
from phasepoint.estimates.estimates import Estimates, estimate_totals
from phasepoint.estimates.totals import OTHER
from phasepoint.phases.clock.breakdown import FEW, OpTime
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.replay.change.clean_steps import CleanSteps, MadeReplay, StepMeans, mean_steps
from phasepoint.replay.change.ratio import SLOW_RATIO, ChangeRatio, compare_steps, without_slow
from phasepoint.replay.change.types import Exchange, OpChange, PartChange, ScalarChange, Value
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


def compare_scalars(original: pa.Table, changed: pa.Table, steps: Int64s) -> tuple[ScalarChange, ...]:
    """Values that both runs logged at the same steps.

    Args:
        original: table `scalars` as `Run.table` gives it.
        changed: the same of the replay.
        steps: `[n]` step numbers looked at.

    Returns:
        By name. Of a step that logs a name twice, or was done twice, the last value counts.
    """
    before, after = (_last_values(table, steps) for table in (original, changed))
    common = sorted(before.keys() & after.keys())
    rows = []
    for name in dict.fromkeys(key[2] for key in sorted(common, key=lambda key: key[2])):
        keys = [key for key in common if key[2] == name]
        pairs = np.array([(before[key], after[key]) for key in keys])
        apart = pairs[:, 1] - pairs[:, 0]
        largest = int(np.argmax(np.abs(apart)))
        numbers = [key[1] for key in keys]
        means = pairs.mean(axis=0).tolist()
        rows.append(
            ScalarChange(
                name=name,
                steps=len(set(numbers)),
                first_step=min(numbers),
                last_step=max(numbers),
                before=means[0],
                after=means[1],
                largest_difference=float(apart[largest]),
                largest_step=numbers[largest],
            )
        )
    return tuple(rows)


def _last_values(table: pa.Table, steps: Int64s) -> dict[tuple[int, int, str], float]:
    """Finite values by host, step and name; of a step that logs a name twice, or was done twice, the last one."""
    mine = pc.and_(pc.is_in(table["step"], value_set=pa.array(steps)), pc.is_finite(table["value"]))
    table = table.filter(pc.fill_null(mine, False))  # by host, attempt and step: the last one stays
    columns = (table[name].to_pylist() for name in ("host", "step", "name", "value"))
    return {(host, step, name): value for host, step, name, value in zip(*columns, strict=True)}


_OPS = 10
"""Ops told, the largest of either side: as many as an estimate lists (`TOP_OPS`)."""


def estimate_replay(replay: MadeReplay, numbers: Int64s) -> Estimates | None:
    """Totals of a replay's steps; those of these numbers `[n]` are its phase 1.

    Returns:
        None where no window saw one of them.
    """
    tables = replay.tables
    labels = np.isin(replay.clock.step, numbers).astype(np.int64)
    sampled = (tables["steps"], tables["windows"], tables["breakdowns"], labels)
    found = estimate_totals(*sampled, ops=tables["ops"], programs=tables["programs"])
    return found if (found.captured & (labels == 1)).any() else None


def compare_parts(
    original: Analysis, phases: Sequence[int], replayed: Estimates, before_ps: int, after_ps: int
) -> tuple[PartChange, ...]:
    """The phase's time by category, each side adding up to its total; compilation is left out on both sides.

    Args:
        original: the run.
        phases: ids of the phases exchanged.
        replayed: of `estimate_replay`.
        before_ps: their time in the original.
        after_ps: the same under the change.

    Returns:
        Nothing where the original's phases were not captured.
    """
    names = [name for name in PARTS if name != COMPILING]
    if not any((original.estimates.captured & (original.labels == phase)).any() for phase in phases):
        return ()
    before = sum((_category_times(original.estimates, phase, names) for phase in phases), np.zeros(len(names)))
    after = _category_times(replayed, 1, names)
    if not before.sum() or not after.sum():
        return ()
    split = zip(names, apportion(before_ps, before).tolist(), apportion(after_ps, after).tolist(), strict=True)
    return tuple(PartChange(name, old, new) for name, old, new in split if old or new)


def compare_ops(original: Analysis, phases: Sequence[int], replayed: Estimates, raised: float) -> tuple[OpChange, ...]:
    """The largest ops of both sides by self time, largest first.

    Args:
        original: the run.
        phases: ids of the phases exchanged.
        replayed: of `estimate_replay`.
        raised: steps of the phases under the change over the replay's steps of them.
    """
    before: Counter[tuple[str, str]] = Counter()
    for phase in phases:
        before.update(_by_name(original.estimates.phase_ops.get(phase, ()), _of_all_steps(original.estimates, phase)))
    after = _by_name(replayed.phase_ops.get(1, ()), raised * _of_all_steps(replayed, 1))
    if not before or not after:
        return ()
    keys = sorted(before.keys() | after.keys(), key=lambda key: (-max(before.get(key, 0), after.get(key, 0)), key))
    return tuple(OpChange(*key, before.get(key), after.get(key)) for key in keys[:_OPS])


def _of_all_steps(estimates: Estimates, phase: int) -> float:
    """Time of a phase over that of the steps which its ops are told of: with few windows the captured ones alone."""
    if phase not in estimates.phases or estimates.phases[phase].basis != FEW:
        return 1.0
    strata = [stratum for stratum in estimates.sampled.strata if stratum.phase == phase]
    total_ps = sum(stratum.total_ps for stratum in strata)
    return total_ps / max(total_ps - sum(stratum.rest_ps for stratum in strata), 1)


def _category_times(estimates: Estimates, phase: int, names: Sequence[str]) -> Floats:
    times = {part.name: part.total_ps for part in estimates.phases[phase].parts}
    return np.array([times.get(name, 0) for name in names], np.float64)


def _by_name(ops: Sequence[OpTime], raised: float) -> dict[tuple[str, str], int]:
    times: dict[tuple[str, str], int] = {}
    for op in ops:
        if op.op != OTHER:
            key = (op.op, op.category)
            times[key] = times.get(key, 0) + round(op.self_ps * raised)
    return times
