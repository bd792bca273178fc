"""From strata to totals: what captured steps went into, exactly, plus what the others did by the shares of each cell.

How sure that is follows from the scatter of these shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import apportion, satterthwaite_freedom, t_quantile
from phasepoint.estimates.captured import COMPILING, INPUT, N_WORK, PARTS, UNATTRIBUTED, Sampled, Stratum
from phasepoint.estimates.cells import (
    BASE,
    BOUND_PRIOR,
    COMPILE,
    FAR,
    GROUP_PRIOR,
    LONG,
    WAIT,
    CellShares,
    Fit,
    bounded_scatter,
    exposed_part,
)
from phasepoint.estimates.op_columns import OpKey
from phasepoint.phases.clock.accounting import closed
from phasepoint.phases.clock.breakdown import ESTIMATED, FEW, MEASURED, Breakdown, OpTime, PartTime

N_WAITS = len(PARTS) - N_WORK


LEAST_BY_CHANCE = 3
"""Windows that chance opened from which on they tell of other steps: with two, the scatter rests on one difference, and
a 95 % interval is 12.7 standard errors wide to each side (Student's t, one degree of freedom); with three, 4.3."""
MOSTLY_CAPTURED = 0.5
"""Ratio of the time from which on it does not matter how the windows were opened: most of it was seen."""


@dataclass(frozen=True)
class WindowCounts:
    """How a phase, or the run, was captured.

    Attributes:
        windows: windows with a step of it.
        by_chance: those of them that chance opened.
        steps: captured steps.
        seen_ratio: their part of its time.
    """

    windows: int
    by_chance: int
    steps: int
    seen_ratio: float

    @property
    def basis(self) -> str:
        """How its breakdown is known: the one place that says how many windows are few."""
        if self.steps and self.seen_ratio == 1:
            return MEASURED
        return FEW if self.by_chance < LEAST_BY_CHANCE and self.seen_ratio < MOSTLY_CAPTURED else ESTIMATED


def count_windows(sample: Sampled, phase: int | None = None, *, members: Sequence[int] | None = None) -> WindowCounts:
    """How a phase, the run (None), or some strata (`members`) were captured."""
    if members is None:
        members = [i for i, s in enumerate(sample.strata) if phase in (None, s.phase)]
    strata = [sample.strata[i] for i in members]
    mine = np.isin(sample.of_captured, members)
    total_ps, rest_ps = (sum(getattr(s, name) for s in strata) for name in ("total_ps", "rest_ps"))
    return WindowCounts(
        windows=len(np.unique(sample.cluster[mine])),
        by_chance=len(np.unique(sample.cluster[mine & ~np.isnan(sample.captured.weight)])),
        steps=int(mine.sum()),
        seen_ratio=1 - rest_ps / total_ps if total_ps else float(mine.any()),
    )


@dataclass(frozen=True, eq=False)
class UncapturedSteps:
    """The uncaptured steps of every stratum.

    Attributes:
        parts_ps: `[n_strata, len(PARTS)]` integers that add up to each stratum's rest_ps.
        extra: `[n_strata, k]`.
        known: `[n_strata]`, False where no window says anything: those parts_ps are 0.
    """

    parts_ps: Int64s
    extra: Floats
    known: Bools


def predict_rest(fit: Fit, strata: Sequence[Stratum]) -> UncapturedSteps:
    """Shares times sizes, made integers that close on each stratum's time."""
    k = len(fit.spread) - N_WORK
    parts = np.zeros((len(strata), len(PARTS)), np.int64)
    extra, known = np.zeros((len(strata), k)), np.zeros(len(strata), bool)
    for index, stratum in enumerate(strata):
        base = fit.base[fit.cells.group[index]]
        if base is None:
            continue
        known[index] = True
        sizes = fit.cells.rest[index]
        work = base.ratio * sizes[BASE]
        for shares, cell in ((fit.long, LONG), (fit.far, FAR)):
            work = work + (shares or base).ratio * sizes[cell]
        waits = [exposed_part(fit.cells.input) * sizes[WAIT], exposed_part(fit.cells.compiling) * sizes[COMPILE]]
        exact = np.maximum(np.concatenate([work[:N_WORK], waits]), 0)
        parts[index] = apportion(stratum.rest_ps, exact) if exact.any() else 0
        extra[index] = np.maximum(work[N_WORK:], 0)
    return UncapturedSteps(parts, extra, known)


def step_work(fit: Fit, stratum: Int64s, quantities: slice) -> Floats:
    """What each step's work went into by the shares of its cells: `[n_steps, m]`, unrounded.

    Args:
        fit: shares and sizes.
        stratum: `[n_steps]`.
        quantities: which `m` of the `N_WORK` parts of work and the extras after them.
    """
    shares = np.zeros((len(fit.cells.group), 3, len(fit.spread[quantities])))
    for index, group in enumerate(fit.cells.group.tolist()):
        base = fit.base[group]
        if base is not None:
            shares[index] = [found.ratio[quantities] for found in (base, fit.long or base, fit.far or base)]
    base, long, far = (fit.cells.sizes[:, cell, None] * shares[stratum, cell] for cell in (BASE, LONG, FAR))
    return np.asarray(base + long + far)


def step_parts(fit: Fit, stratum: Int64s, dur_ps: Int64s) -> Int64s:
    """What each step's time went into by the shares of its cells: `[n_steps, len(PARTS)]`, adding up to dur_ps.

    Args:
        fit: shares and sizes; at least one step was captured.
        stratum: `[n_steps]`.
        dur_ps: `[n_steps]`.
    """
    exact = np.zeros((len(dur_ps), len(PARTS)))
    exact[:, :N_WORK] = step_work(fit, stratum, slice(N_WORK))
    exact[:, N_WORK] = exposed_part(fit.cells.input) * fit.cells.sizes[:, WAIT]
    exact[:, N_WORK + 1] = exposed_part(fit.cells.compiling) * fit.cells.sizes[:, COMPILE]
    exact = np.maximum(exact, 0)
    scale = dur_ps / np.maximum(exact.sum(axis=1), 1e-300)
    parts: Int64s = np.floor(exact * scale[:, None] * (1 - 1e-12)).astype(np.int64)
    parts[np.arange(len(parts)), exact.argmax(axis=1)] += dur_ps - parts.sum(axis=1)
    return parts


def half_widths(fit: Fit, members: Sequence[int], confidence: float, *, summed: Floats | None = None) -> list[int]:
    """Half the interval of each quantity over some strata, in ps, rounded up.

    Args:
        fit: shares and sizes.
        members: the strata.
        confidence: of the interval.
        summed: `[len(PARTS) + k]` zeros and ones: the sum of these quantities instead of each; its scatter is taken
            to be no more than that of its members together.
    """
    variances, freedoms = part_variances(fit, members)
    if not len(variances):
        return [0] * (N_WAITS + len(fit.spread))
    freedom = satterthwaite_freedom(variances, freedoms)
    deviation = np.sqrt(variances.sum(axis=0))
    reach = np.array([t_quantile(0.5 + confidence / 2, min(f, 1e9)) for f in freedom.tolist()])
    half = np.ceil(deviation * reach)
    if summed is not None:
        return [int(np.ceil(np.sqrt((half[summed > 0] ** 2).sum())))]
    return [int(width) for width in half.tolist()]


def part_variances(fit: Fit, members: Sequence[int]) -> tuple[Floats, Floats]:
    """One row of variances `[len(PARTS) + k]` per source of error, and their degrees of freedom.

    Args:
        fit: shares and sizes.
        members: the strata that are added up.
    """
    rows: list[Floats] = []
    freedoms: list[float] = []
    chosen = np.array(members, np.int64)
    composition = np.zeros(len(fit.spread))
    groups = np.unique(fit.cells.group[chosen]).tolist()
    alike = design_effect(fit, dict(zip(groups, _rest_by_group(fit, chosen, groups), strict=True)))
    for group in groups:
        mine = chosen[fit.cells.group[chosen] == group]
        base = fit.base[group]
        if base is None:
            continue
        sizes, squares = fit.cells.rest[mine].sum(axis=0), fit.cells.squares[mine].sum(axis=0)
        rows.append(_with_waits(base.variance(sizes[BASE], squares[BASE]) * alike.factor))
        freedoms.append(min(base.freedom, alike.freedom / len(groups)))
        lent = mine[fit.cells.borrowed[mine]]
        if len(lent):
            rows.append(_with_waits(fit.spread * float((fit.cells.rest[lent, BASE] ** 2).sum())))
            freedoms.append(np.inf)
        for shares, cell in ((fit.long, LONG), (fit.far, FAR)):
            if shares is None:
                unknown = CellShares(base.ratio, bounded_scatter(base.ratio, 1), 1.0, np.inf)
                rows.append(_with_waits(unknown.variance(sizes[cell], squares[cell])))
                freedoms.append(np.inf)
        composition = np.maximum(composition, base.ratio)
    sizes, squares = fit.cells.rest[chosen].sum(axis=0), fit.cells.squares[chosen].sum(axis=0)
    for shares, cell in ((fit.long, LONG), (fit.far, FAR)):
        if shares is not None:
            rows.append(_with_waits(shares.variance(sizes[cell], squares[cell])))
            freedoms.append(shares.freedom)
    for column, (shares, cell) in enumerate(((fit.cells.input, WAIT), (fit.cells.compiling, COMPILE))):
        if shares is not None:
            variance = float(shares.variance(sizes[cell], squares[cell])[0])
            # What is not exposed of a wait is work: the error moves from one to the other.
            row = _with_waits(composition**2 * variance)
            row[N_WORK + column] = variance
            rows.append(row)
            freedoms.append(shares.freedom)
    return np.array(rows), np.array(freedoms)


@dataclass(frozen=True, eq=False)
class DesignEffect:
    """What it costs that several hosts were seen in the same steps.

    Attributes:
        factor: `[k]`, variance of a sum over hosts as a multiple of what it were if their windows were independent.
        freedom: degrees of freedom of the sum's variance at most: by ranges of steps.
    """

    factor: Floats
    freedom: float


def design_effect(fit: Fit, rest: Mapping[int, float]) -> DesignEffect:
    """How much the errors of the hosts' base shares go together, drawn towards that all do, as `BOUND_PRIOR` ranges.

    Args:
        fit: shares and sizes.
        rest: group → size of the base that its shares are applied to.
    """
    told = [(size, fit.errors[group]) for group, size in rest.items()] if fit.errors else []
    errors = [(found.range, size * found.error) for size, found in told if found is not None]
    if len(errors) < 2:
        return DesignEffect(np.ones(len(fit.spread)), np.inf)
    ranges, number = renumber(np.concatenate([which for which, _ in errors]))
    error = np.concatenate([moved for _, moved in errors])
    sums, most = np.zeros((2, len(ranges), error.shape[1]))
    np.add.at(sums, number, error)
    np.add.at(most, number, np.abs(error))
    apart = np.maximum((error**2).sum(axis=0), 1e-300)
    together, at_most = (sums**2).sum(axis=0) / apart, (most**2).sum(axis=0) / apart
    factor = (len(ranges) * together + BOUND_PRIOR * at_most) / (len(ranges) + BOUND_PRIOR)
    return DesignEffect(np.maximum(factor, 1.0), len(ranges) - 1 + GROUP_PRIOR)


def _rest_by_group(fit: Fit, chosen: Int64s, groups: Sequence[int]) -> list[float]:
    """Size of the base that each group's shares are applied to."""
    sizes = np.bincount(fit.cells.group[chosen], fit.cells.rest[chosen, BASE])
    return [float(size) for size in sizes[groups]]


def _with_waits(work: Floats) -> Floats:
    """Work and extras with room for the waits between them, in the order of PARTS."""
    return np.insert(work, N_WORK, np.zeros(N_WAITS))


OTHER = "other"


@dataclass(frozen=True, eq=False)
class Totals:
    """Everything known and estimated of every stratum, ready to be added up for the run or for one phase.

    Attributes:
        strata: of the run.
        fit: shares and sizes.
        rest: of the uncaptured steps.
        seen_parts: `[n_strata, len(PARTS)]` ps of the captured steps.
        seen_extra: `[n_strata, 2 * len(op_keys)]`: self times, then executions, of the captured steps.
        op_keys: the ops of the extras; the last one stands for all that are not named.
        confidence: of the intervals.
    """

    strata: Sequence[Stratum]
    fit: Fit
    rest: UncapturedSteps
    seen_parts: Int64s
    seen_extra: Int64s
    op_keys: Sequence[OpKey]
    confidence: float

    def breakdown(self, phase: int | None, counts: WindowCounts, notes: tuple[str, ...]) -> Breakdown:
        """The time of a phase, or of the run, by parts that add up to it.

        Args:
            phase: its id; None for the run.
            counts: how it was captured.
            notes: for the reader.
        """
        return self.breakdown_of(self._members(phase), counts, notes)

    def breakdown_of(self, members: list[int], counts: WindowCounts, notes: tuple[str, ...]) -> Breakdown:
        """The same of some strata."""
        total_ps = sum(self.strata[i].total_ps for i in members)
        seen = self.seen_parts[members].sum(axis=0)
        rest = self.rest.parts_ps[members].sum(axis=0)
        half = half_widths(self.fit, members, self.confidence)
        most_ps = self._most(members, seen, total_ps)
        unknown_ps = sum(self.strata[i].rest_ps for i in members) - int(rest.sum())
        parts = []
        for index, name in enumerate(PARTS):
            time_ps = int(seen[index]) + int(rest[index]) + (unknown_ps if name == UNATTRIBUTED else 0)
            low_ps = min(max(int(seen[index]), time_ps - half[index]), time_ps)
            high_ps = max(min(time_ps + half[index], most_ps[index]), time_ps)
            share = time_ps / total_ps if total_ps else 0.0
            basis = UNATTRIBUTED if name == UNATTRIBUTED else MEASURED if counts.basis == MEASURED else ESTIMATED
            parts.append(PartTime(name, time_ps, low_ps, high_ps, share, basis))
        of_windows = (counts.windows, counts.steps, self.confidence)
        return closed(Breakdown(total_ps, tuple(parts), *of_windows, notes, counts.basis))

    def top_ops(self, phase: int | None, n_top: int, *, basis: str = ESTIMATED) -> tuple[OpTime, ...]:
        """The largest ops of a phase, or of the run, by self time, and `other`; empty where none was captured.

        Args:
            phase: its id; None for the run.
            n_top: how many.
            basis: of its breakdown; with few windows the ops of the captured steps alone.
        """
        members, n = self._members(phase), len(self.op_keys)
        if not n:
            return ()
        seen = self.seen_extra[members].sum(axis=0)
        rest = np.rint(self.rest.extra[members].sum(axis=0)) * (basis != FEW)
        total = [int(a) + int(b) for a, b in zip(seen, rest, strict=True)]
        half = [0] * len(seen) if basis == FEW else half_widths(self.fit, members, self.confidence)[len(PARTS) :]
        most_ps = self._most_of_ops(members, seen[:n])
        all_ps = sum(total[:n])
        order = sorted((i for i in range(n - 1) if total[i]), key=lambda i: (-total[i], self.op_keys[i].op))[:n_top]
        listed = [
            _op_time(self.op_keys[i], total[n + i], total[i], (int(seen[i]), half[i], most_ps), all_ps) for i in order
        ]
        left = [i for i in range(n) if i not in order]
        other_ps = sum(total[i] for i in left)
        if other_ps:
            summed = np.zeros(len(PARTS) + 2 * n)
            summed[[len(PARTS) + i for i in left]] = 1
            half_ps = 0 if basis == FEW else half_widths(self.fit, members, self.confidence, summed=summed)[0]
            known = (sum(int(seen[i]) for i in left), half_ps, most_ps)
            listed.append(_op_time(OpKey(OTHER, "mixed", None, None), None, other_ps, known, all_ps))
        return tuple(listed)

    def _most_of_ops(self, members: Sequence[int], seen: Int64s) -> int:
        """What the other steps can add to an op at most: all their time, on as many threads as ops ran side by side."""
        rest_ps = sum(self.strata[i].rest_ps for i in members)
        seen_ps = sum(self.strata[i].total_ps for i in members) - rest_ps
        return int(rest_ps * max(float(seen.sum()) / max(seen_ps, 1), 1.0))

    def _most(self, members: Sequence[int], seen: Int64s, total_ps: int) -> list[int]:
        """What each part can be at most: `input` and `compiling` are parts of waits that the clock measured."""
        most_ps = [total_ps] * len(PARTS)
        for part, cell in ((INPUT, WAIT), (COMPILING, COMPILE)):
            index = PARTS.index(part)
            most_ps[index] = int(seen[index]) + int(self.fit.cells.rest[members, cell].sum())
        return most_ps

    def _members(self, phase: int | None) -> list[int]:
        return [i for i, stratum in enumerate(self.strata) if phase is None or stratum.phase == phase]


def _op_time(key: OpKey, count: int | None, self_ps: int, known: tuple[int, int, int], all_ps: int) -> OpTime:
    """`known`: the part that was captured, half the interval, and what the other steps can add at most."""
    seen_ps, half_ps, most_ps = known
    return OpTime(
        op=key.op,
        category=key.category,
        layer=key.layer,
        program=key.program,
        count=count,
        self_ps=self_ps,
        low_ps=min(max(seen_ps, self_ps - half_ps), self_ps),
        high_ps=max(min(self_ps + half_ps, seen_ps + most_ps), self_ps),
        share=self_ps / all_ps if all_ps else 0.0,
    )
