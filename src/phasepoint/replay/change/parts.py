"""What an exchanged phase's time goes into, before and under the change, as far as windows saw it.

Logged values with and without a change, step by step: the difference is told, never judged.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import apportion
from phasepoint.estimates.captured import COMPILING, PARTS
from phasepoint.estimates.estimates import Estimates, estimate_totals
from phasepoint.phases.clock.breakdown import OpTime
from phasepoint.replay.change.clean_steps import MadeReplay
from phasepoint.replay.change.types import OpChange, PartChange, ScalarChange
from phasepoint.summary.analysis import Analysis

_KEYS = ("host", "step", "name")


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
    mine = pc.and_(pc.is_in(table["step"], value_set=pa.array(steps)), pc.is_finite(table["value"]))
    table = table.filter(pc.fill_null(mine, False))  # by host, attempt and step: the last one stays
    columns = (table[name].to_pylist() for name in (*_KEYS, "value"))
    return {(host, step, name): value for host, step, name, value in zip(*columns, strict=True)}


_OPS = 10
_OTHER = "other"


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
    before = sum((_parts(original.estimates, phase, names) for phase in phases), np.zeros(len(names)))
    after = _parts(replayed, 1, names)
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
    listed = [op for phase in phases for op in original.estimates.phase_ops.get(phase, ())]
    before, after = _by_name(listed, 1.0), _by_name(replayed.phase_ops.get(1, ()), raised)
    if not before or not after:
        return ()
    keys = sorted(before.keys() | after.keys(), key=lambda key: (-max(before.get(key, 0), after.get(key, 0)), key))
    return tuple(OpChange(*key, before.get(key), after.get(key)) for key in keys[:_OPS])


def _parts(estimates: Estimates, phase: int, names: Sequence[str]) -> Floats:
    times = {part.name: part.total_ps for part in estimates.phases[phase].parts}
    return np.array([times.get(name, 0) for name in names], np.float64)


def _by_name(ops: Sequence[OpTime], raised: float) -> dict[tuple[str, str], int]:
    times: dict[tuple[str, str], int] = {}
    for op in ops:
        if op.op != _OTHER:
            key = (op.op, op.category)
            times[key] = times.get(key, 0) + round(op.self_ps * raised)
    return times
