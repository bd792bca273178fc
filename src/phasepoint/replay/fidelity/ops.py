"""What the target ran in replay and original: programs by fingerprint, ops by the angle between both sides' times.

A few steps are compared, and an op that was interrupted once by the machine's other work may take a hundred times as
long in one of them. So an op's time is the mean over the steps in which it ran without the shortest and the longest
tenth, times the share of these steps; the angle between the plain means is given beside it.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.replay.fidelity.sides import CommonSteps, ProgramIdentity, SideTables, renamed_ops
from phasepoint.stack.diff.alignment import plain_shape

_COUNTS = 0.01
"""Share of a side's program time that counts: a neighbour's work runs over into a step's first instants."""

_MOST_OF = 0.5
"""Where other steps are compared than the target's own, a program must have this share of them to be missed."""


@dataclass(frozen=True)
class ProgramMatch:
    """The programs of both sides.

    Attributes:
        same: programs of the target that both sides ran, by fingerprint.
        only_original, only_replay: names of those that the other side never ran.
        other_shapes: names of programs that one side ran with other shapes of what goes in.
        reason: why nothing can be said, null where it can.
    """

    same: int = 0
    only_original: tuple[str, ...] = ()
    only_replay: tuple[str, ...] = ()
    other_shapes: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def differs(self) -> bool:
        """Whether a program is on one side alone."""
        return bool(self.only_original or self.only_replay)


def match_programs(original: SideTables, replay: SideTables, common: CommonSteps, phase_rows: Int64s) -> ProgramMatch:
    """Compare the programs that the target's steps of the phase ran.

    Args:
        original: the run that is replayed.
        replay: the replay.
        common: their common steps.
        phase_rows: rows of all steps of the phase in the original.
    """
    mine = common.target & common.of_phase
    after = _large(replay.program_times(common.replay[mine]), _COUNTS)
    if not after:
        return ProgramMatch(reason="the replay's target ran no compiled program that the capture names")
    if any(program.fingerprint is None for program in after):
        return ProgramMatch(reason="the capture gives no fingerprints of programs")
    before = _large(original.program_times(common.original[mine]), _COUNTS)
    before = before or _large(original.program_times(phase_rows), _MOST_OF)
    there, here = _prints(original.programs.values()), _prints(replay.programs.values())
    gone = {program for program in before if program.fingerprint not in here}
    new = {program for program in after if program.fingerprint not in there}
    if not before and new:
        return ProgramMatch(
            reason="no window of the original captured a step of the phase, or any that ran its programs"
        )
    return ProgramMatch(
        same=len(after - new),
        only_original=_names(gone),
        only_replay=_names(new),
        other_shapes=tuple(_other_shapes(original, replay, new)),
    )


def _large(times: dict[ProgramIdentity, int], least: float) -> set[ProgramIdentity]:
    whole = sum(times.values())
    return {program for program, time_ps in times.items() if time_ps and time_ps >= least * whole}


def _prints(programs: Iterable[ProgramIdentity]) -> set[str | None]:
    return {program.fingerprint for program in programs}


def _names(programs: Iterable[ProgramIdentity]) -> tuple[str, ...]:
    return tuple(sorted(program.name for program in programs))


def _other_shapes(original: SideTables, replay: SideTables, new: set[ProgramIdentity]) -> list[str]:
    """Of the replay's own programs, those whose namesakes in the original all take other shapes."""
    found = []
    for program in sorted(new, key=lambda one: one.name):
        namesakes = [one for one in set(original.programs.values()) if one.name == program.name]
        mine = _inputs(replay, program)
        if mine and namesakes and all(_inputs(original, one) not in (None, mine) for one in namesakes):
            found.append(program.name)
    return found


def _inputs(side: SideTables, program: ProgramIdentity) -> Counter[str] | None:
    """Shapes of the entry's parameters; None where they are not known."""
    entry = [one for one in side.instructions.get(program, ()) if one.is_entry and one.opcode == "parameter"]
    return Counter(plain_shape(one.shape) for one in entry) if entry else None


OpName = tuple[str, str]
"""Program's name, empty where the op has none, and the op's."""

StepTimes = dict[OpName, Int64s]
"""Self time in ps in each of some steps, `[n_steps]`."""

MOST_STEPS = 200
"""Steps of the original that are compared at most, where they are not the target's own."""

MOST_OPS = 20
"""Ops kept in the result, the largest; the cosine is of all."""

LEAST_COSINE = 0.98
"""Op vectors closer than this are of the same work."""

LEAST_STRETCHES = 4
"""Fewer stretches of the original than this do not show how far apart its own steps are."""

_LARGEST_RATIO = 0.9
"""Share of the op time whose ops say by how much the machine was slower."""

_TRIMMED_RATIO = 0.1
"""Share of the steps that is left out at either end; one at least, where there are three."""

_ALIKE = 0.1
"""Ops within this part of the common factor are slower alike."""


@dataclass(frozen=True)
class ComparedOp:
    """One op on both sides.

    Attributes:
        program: name of its program, null for an op of none.
        op: its name.
        original_ps, replay_ps: typical self time in a step.
    """

    program: str | None
    op: str
    original_ps: int
    replay_ps: int


@dataclass(frozen=True)
class OpMatch:
    """The op vectors of both sides.

    Attributes:
        cosine: of the angle between the ops' typical times, 0–1; null where there are not two vectors.
        cosine_of_means: of that between their mean times.
        same_steps: whether both are of the same step numbers; else the original's is of all it captured of the phase.
        original_steps, replay_steps: captured steps that the vectors are of.
        renamed: ops that have another name in an equal program, and were matched by their place in it.
        own_cosine: what two stretches of as many captured steps of the phase in the original come to, in 95 % of cases
            at least; null where it has too few, or where nothing depends on it.
        apart_ratio: share of the time of either side that goes into ops which the other does not have, 0–1.
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
    cosine_of_means: float | None = None
    own_cosine: float | None = None
    apart_ratio: float | None = None
    factor: float | None = None
    alike_ratio: float | None = None
    only_original: tuple[str, ...] = ()
    only_replay: tuple[str, ...] = ()
    ops: tuple[ComparedOp, ...] = ()
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
    same = len(base) == int(mine.sum())  # a stretch that the original saw in part is not known well enough
    base = base if same else original.is_captured(phase_rows)
    if not len(base):
        return OpMatch(None, False, 0, len(theirs), reason="no window of the original captured a step of the phase")
    if same:  # one step may lie beyond the window on either side
        both = mine & np.isin(common.original, base) & np.isin(common.replay, theirs)
        base, theirs = (common.original[both], common.replay[both]) if both.any() else (base, theirs)
    before, after = _step_times(original, base), _step_times(replay, theirs)
    names = {} if after.keys() <= before.keys() else renamed_ops(original, replay)
    renamed = len(names.keys() & after.keys())
    after = _under_names(after, names) if renamed else after
    found = _compare(before, after, OpMatch(None, same, len(base), len(theirs), renamed))
    if found.cosine is None or found.cosine >= LEAST_COSINE:
        return found
    return replace(found, own_cosine=_own_cosine(_step_times(original, original.is_captured(phase_rows)), len(theirs)))


def _step_times(side: SideTables, rows: Int64s) -> StepTimes:
    """Self time by op in some captured steps; of very many steps some, evenly spread."""
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_STEPS)).astype(np.int64))]
    columns = side.columns
    place = np.searchsorted(np.sort(rows), side.captured.row[columns.index])
    kept = np.isin(side.captured.row[columns.index], rows)
    used, op = renumber(columns.op[kept])
    times = np.zeros((len(used), len(rows)), np.int64)
    np.add.at(times, (op, place[kept]), columns.self_ps[kept])
    found: StepTimes = {}
    for i, values in zip(used.tolist(), times, strict=True):
        key = columns.keys[i]
        name = key.program or "", key.op
        found[name] = found[name] + values if name in found else values
    return found


def _under_names(times: StepTimes, names: dict[OpName, str]) -> StepTimes:
    """The same times under the names that `names` gives to some ops; they are exchanged all at once."""
    found: StepTimes = {}
    for name, values in times.items():
        other = name[0], names.get(name, name[1])
        found[other] = found[other] + values if other in found else values
    return found


def _compare(before: StepTimes, after: StepTimes, match: OpMatch) -> OpMatch:
    names = sorted(before.keys() | after.keys())
    base, run = ([_typical(side.get(name)) for name in names] for side in (before, after))
    cosine = _cosine(base, run)
    if cosine is None:
        side = "replay" if any(base) else "original"
        return replace(match, reason=f"no op took time in the captured steps of the {side}")
    factor, alike = _common_factor(np.array(base), np.array(run))
    means = ([float(side[name].mean()) if name in side else 0.0 for name in names] for side in (before, after))
    largest = sorted(range(len(names)), key=lambda i: -max(base[i], run[i]))[:MOST_OPS]
    return replace(
        match,
        cosine=cosine,
        cosine_of_means=_cosine(*means),
        apart_ratio=max(_only_ratio(before, after, base, names), _only_ratio(after, before, run, names)),
        factor=factor,
        alike_ratio=alike,
        only_original=tuple(_shown(name) for name in names if name not in after),
        only_replay=tuple(_shown(name) for name in names if name not in before),
        ops=tuple(ComparedOp(names[i][0] or None, names[i][1], round(base[i]), round(run[i])) for i in largest),
    )


def _typical(step_ps: Int64s | None) -> float:
    """Time of an op in a step: its trimmed mean over the steps in which it ran, times the share of these."""
    ran = np.sort(step_ps[step_ps > 0]) if step_ps is not None else np.empty(0, np.int64)
    if step_ps is None or not len(ran):
        return 0.0
    cut = min(max(round(_TRIMMED_RATIO * len(ran)), 1), (len(ran) - 1) // 2)
    return float(ran[cut : len(ran) - cut].mean()) * len(ran) / len(step_ps)


def _cosine(base: Sequence[float], run: Sequence[float]) -> float | None:
    length = float(np.linalg.norm(base) * np.linalg.norm(run))
    return min(float(np.dot(base, run)) / length, 1.0) if length else None


def _only_ratio(mine: StepTimes, theirs: StepTimes, times: Sequence[float], names: Sequence[OpName]) -> float:
    """Share of one side's time in ops that the other does not have."""
    only = sum(time for name, time in zip(names, times, strict=True) if name in mine and name not in theirs)
    return only / (sum(times) or 1.0)


def _own_cosine(times: StepTimes, length: int) -> float | None:
    """The angle between neighbouring stretches of so many steps within one side: its 5 % quantile."""
    n = min((len(values) for values in times.values()), default=0)
    stretches = [slice(i, i + length) for i in range(0, n - length + 1, length)]
    if len(stretches) < LEAST_STRETCHES:
        return None
    vectors = [[_typical(values[part]) for values in times.values()] for part in stretches]
    found = [_cosine(*pair) for pair in itertools.pairwise(vectors)]
    return float(np.quantile([0.0 if one is None else one for one in found], 0.05))


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
