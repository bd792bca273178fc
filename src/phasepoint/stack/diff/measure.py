"""The figures of a comparison: times of both sides, changes, and how sure each is.

What a layer's ops would have taken had they changed as their like did in the rest of the network.

A recording runs on a machine that is faster or slower than at the last one: by several percent as a whole, and by more
for ops that wait for memory than for those that compute. So an op is held against ops of its kind in other layers (same
direction, name and shape), or, where there are fewer than three, against all. What is left is the layer's own change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.stack.diff.alignment import LEAST_OF_KIND, Alignment
from phasepoint.stack.diff.noise import Judged, Locations, Prior, between_ratio, jackknife, judge, prior_with_repeats
from phasepoint.stack.diff.sides import SideRecording, Sides

MOST_WEIGHT = 0.05
"""Largest share of all time with which one op weighs in the median over all ops."""


@dataclass(frozen=True, eq=False)
class LogChange:
    """What changed between two sides.

    Attributes:
        common: log ratio of everything: the weighted median of the ops'.
        kinds: `[n_kinds]`, log ratio of each kind beyond `common`; NaN where the kind is in too few layers.
        ops: `[n_ops]`, log ratio of each op beyond what its kind did; NaN for ops of one side.
        layers: `[n_layers]`, log ratio of each layer beyond what its ops' kinds did; NaN for layers of one side.
        expected_ps: `[n_ops]`, what each op would take had it changed as its kind did.
    """

    common: float
    kinds: Floats
    ops: Floats
    layers: Floats
    expected_ps: Floats

    @property
    def logs(self) -> Floats:
        """`common`, `kinds`, `ops` and `layers`, one after another."""
        return np.concatenate([[self.common], self.kinds, self.ops, self.layers])


def change_between(alignment: Alignment, base_ps: Floats, run_ps: Floats) -> LogChange:
    """Tell what changed everywhere from what changed in one place.

    Args:
        alignment: of the ops.
        base_ps: `[n_ops]`, time per step in the base, 0 where it has no such op.
        run_ps: `[n_ops]`, likewise in the run.
    """
    both = (base_ps > 0) & (run_ps > 0)
    ratio = np.full(len(base_ps), np.nan)
    ratio[both] = np.log(run_ps[both] / base_ps[both])
    weight = np.minimum(base_ps, MOST_WEIGHT * base_ps.sum())
    common = weighted_median(ratio[both], weight[both]) if both.any() else 0.0
    code, found = alignment.kind_codes
    kinds = _kind_medians(ratio, np.where(both, code, -1), len(found))
    of_kind = np.where(np.isnan(kinds), common, kinds)[code] if len(code) else np.zeros(0)
    expected_ps = base_ps * np.exp(of_kind)
    with np.errstate(divide="ignore", invalid="ignore"):
        layers = np.log(alignment.inside @ run_ps) - np.log(alignment.inside @ expected_ps)
    return LogChange(
        common, kinds - common, ratio - of_kind, np.where(np.isfinite(layers), layers, np.nan), expected_ps
    )


def weighted_median(values: Floats, weights: Floats) -> float:
    """The value with half of the weight on either side; between two, the mean of both.

    Args:
        values: `[n]`, n ≥ 1.
        weights: `[n]`, not negative, not all 0.
    """
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    low = int(np.searchsorted(below, 0.5 - 1e-12))
    high = int(np.searchsorted(below, 0.5 + 1e-12))
    return float(values[order[low]] + values[order[min(high, len(order) - 1)]]) / 2


def _kind_medians(ratio: Floats, code: Int64s, n_kinds: int) -> Floats:
    """Median log ratio of each kind, `[n_kinds]`; NaN where fewer than `LEAST_OF_KIND` ops have one."""
    order = np.lexsort((ratio, code))
    order = order[code[order] >= 0]
    n = np.bincount(code[order], minlength=n_kinds)
    first = np.cumsum(n) - n
    medians = np.full(n_kinds, np.nan)
    enough = n >= LEAST_OF_KIND
    ranked = ratio[order]
    medians[enough] = (ranked[(first + (n - 1) // 2)[enough]] + ranked[(first + n // 2)[enough]]) / 2
    return medians


LIKE = Prior(0.1, 6.0)
"""Between recordings, of what is held against its like in other layers. Measured 2026-11-21 on two shared x86-64 cores,
13 recordings of one job: 0.02 to 0.15 times the scatter of single steps."""

ALONE = Prior(0.8, 4.0)
"""Likewise where there is no like to hold it against: 0.7 to 0.9 times."""

WHOLE = Prior(1.0, 3.0)
"""Likewise of the whole step, which has the machine's speed in it: 0.3 to 1.3 times."""

LEAST_CHANGE = 0.01
"""Smaller changes of a layer or op are not worth a name: where a program's memory lies makes that much."""

_USUAL_EXCESS = 1.5
"""Scatter beyond so many times that of its like is not the op's own: it waits for something."""

_LEAST_STEP_SCATTER = 0.02
"""Machines do not repeat a step's time better than this from one process to the next."""


@dataclass(frozen=True, eq=False)
class MeasuredSides:
    """Times per step and judged changes. A side's time is the mean of its recordings'.

    Attributes:
        sides: what was compared.
        base_ps, run_ps: `[n_ops]`.
        change: what changed everywhere, by kind, by layer, by op.
        common, kinds, ops, layers: the same, judged.
        whole: judged log ratios of each layer and op as they are, one after another.
        step, mean_step, categories: judged log ratios of their times.
        outside: of the time in which no op runs, as it is or beyond `common`, whichever is less.
    """

    sides: Sides
    base_ps: Floats
    run_ps: Floats
    change: LogChange
    common: Judged
    kinds: Judged
    ops: Judged
    layers: Judged
    whole: Judged
    step: Judged
    mean_step: Judged
    outside: Judged
    categories: Judged

    @property
    def has_common_ops(self) -> bool:
        """Whether any op is in both sides."""
        return bool(((self.base_ps > 0) & (self.run_ps > 0)).any())


def measure(sides: Sides) -> MeasuredSides:
    """Compare two sides."""
    alignment = sides.alignment
    base_ps, run_ps = (side_times(side, "ops") for side in (sides.base, sides.run))
    change = change_between(alignment, base_ps, run_ps)
    replicates = _replicates(sides, "ops", lambda a, b: _all_logs(alignment, a, b))
    within = jackknife(replicates)
    like, alone = _op_noise(sides)
    share = _shares(alignment, change.expected_ps, run_ps)
    layer_like, layer_alone = share @ like, share @ alone
    n_kinds, n_ops = len(change.kinds), len(base_ps)
    cut = np.cumsum([1, n_kinds, n_ops, len(alignment.layers)])
    parts = [slice(0, 1), slice(cut[0], cut[1]), slice(cut[1], cut[2]), slice(cut[2], cut[3]), slice(cut[3], None)]
    logs = _all_logs(alignment, base_ps, run_ps)
    jack = [replace(within, variance=within.variance[p], freedom=within.freedom[p]) for p in parts]
    known = jack[3].variance + (ALONE.ratio * layer_alone) ** 2
    large = (alignment.inside @ base_ps) > 0.005 * base_ps.sum() if n_ops else np.zeros(0, bool)
    fitted = between_ratio(logs[parts[3]][large], known[large], layer_like[large], LIKE)
    single_steps = [one.step_scatter**2 for one in (*sides.base, *sides.run)]
    scatter = max(float(np.sqrt(np.mean(single_steps))), _LEAST_STEP_SCATTER)
    step_noise, mean_noise = (_whole_noise(sides, of, scatter) for of in ("steps", "mean_steps"))
    whole_scatter = np.full(1, scatter * sides.spread)
    n_whole = len(logs) - cut[3]
    return MeasuredSides(
        sides=sides,
        base_ps=base_ps,
        run_ps=run_ps,
        change=change,
        common=judge(logs[parts[0]], jack[0], (whole_scatter, step_noise)),
        kinds=judge(logs[parts[1]], jack[1], (_rms(sides, "kind_scatter"), ALONE)),
        ops=judge(logs[parts[2]], jack[2], (like, fitted), (alone, ALONE), least=LEAST_CHANGE),
        layers=judge(logs[parts[3]], jack[3], (layer_like, fitted), (layer_alone, ALONE), least=LEAST_CHANGE),
        whole=judge(logs[parts[4]], jack[4], (np.repeat(whole_scatter, n_whole), step_noise)),
        step=_judge_times(sides, "steps", whole_scatter, step_noise),
        mean_step=_judge_times(sides, "mean_steps", whole_scatter, mean_noise),
        outside=_judge_outside(sides, change.common),
        categories=_judge_times(sides, "categories", whole_scatter, step_noise),
    )


def side_times(side: Sequence[SideRecording], of: str) -> Floats:
    """Mean of the recordings' times, `[n_rows]`; `of` names one of their `Locations`."""
    return np.asarray(np.mean([getattr(one, of).whole_ps for one in side], axis=0), np.float64)


def _all_logs(alignment: Alignment, base_ps: Floats, run_ps: Floats) -> Floats:
    """Common, kinds, ops and layers beyond their like; then layers and ops as they are."""
    change = change_between(alignment, base_ps, run_ps)
    layers = _log_ratio(alignment.inside @ base_ps, alignment.inside @ run_ps)
    return np.concatenate([change.logs, layers, _log_ratio(base_ps, run_ps)])


def _log_ratio(base_ps: Floats, run_ps: Floats) -> Floats:
    known = (base_ps > 0) & (run_ps > 0)
    ratio = np.divide(run_ps, base_ps, out=np.full(len(base_ps), np.nan), where=known)
    return np.asarray(np.log(ratio), np.float64)


def _replicates(sides: Sides, of: str, compare: Callable[[Floats, Floats], Floats]) -> list[Floats]:
    """For each recording `[n_groups, n_logs]`: the comparison with each of its groups left out."""
    base_ps, run_ps = (side_times(side, of) for side in (sides.base, sides.run))
    width = len(compare(base_ps, run_ps))
    found = []
    for one in (*sides.base, *sides.run):
        in_base = any(one is other for other in sides.base)
        side, mean_ps = (sides.base, base_ps) if in_base else (sides.run, run_ps)
        times: Locations = getattr(one, of)
        moved = mean_ps + (times.without_ps - times.whole_ps) / len(side)
        logs = [compare(ps, run_ps) if in_base else compare(base_ps, ps) for ps in moved]
        found.append(np.array(logs, np.float64).reshape(len(moved), width))
    return found


def _whole_noise(sides: Sides, of: str, scatter: float) -> Prior:
    """Noise between recordings of a step time: what repeats of each side differ by, and what is known before."""
    logs = [np.log([float(getattr(one, of).whole_ps[0]) for one in side]) for side in (sides.base, sides.run)]
    return prior_with_repeats(logs, scatter, WHOLE)


def _judge_times(sides: Sides, of: str, scatter: Floats, noise: Prior) -> Judged:
    logs = _log_ratio(*(side_times(side, of) for side in (sides.base, sides.run)))
    within = jackknife(_replicates(sides, of, _log_ratio))
    return judge(logs, within, (np.repeat(scatter, len(logs)), noise))


def _judge_outside(sides: Sides, common: float) -> Judged:
    """What the host does need not follow the device's speed: the lesser of both changes, none where they disagree."""
    alone = _log_ratio(*(side_times(side, "outside") for side in (sides.base, sides.run)))
    beyond = alone - common
    logs = np.where(alone * beyond > 0, np.sign(alone) * np.minimum(np.abs(alone), np.abs(beyond)), 0.0 * alone)
    within = jackknife(_replicates(sides, "outside", _log_ratio))
    return judge(logs, within, (_rms(sides, "outside_scatter"), ALONE), least=LEAST_CHANGE)


def _rms(sides: Sides, of: str) -> Floats:
    """What the recordings' scatter does to the difference of the sides; `of` names it."""
    squares = [np.mean([getattr(one, of) ** 2 for one in side], axis=0) / len(side) for side in (sides.base, sides.run)]
    return np.atleast_1d(np.sqrt(squares[0] + squares[1]))


def _op_noise(sides: Sides) -> tuple[Floats, Floats]:
    """Scatter of each op that it has like its kind, and that it has alone, `[n_ops]` each."""
    scatter = _rms(sides, "op_scatter")
    code, kinds = sides.alignment.kind_codes
    order = np.lexsort((scatter, code))
    n = np.bincount(code, minlength=len(kinds))
    middle = scatter[order][np.cumsum(n) - n + (n - 1) // 2] if len(code) else np.zeros(0)
    usual = _USUAL_EXCESS * middle[code] if len(code) else np.zeros(0)
    like = np.where(n[code] >= LEAST_OF_KIND, np.minimum(scatter, usual), 0.0)
    return like, np.sqrt(np.maximum(scatter**2 - like**2, 0.0))


def _shares(alignment: Alignment, expected_ps: Floats, run_ps: Floats) -> Floats:
    """`[n_layers, n_ops]`: share of each op in its layers' time."""
    times = np.maximum(expected_ps, run_ps)
    inside = alignment.inside * times
    return np.asarray(inside / np.maximum(inside.sum(axis=1, keepdims=True), 1.0), np.float64)
