"""The cells of a run's time fitted to its windows: shares of each, and the sizes to which they apply.

From the captured steps to what the others went into: a model whose sizes the step clock knows for every step.

A step's time is cut into cells, each with a size that is known (or nearly so) for every step, captured or not:

    input       its wait for input; the exposed part of it is `input`, the rest was hidden behind work
    compiling   its compilation, likewise
    base        work (time − input − compiling) up to 1.2 × the median work of its phase
    long        work beyond that, of steps of up to 3 × the median
    far         work beyond base of longer steps: whatever makes them so long makes all of it

In each cell every part c has a share that is estimated from the captured steps (ratio estimator, windows as
clusters): for base one set of shares per group of phases, for the others one for the run, since steps that last long
are few and last long for reasons of the machine's. What the others went into is share × size, added over cells.

The variance of a prediction is τ² · ((size of the others / size seen)² · Σ seen x² + Σ others x²), x the cells' sizes
per window: the first term is how well the share is known, the second that what was not seen scatters too. The second
is why sizes matter: one uncaptured step of a second weighs as it should. τ² is the relative scatter between windows,
drawn towards that of the other groups (base) or towards the greatest a share can have, R (1 − R), with the weight of
a few windows, since three windows that happen to agree prove little.

Hosts that capture the same steps do not tell of them independently. What is estimated for the run has the windows of
all hosts over the same steps as one cluster; the errors of the base shares, which each host has for itself, are added
up by such ranges of steps (`DesignEffect`).

Source: Cochran, Sampling Techniques (3rd ed.), ch. 6 (ratio), 9 (clusters of unequal size); Royall, "On Finite
    Population Sampling Theory under Certain Linear Regression Models" (1970), for the variance of a prediction;
    Bhatia and Davis, "A Better Bound on the Variance" (2000), for R (1 − R) and 1/4; Kish, Survey Sampling (1965), 5.4,
    for the design effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import median as median_of
from phasepoint.core.statistics import weighted_median
from phasepoint.estimates.captured import (
    COMPILING,
    INPUT,
    N_WORK,
    PARTS,
    RANGE_STEPS,
    Sampled,
    group_strata,
    step_ranges,
)

BASE_REACH, LONG_REACH = 1.2, 3.0
"""Where the cell base ends, and which steps are far, in medians of a phase's work."""

GROUP_PRIOR = 4.0
"""Windows that the other groups' scatter counts for."""
BOUND_PRIOR = 2.0
"""Windows that the greatest possible scatter counts for."""
MOST_SCATTER = 1 / 4
"""The greatest variance of anything between 0 and 1."""
BORROWED = 1 / 3
"""Variance of a share that may as well be anything, as a part of the greatest at its mean: 1/12 of 1/4."""


@dataclass(frozen=True, eq=False)
class CellSample:
    """One cell of the windows that are used for its shares.

    Attributes:
        x: `[n]`, size per window, above 0.
        y: `[n, k]`, quantities in it.
        weight: `[n]`, 1 / probability up to a factor.
        cluster: `[n]`, number of each window, or of each range of steps.
    """

    x: Floats
    y: Floats
    weight: Floats
    cluster: Int64s

    @property
    def ratio(self) -> Floats:
        """`[k]` Σ weight y / Σ weight x."""
        return np.asarray((self.weight[:, None] * self.y).sum(axis=0) / (self.weight * self.x).sum(), np.float64)


@dataclass(frozen=True, eq=False)
class CellShares:
    """Shares of one cell.

    Attributes:
        ratio: `[k]`.
        scatter: `[k]`, τ²: variance of a window's share.
        known: how well the ratio is known: variance of it over τ² (the sum of squared weights in it).
        freedom: degrees of freedom of τ².
    """

    ratio: Floats
    scatter: Floats
    known: float
    freedom: float

    def variance(self, rest: float, rest_squares: float) -> Floats:
        """Variance `[k]` of what is predicted for a rest of this size and sum of squares."""
        return self.scatter * (rest**2 * self.known + rest_squares)


def cell_shares(sample: CellSample, *, prior: Floats | None = None, occurs: Bools | None = None) -> CellShares:
    """Ratios of one cell with their scatter.

    Args:
        sample: one window or more.
        prior: `[k]`, scatter between windows of the other groups; None to lean on the bound R (1 − R).
        occurs: for that bound: the parts that are known to occur.
    """
    wx, ratio = sample.weight * sample.x, sample.ratio
    weight, lean = GROUP_PRIOR, prior
    if lean is None:
        weight, lean = BOUND_PRIOR, bounded_scatter(ratio, len(sample.x), occurs=occurs)
    own, own_freedom = own_scatter(sample)
    freedom = own_freedom + weight
    return CellShares(ratio, (own + weight * lean) / freedom, float((wx**2).sum() / wx.sum() ** 2), freedom)


def own_scatter(sample: CellSample) -> tuple[Floats, float]:
    """Sum of squared relative residuals `[k]` of one cell, and its degrees of freedom.

    Σ e² / Σ x² falls short by the ratio's own fit: n / (n − 1) for windows of equal size.
    """
    residual = sample.y - sample.x[:, None] * sample.ratio
    squares = float((sample.x**2).sum())
    effective = float(sample.x.sum()) ** 2 / squares
    return (residual**2).sum(axis=0) / squares * effective, effective - 1


def bounded_scatter(ratio: Floats, windows: float = np.inf, *, occurs: Bools | None = None) -> Floats:
    """The greatest variance of a quantity between 0 and 1 with this mean: R (1 − R).

    Args:
        ratio: `[k]`, the first `N_WORK` of them shares of a step's parts; or `[1]`, the exposed share of a wait.
        windows: how many the mean rests on. One more is added in which all parts that are known to occur have like
            shares, so that a part which a few windows did not show is not taken to be impossible; likewise one in
            which half of the wait was exposed.
        occurs: `[N_WORK]`, the parts that are known to occur; by default those of this mean.
    """
    inside = np.clip(ratio, 0, 1)
    if np.isfinite(windows) and len(inside) == 1:
        inside = (windows * inside + 0.5) / (windows + 1)
    occurs = inside[:N_WORK] > 0 if occurs is None else occurs
    if np.isfinite(windows) and len(inside) >= N_WORK and occurs.any():
        inside[:N_WORK] = (windows * inside[:N_WORK] + occurs / occurs.sum()) / (windows + 1)
    return np.asarray(inside * (1 - inside), np.float64)


def cut_work(work_ps: Floats, median_ps: Floats) -> tuple[Floats, Floats, Floats]:
    """Work `[n]` as base, long and far, by the median work of each step's phase `[n]`."""
    base = np.minimum(work_ps, BASE_REACH * median_ps)
    far = np.where(work_ps > LONG_REACH * median_ps, work_ps - base, 0)
    return base, work_ps - base - far, far


LEAST_EXCESS_WINDOWS = 4
"""Time beyond base is rare: below so many random windows that hold some, those opened by choice are used too."""

BASE, LONG, FAR, WAIT, COMPILE = range(5)
N_CELLS = 5  # the cells of the module's docstring
_INPUT, _COMPILING = PARTS.index(INPUT), PARTS.index(COMPILING)


@dataclass(frozen=True, eq=False)
class Cells:
    """The time of a run cut into cells, whatever is estimated by them.

    Attributes:
        group: `[n_strata]`, the group of each stratum.
        borrowed: `[n_strata]`, whether a stratum has too few windows of its own.
        input: share of the wait that is `input`.
        compiling: share of the compilation that is `compiling`.
        sizes: `[n_steps, N_CELLS]`, of every step.
        rest: `[n_strata, N_CELLS]`, sizes of the uncaptured steps.
        squares: `[n_strata, N_CELLS]`, their squares added up by blocks.
    """

    group: Int64s
    borrowed: Bools
    input: CellShares | None
    compiling: CellShares | None
    sizes: Floats
    rest: Floats
    squares: Floats


@dataclass(frozen=True, eq=False)
class Fit:
    """Shares for every cell, and the sizes to which they apply.

    Attributes:
        cells: the sizes.
        base: shares of work per group; None for a group without any window.
        long: shares of work beyond 1.2 medians, of steps of up to 3.
        far: the same of longer steps.
        spread: `[k]`, variance of the base shares from one group to another.
        by_choice: per group, whether windows opened by choice had to stand in for random ones.
        errors: where several hosts were seen, per group how each of its windows moves its base shares; else empty.
    """

    cells: Cells
    base: tuple[CellShares | None, ...]
    long: CellShares | None
    far: CellShares | None
    spread: Floats
    by_choice: tuple[bool, ...]
    errors: tuple["ShareErrors | None", ...] = ()


@dataclass(frozen=True, eq=False)
class ShareErrors:
    """How far each window of a group moves the group's base shares.

    Attributes:
        range: `[n]`, number of the range of steps that each window lies in.
        error: `[n, k]`, weight · (y − x · ratio) / Σ weight x: they add up to nothing.
    """

    range: Int64s
    error: Floats


def cut_cells(sampled: Sampled) -> Cells:
    """The sizes of every step's cells; asked for as `sampled.once(cut_cells)`, since all quantities share them."""
    exposed = _fit_waits(sampled)
    groups = group_strata(sampled.strata, sampled.of_captured, sampled.cluster)
    sizes = _sizes(sampled, exposed, groups)
    rest, squares = _rest(sampled, sizes, groups[1])
    return Cells(*groups, *exposed, np.column_stack(sizes), rest, squares)


def fit_cells(sampled: Sampled, extra: Floats) -> Fit:
    """Estimate the shares of every cell from the captured steps.

    Args:
        sampled: the run seen through its windows.
        extra: `[n_captured, k]`, further quantities that go with work.
    """
    cells, row, weight = sampled.once(cut_cells), sampled.captured.row, sampled.captured.weight
    ranges = sampled.once(step_ranges)
    quantities = np.column_stack([sampled.captured.parts_ps[:, :N_WORK].astype(np.float64), extra])
    base, long, far = (cells.sizes[row, cell] for cell in (BASE, LONG, FAR))
    samples, by_choice = _sample_base(sampled, cells.group, base, base + long + far, quantities)
    shares = tuple(_base_shares(samples))
    left = quantities - _explained(shares, cells.group[sampled.of_captured], base, quantities)
    occurs = np.any(quantities[:, :N_WORK] > 0, axis=0)
    long_shares = _fit_excess(long, left, ranges, weight, occurs)
    if long_shares is not None:
        left = left - long[:, None] * long_shares.ratio
    far_shares = _fit_excess(far, left, ranges, weight, occurs)
    return Fit(
        cells=cells,
        base=shares,
        long=long_shares or _lent(far_shares, occurs),
        far=far_shares or _lent(long_shares, occurs),
        spread=_spread([found.ratio for found in shares if found is not None], quantities.shape[1]),
        by_choice=by_choice,
        errors=() if ranges is sampled.cluster else tuple(_errors(sampled, sample) for sample in samples),
    )


def exposed_part(shares: CellShares | None) -> float:
    """Part of a wait during which the device does nothing; all of it where no captured step waited."""
    return 1.0 if shares is None else float(shares.ratio[0])


def _fit_waits(sampled: Sampled) -> tuple[CellShares | None, CellShares | None]:
    found, parts = [], sampled.captured.parts_ps.astype(np.float64)
    for wait_ps, part in ((sampled.steps.input_ps, _INPUT), (sampled.steps.compile_ps, _COMPILING)):
        size = wait_ps[sampled.captured.row].astype(np.float64)
        sample = _sample(size, parts[:, [part]], sampled.once(step_ranges), sampled.captured.weight)
        found.append(None if sample is None else cell_shares(sample))
    return found[0], found[1]


def _sizes(
    sampled: Sampled, exposed: tuple[CellShares | None, CellShares | None], groups: tuple[Int64s, Bools]
) -> tuple[Floats, ...]:
    """Sizes of all steps `[n_steps]` by cell; work is known of captured steps, predicted of others.

    Args:
        sampled: the run seen through its windows.
        exposed: shares of the waits.
        groups: group of every stratum, and whether it has too few windows of its own. Such a stratum is taken to be
            a slow form of the one that lends its windows: what its steps last longer counts as excess.
    """
    waits = np.column_stack([sampled.steps.input_ps, sampled.steps.compile_ps]).astype(np.float64)
    work = sampled.steps.dur_ps - waits @ np.array([exposed_part(shares) for shares in exposed])
    work[sampled.captured.row] = sampled.captured.parts_ps[:, :N_WORK].sum(axis=1)
    work = np.maximum(work, 0)
    median = np.array([_median(sampled, work, sampled.stratum == i) for i in range(len(sampled.strata))])
    group, borrowed = groups
    for lender in np.flatnonzero(~borrowed).tolist():
        borrowers = borrowed & (group == group[lender])
        median[borrowers] = np.minimum(median[borrowers], median[lender])
    return (*cut_work(work, median[sampled.stratum] if len(median) else work), waits[:, 0], waits[:, 1])


def _sample_base(
    sampled: Sampled, group: Int64s, base: Floats, work: Floats, quantities: Floats
) -> tuple[list[CellSample | None], tuple[bool, ...]]:
    """Base per group, from steps without excess where there are any, and whether by windows of choice.

    Where every step has some, the same part of each quantity is base as of the step's work: else what a long step did
    were taken for what a usual one does.
    """
    mine, chance, clean = group[sampled.of_captured], np.isfinite(sampled.captured.weight), base >= work
    quantities = quantities * np.divide(base, work, out=np.ones_like(base), where=~clean)[:, None]
    samples, by_choice = [], []
    for index in range(int(group.max(initial=-1)) + 1):
        use = mine == index
        use = use & clean if (use & clean).any() else use
        random = len(np.unique(sampled.cluster[use & chance])) >= 2
        samples.append(_sample(np.where(use, base, 0), quantities, sampled.cluster, sampled.captured.weight))
        by_choice.append(not random and not bool(chance[use].all()))
    return samples, tuple(by_choice)


def _errors(sampled: Sampled, sample: CellSample | None) -> ShareErrors | None:
    if sample is None:
        return None
    range_of = np.zeros(int(sampled.cluster.max()) + 1, np.int64)
    range_of[sampled.cluster] = sampled.once(step_ranges)
    residual = sample.y - sample.x[:, None] * sample.ratio
    error = sample.weight[:, None] * residual / (sample.weight * sample.x).sum()
    return ShareErrors(range_of[sample.cluster], np.asarray(error, np.float64))


def _explained(shares: Sequence[CellShares | None], mine: Int64s, base: Floats, quantities: Floats) -> Floats:
    explained = np.zeros_like(quantities)
    for index, found in enumerate(shares):
        if found is not None:
            explained[mine == index] = base[mine == index, None] * found.ratio
    return explained


def _sample(x: Floats, y: Floats, cluster: Int64s, weight: Floats, least: int = 2) -> CellSample | None:
    """Sums per window, over windows opened by chance where there are enough, else over all, weighing alike."""
    n = int(cluster.max(initial=-1)) + 1
    use = x > 0
    chance = use & np.isfinite(weight)
    random = len(np.unique(cluster[chance])) >= least
    use = chance if random else use
    if not use.any():
        return None
    sums_x, sums_y = np.zeros(n), np.zeros((n, y.shape[1]))
    np.add.at(sums_x, cluster[use], x[use])
    np.add.at(sums_y, cluster[use], y[use])
    of_window = np.ones(n)
    if random:
        of_window[cluster[use]] = weight[use]
    kept = sums_x > 0
    return CellSample(sums_x[kept], sums_y[kept], of_window[kept], np.flatnonzero(kept))


def _base_shares(samples: Sequence[CellSample | None]) -> list[CellShares | None]:
    """Shares per group, their scatter drawn towards that of all groups."""
    known = [own_scatter(sample) for sample in samples if sample is not None]
    freedom = sum(found[1] for found in known)
    if freedom < 1:  # no group has two windows: nothing is known of the scatter but its bound
        return [None if sample is None else cell_shares(sample) for sample in samples]
    pooled = sum((found[0] for found in known[1:]), known[0][0]) / freedom
    return [None if sample is None else cell_shares(sample, prior=pooled) for sample in samples]


def _fit_excess(x: Floats, left: Floats, cluster: Int64s, weight: Floats, occurs: Bools) -> CellShares | None:
    """Shares of the time beyond base: of what base left over, none below 0, those of a step's parts adding up to 1.

    A part that occurs in the run may be in what is left of other steps, though it is not in that of the captured ones.
    """
    sample = _sample(x, left, cluster, weight, LEAST_EXCESS_WINDOWS)
    if sample is None:
        return None
    shares = cell_shares(sample, occurs=occurs)
    ratio = np.maximum(shares.ratio, 0)
    total = ratio[:N_WORK].sum()
    if total > 0:
        ratio[:N_WORK] /= total
    bound = bounded_scatter(ratio, len(sample.x), occurs=occurs)
    # What is left over carries the scatter of base as well, and can seem to vary by more than a share can.
    scatter = np.minimum(shares.scatter, bound)
    return CellShares(ratio, scatter, shares.known, shares.freedom)


def _lent(shares: CellShares | None, occurs: Bools) -> CellShares | None:
    """The shares of another cell, for one that no window saw: likely, but anything may be so.

    What lasts longest is mostly a few events of tens of milliseconds each, and rarely what slows down many steps a bit.
    """
    if shares is None:
        return None
    scatter = bounded_scatter(shares.ratio, 1)
    scatter[:N_WORK] = np.where(occurs, MOST_SCATTER, 0)
    return CellShares(shares.ratio, scatter, 1.0, np.inf)


def _median(sampled: Sampled, work: Floats, mine: Bools) -> float:
    """Median work of some steps, each counted as often as it stands for others."""
    weight = sampled.stands_for
    return median_of(work[mine]) if weight is None else weighted_median(work[mine], weight[mine])


def _rest(sampled: Sampled, sizes: Sequence[Floats], borrowed: Bools) -> tuple[Floats, Floats]:
    """Sizes of the uncaptured steps by stratum and cell, and their squares by blocks of neighbouring steps.

    A borrowed stratum is one block: whatever makes it unlike the others, it does so in all of its steps. A step that
    stands for others stands for blocks of steps like itself.
    """
    n, stratum = len(borrowed), sampled.stratum
    if sampled.stands_for is not None:
        return _weighted_rest(sampled, sampled.stands_for.copy(), sizes, borrowed)
    rest = np.ones(len(stratum), bool)
    rest[sampled.captured.row] = False
    totals, squares = np.zeros((n, N_CELLS)), np.zeros((n, N_CELLS))
    where = np.flatnonzero(rest)
    within = np.where(borrowed[stratum[where]], 0, where // RANGE_STEPS)
    most = len(stratum) // RANGE_STEPS + 1
    blocks, block = renumber(stratum[where] * most + within)
    owner = blocks // most
    for cell in range(N_CELLS):
        size = np.bincount(block, sizes[cell][where], len(blocks))
        totals[:, cell] = np.bincount(owner, size, n)
        squares[:, cell] = np.bincount(owner, size**2, n)
    return totals, squares


def _weighted_rest(sampled: Sampled, weight: Floats, sizes: Sequence[Floats], borrowed: Bools) -> tuple[Floats, Floats]:
    n, stratum = len(borrowed), sampled.stratum
    weight[sampled.captured.row] = 0
    totals: Floats = np.column_stack([np.bincount(stratum, weight * size, n) for size in sizes]).astype(np.float64)
    # What is in excess comes in single steps; base and waits last for blocks of steps.
    block = [np.minimum(weight, 1 if cell in (LONG, FAR) else RANGE_STEPS) for cell in range(N_CELLS)]
    squares = np.column_stack([np.bincount(stratum, weight * b * x**2, n) for b, x in zip(block, sizes, strict=True)])
    return totals, np.asarray(np.where(borrowed[:, None], totals**2, squares), np.float64)


def _spread(ratios: Sequence[Floats], k: int) -> Floats:
    """Variance of the base shares between groups, drawn towards that of a share that may be anything, as one group."""
    if not len(ratios):
        return np.zeros(k)
    found = np.array(ratios)
    squares = ((found - found.mean(axis=0)) ** 2).sum(axis=0)
    return np.asarray((squares + BORROWED * bounded_scatter(found.mean(axis=0), 1)) / len(found), np.float64)
