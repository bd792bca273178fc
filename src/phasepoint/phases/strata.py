"""The strata of a run (one phase on one host): their sizes by cell, and which windows speak for them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.captured import COMPILING, INPUT, N_WORK, PARTS, Captured, StepKeys
from phasepoint.phases.clock import sum_ps
from phasepoint.phases.sampling import CellSample, CellShares, cell_shares, cut_work, own_scatter

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST_WINDOWS = 5
"""A stratum with fewer windows joins the one most like it."""
BLOCK_STEPS = 5
"""Uncaptured steps are taken by so many together when their scatter is added up: about a window's worth."""

BASE, LONG, FAR, WAIT, COMPILE = range(5)
N_CELLS = 5
_INPUT, _COMPILING = PARTS.index(INPUT), PARTS.index(COMPILING)


@dataclass(frozen=True, eq=False)
class StepTimes:
    """The step clock's columns that estimates need, `[n_steps]` each."""

    dur_ps: Int64s
    input_ps: Int64s
    compile_ps: Int64s


@dataclass(frozen=True)
class Stratum:
    """What the clock knows of a stratum, in exact integers.

    Attributes:
        host: rank.
        phase: phase id.
        total_ps: time of its steps.
        rest_ps: time of those that no window saw.
        median_ps: median step time.
        input_share: part of its time that waited for input.
    """

    host: int
    phase: int
    total_ps: int
    rest_ps: int
    median_ps: float
    input_share: float


@dataclass(frozen=True, eq=False)
class Fit:
    """Shares for every cell, and the sizes to which they apply.

    Attributes:
        group: `[n_strata]`, the group of each stratum.
        base: shares of work per group; None for a group without any window.
        long: shares of work beyond 1.2 medians.
        far: shares of work beyond 3 medians.
        input: share of the wait that is `input`.
        compiling: share of the compilation that is `compiling`.
        spread: `[k]`, variance of the base shares between groups.
        rest: `[n_strata, N_CELLS]`, sizes of the uncaptured steps.
        squares: `[n_strata, N_CELLS]`, their squares added up by blocks.
        borrowed: `[n_strata]`, whether a stratum has too few windows of its own.
        by_choice: whether windows opened by choice had to stand in for random ones, per group.
    """

    group: Int64s
    base: tuple[CellShares | None, ...]
    long: CellShares | None
    far: CellShares | None
    input: CellShares | None
    compiling: CellShares | None
    spread: Floats
    rest: Floats
    squares: Floats
    borrowed: NDArray[np.bool_]
    by_choice: tuple[bool, ...]


def assign_strata(keys: StepKeys, labels: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Stratum of every step `[n_steps]`, and host and phase of every stratum `[n_strata]`."""
    hosts, host = np.unique(keys.host, return_inverse=True)
    phases, phase = np.unique(labels, return_inverse=True)
    n = max(len(phases), 1)
    pairs, stratum = np.unique(host * n + phase, return_inverse=True)
    return stratum, hosts[pairs // n], phases[pairs % n]


def describe_strata(
    times: StepTimes, seen: NDArray[np.bool_], stratum: Int64s, hosts: Int64s, phases: Int64s
) -> tuple[Stratum, ...]:
    """What the clock knows of every stratum."""
    found = []
    for index, (host, phase) in enumerate(zip(hosts.tolist(), phases.tolist(), strict=True)):
        mine = stratum == index
        total_ps = sum_ps(times.dur_ps[mine])
        waiting = sum_ps(times.input_ps[mine]) / max(total_ps, 1)
        middle = float(np.median(times.dur_ps[mine]))
        found.append(Stratum(host, phase, total_ps, sum_ps(times.dur_ps[mine & ~seen]), middle, waiting))
    return tuple(found)


def fit_cells(
    times: StepTimes, captured: Captured, extra: Floats, stratum: Int64s, strata: Sequence[Stratum], cluster: Int64s
) -> Fit:
    """Estimate the shares of every cell from the captured steps.

    Args:
        times: of all steps.
        captured: the captured steps.
        extra: `[n_captured, k]`, further quantities that go with work.
        stratum: `[n_steps]`.
        strata: what the clock knows of each.
        cluster: `[n_captured]`, number of the window (on its host and attempt) that saw each, from 0.
    """
    row = captured.row
    parts = captured.parts_ps.astype(np.float64)
    quantities = np.column_stack([parts[:, :N_WORK], extra])
    waits = np.column_stack([times.input_ps, times.compile_ps]).astype(np.float64)
    chance = np.isfinite(captured.weight)
    exposed = []
    for column, part in ((0, _INPUT), (1, _COMPILING)):
        sample = _sample(waits[row, column], parts[:, [part]], cluster, captured.weight, least=1)
        exposed.append(None if sample is None else cell_shares(sample))
    hidden = np.array([1.0 if shares is None else float(shares.ratio[0]) for shares in exposed])
    work = times.dur_ps - waits @ hidden
    work[row] = parts[:, :N_WORK].sum(axis=1)
    work = np.maximum(work, 0)
    median = np.array([np.median(work[stratum == i]) if (stratum == i).any() else 0.0 for i in range(len(strata))])
    base, long, far = cut_work(work, median[stratum])
    sizes = np.column_stack([base, long, far, waits])
    group, borrowed = _group(strata, stratum[row], cluster, chance)
    mine = group[stratum[row]]
    clean = (long[row] == 0) & (far[row] == 0)
    samples, by_choice = [], []
    for index in range(int(group.max(initial=-1)) + 1):
        use = (mine == index) & (clean if (clean & (mine == index)).any() else True)
        random = len(np.unique(cluster[use & chance])) >= min(LEAST_WINDOWS, 2)
        weight = captured.weight if random else np.ones(len(row))
        samples.append(_sample(np.where(use, base[row], 0), quantities, cluster, weight, least=1))
        by_choice.append(not random and bool(use.any()) and not bool(chance[use].all()))
    shares = _base_shares(samples)
    explained = np.zeros_like(quantities)
    for index, found in enumerate(shares):
        if found is not None:
            explained[mine == index] = base[row][mine == index, None] * found.ratio
    left = quantities - explained
    long_shares = _excess(np.where(far[row] == 0, long[row], 0), left, cluster, captured.weight)
    if long_shares is not None:
        left = left - long[row][:, None] * long_shares.ratio
    far_shares = _excess(far[row], left, cluster, captured.weight)
    rest, squares = _rest(sizes, stratum, row, len(strata))
    ratios = np.array([found.ratio for found in shares if found is not None])
    return Fit(
        group=group,
        base=tuple(shares),
        long=long_shares or far_shares,
        far=far_shares or long_shares,
        input=exposed[0],
        compiling=exposed[1],
        spread=_spread(ratios, quantities.shape[1]),
        rest=rest,
        squares=squares,
        borrowed=borrowed,
        by_choice=tuple(by_choice),
    )


def _sample(x: Floats, y: Floats, cluster: Int64s, weight: Floats, *, least: int) -> CellSample | None:
    """Sums per window, over windows opened by chance where there are enough, else over all, weighing alike."""
    n = int(cluster.max(initial=-1)) + 1
    use = x > 0
    chance = use & np.isfinite(weight)
    random = len(np.unique(cluster[chance])) >= max(least, 2)
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
    return CellSample(sums_x[kept], sums_y[kept], of_window[kept])


def _base_shares(samples: Sequence[CellSample | None]) -> list[CellShares | None]:
    """Shares per group, their scatter drawn towards that of all groups."""
    known = [own_scatter(sample) for sample in samples if sample is not None]
    freedom = sum(found[1] for found in known)
    if freedom < 1:  # no group has two windows: nothing is known of the scatter but its bound
        return [None if sample is None else cell_shares(sample) for sample in samples]
    pooled = sum((found[0] for found in known[1:]), known[0][0]) / freedom
    return [None if sample is None else cell_shares(sample, prior=pooled) for sample in samples]


def _excess(x: Floats, left: Floats, cluster: Int64s, weight: Floats) -> CellShares | None:
    """Shares of the time beyond base: of what base left over, none below 0, those of a step's parts adding up to 1."""
    sample = _sample(x, left, cluster, weight, least=4)
    if sample is None:
        return None
    shares = cell_shares(sample)
    ratio = np.maximum(shares.ratio, 0)
    total = ratio[:N_WORK].sum()
    if total > 0:
        ratio[:N_WORK] /= total
    return CellShares(ratio, shares.scatter, shares.known, shares.freedom)


def _group(
    strata: Sequence[Stratum], of_row: Int64s, cluster: Int64s, chance: NDArray[np.bool_]
) -> tuple[Int64s, NDArray[np.bool_]]:
    """Groups of strata with enough windows each: small strata join the one most like them, the smallest first."""
    n = len(strata)
    windows: list[set[int]] = [set(cluster[of_row == i].tolist()) for i in range(n)]
    group = np.arange(n)
    borrowed = np.array([len(mine) < LEAST_WINDOWS for mine in windows], bool)
    alive = set(range(n))
    while len(alive) > 1:
        small = [i for i in alive if len(windows[i]) < LEAST_WINDOWS]
        if not small:
            break
        index = min(small, key=lambda i: (strata[i].total_ps, i))
        target = min(alive - {index}, key=lambda i: (distance(strata[index], strata[i]), i))
        group[group == index] = target
        windows[target] |= windows[index]
        alive.remove(index)
    return np.unique(group, return_inverse=True)[1], borrowed


def distance(a: Stratum, b: Stratum) -> float:
    """How unlike two strata are: by step time and by the part of it that waits for input; 0 for the same phase.

    Only what the clock knows of every step goes in, since one of the two has no captured steps to speak of.
    """
    if a.phase == b.phase:
        return 0.0
    length = np.log(max(a.median_ps, 1.0)) - np.log(max(b.median_ps, 1.0))
    return 0.01 + abs(float(length)) + abs(a.input_share - b.input_share)


def _rest(sizes: Floats, stratum: Int64s, row: Int64s, n: int) -> tuple[Floats, Floats]:
    """Sizes of the uncaptured steps by stratum and cell, and their squares by blocks of neighbouring steps."""
    rest = np.ones(len(stratum), bool)
    rest[row] = False
    totals, squares = np.zeros((n, N_CELLS)), np.zeros((n, N_CELLS))
    where = np.flatnonzero(rest)
    blocks, block = np.unique(stratum[where] * (len(stratum) + 1) + where // BLOCK_STEPS, return_inverse=True)
    owner = blocks // (len(stratum) + 1)
    for cell in range(N_CELLS):
        size = np.bincount(block, sizes[where, cell], len(blocks))
        totals[:, cell] = np.bincount(owner, size, n)
        squares[:, cell] = np.bincount(owner, size**2, n)
    return totals, squares


def _spread(ratios: Floats, k: int) -> Floats:
    """Variance of the base shares between groups; with one group, the most that a share can vary."""
    if len(ratios) >= 2:
        return np.asarray(ratios.var(axis=0, ddof=1), np.float64)
    if not len(ratios):
        return np.zeros(k)
    inside = np.clip(ratios[0], 0, 1)
    return np.asarray(inside * (1 - inside), np.float64)
