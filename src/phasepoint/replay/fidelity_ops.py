"""What the target's time went into, op by op, in the replay and in the original: the angle between both, and speed."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phasepoint.replay.fidelity_steps import CommonSteps
from phasepoint.replay.fidelity_tables import SideTables, renamed_ops

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
OpName = tuple[str, str]
"""Program's name, empty where the op has none, and the op's."""

MOST_OPS = 20
"""Ops kept in the result, the largest; the cosine is of all."""

_LARGEST_RATIO = 0.9
"""Share of the op time whose ops say by how much the machine was slower."""

_ALIKE = 0.1
"""Ops within this part of the common factor are slower alike."""


@dataclass(frozen=True)
class OpTime:
    """One op on both sides.

    Attributes:
        program: name of its program, null for an op of none.
        op: its name.
        original_ps, replay_ps: self time in a step.
    """

    program: str | None
    op: str
    original_ps: int
    replay_ps: int


@dataclass(frozen=True)
class OpMatch:
    """The op vectors of both sides.

    Attributes:
        cosine: of the angle between them, 0–1; null where there are not two.
        same_steps: whether both are of the same step numbers; else the original's is of all it captured of the phase.
        original_steps, replay_steps: captured steps that the vectors are of.
        renamed: ops that have another name in an equal program, and were matched by their place in it.
        factor: replay's over original's time of the op in the middle, among those that make up 90 % of the time.
        alike_ratio: share of those ops' time that lies within a tenth of `factor`, 0–1.
        only_original, only_replay: ops that the other side does not have.
        ops: the largest on either side, largest first.
        reason: why there is no cosine, null where there is one.
    """

    cosine: float | None
    same_steps: bool
    original_steps: int
    replay_steps: int
    renamed: int = 0
    factor: float | None = None
    alike_ratio: float | None = None
    only_original: tuple[str, ...] = ()
    only_replay: tuple[str, ...] = ()
    ops: tuple[OpTime, ...] = ()
    reason: str | None = None


def match_ops(original: SideTables, replay: SideTables, common: CommonSteps, phase_rows: Int64s) -> OpMatch:
    """Compare what the target's steps of the phase took, op by op.

    Args:
        original: the run that is replayed.
        replay: the replay.
        common: their common steps.
        phase_rows: rows of all steps of the phase in the original.
    """
    mine = common.target & common.of_phase
    theirs = replay.is_captured(common.replay[mine])
    if not len(theirs):
        return OpMatch(None, False, 0, 0, reason="the replay captured no step of the target")
    base = original.is_captured(common.original[mine])
    same = len(base) > 0
    base = base if same else original.is_captured(phase_rows)
    if not len(base):
        return OpMatch(None, False, 0, len(theirs), reason="no window of the original captured a step of the phase")
    if same:  # one step may lie beyond the window on either side
        both = mine & np.isin(common.original, base) & np.isin(common.replay, theirs)
        base, theirs = (common.original[both], common.replay[both]) if both.any() else (base, theirs)
    before, after = _self_ps(original, base), _self_ps(replay, theirs)
    names = {} if after.keys() <= before.keys() else renamed_ops(original, replay)
    renamed = len(names.keys() & after.keys())
    after = _under_names(after, names) if renamed else after
    return _compare(before, after, OpMatch(None, same, len(base), len(theirs), renamed))


def _under_names(times: dict[OpName, int], names: dict[OpName, str]) -> dict[OpName, int]:
    """The same times under the names that `names` gives to some ops; they are exchanged all at once."""
    found: dict[OpName, int] = {}
    for name, time_ps in times.items():
        other = name[0], names.get(name, name[1])
        found[other] = found.get(other, 0) + time_ps
    return found


def _self_ps(side: SideTables, rows: Int64s) -> dict[OpName, int]:
    """Self time by op over some captured steps."""
    columns = side.columns
    kept = np.isin(side.captured.row[columns.index], rows)
    sums = np.zeros(len(columns.keys), np.int64)
    np.add.at(sums, columns.op[kept], columns.self_ps[kept])
    found: dict[OpName, int] = {}
    for i in np.unique(columns.op[kept]).tolist():
        key = columns.keys[i]
        name = key.program or "", key.op
        found[name] = found.get(name, 0) + int(sums[i])
    return found


def _compare(before: dict[OpName, int], after: dict[OpName, int], match: OpMatch) -> OpMatch:
    names = sorted(before.keys() | after.keys())
    base = np.array([before.get(name, 0) for name in names], np.float64) / max(match.original_steps, 1)
    run = np.array([after.get(name, 0) for name in names], np.float64) / max(match.replay_steps, 1)
    length = float(np.linalg.norm(base) * np.linalg.norm(run))
    if not length:
        side = "original" if not base.any() else "replay"
        return replace(match, reason=f"no op took time in the captured steps of the {side}")
    factor, alike = _common_factor(base, run)
    largest = np.argsort(-np.maximum(base, run), kind="stable")[:MOST_OPS].tolist()
    times = [OpTime(names[i][0] or None, names[i][1], round(base[i]), round(run[i])) for i in largest]
    return replace(
        match,
        cosine=min(float(base @ run) / length, 1.0),
        factor=factor,
        alike_ratio=alike,
        only_original=tuple(_shown(name) for name in names if name not in after),
        only_replay=tuple(_shown(name) for name in names if name not in before),
        ops=tuple(times),
    )


def _common_factor(base: Floats, run: Floats) -> tuple[float | None, float | None]:
    """By what the largest ops take longer in the replay: the ratio in the middle of their time, and who is near it."""
    order = np.argsort(-base, kind="stable")
    n = int(np.searchsorted(np.cumsum(base[order]), _LARGEST_RATIO * base.sum())) + 1
    large = order[:n]
    large = large[(base[large] > 0) & (run[large] > 0)]
    if not len(large):
        return None, None
    ratio, weight = run[large] / base[large], base[large]
    rank = np.argsort(ratio, kind="stable")
    factor = float(ratio[rank][np.searchsorted(np.cumsum(weight[rank]), weight.sum() / 2)])
    near = np.abs(ratio / factor - 1) <= _ALIKE
    return factor, float(weight[near].sum() / weight.sum())


def _shown(name: OpName) -> str:
    return f"{name[0]}: {name[1]}" if name[0] else name[1]
