"""Which steps stand for a run: chosen by chance within strata, with more where time scatters more.

A run that was captured in most of its steps is sampled as it is. In one that was mostly not captured, capture windows
come first, up to half of the budget: they alone say what time went into, and stand for themselves where time is asked
for, since captured steps run slower than others. What is left of the budget goes to other steps of the clock.

Strata of steps for a sample of few: phases, and within them classes of step time.

Classes are found by splitting the stratum in two, again and again, where that lessens Σ N σ most. That sum is what the
standard error of a stratified mean is proportional to when the sample is allotted as Neyman has it, so the cuts are
those that make the best of the sample. A few steps that last far longer than the others become a class of their own,
which is then taken whole.

Source: Dalenius and Hodges, "Minimum Variance Stratification" (1959); Cochran, Sampling Techniques (3rd ed.), ch. 5
    (Neyman allocation) and 5A (construction of strata).
"""

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber

LEAST_SAMPLE = 2
"""Steps chosen in each stratum at least, so that its scatter shows; fewer only where it has fewer."""
STEPS_PER_CLASS = 2
"""Steps of the sample that there are for each class on average."""
STEPS_PER_PHASE = 16
"""Steps of the sample that there are for each phase on average."""
MOST_CLASSES = 64
"""More of them win nothing that shows, and each split looks through a stratum again."""
_EQUAL_STEPS = 1e-6
"""Scatter given to a step of a stratum whose steps are all alike, against the mean step's: what is left goes there."""
LEAST_GAIN = 0.01
"""A split has to lessen the standard error by 1 %."""


@dataclass(frozen=True, eq=False)
class _Split:
    low: Int64s
    high: Int64s
    gain: float


def stratify_steps(known: Floats, phase: Int64s, sample: int) -> Int64s:
    """Stratum of every step.

    Args:
        known: `[n, k]`, what is known of each step, in one unit: its time, its wait for input, ….
        phase: `[n]`, phase of each.
        sample: steps that will be chosen, ≥ 1.

    Returns:
        `[n]`, from 0. Steps of two phases share a stratum only where the sample is too small for one per phase.
    """
    nodes = _join_phases(known, [np.flatnonzero(phase == one) for one in renumber(phase)[0].tolist()], sample)
    most = max(len(nodes), min(sample // STEPS_PER_CLASS, MOST_CLASSES))
    needed = sum(_needed(rows) for rows in nodes)
    loss = sum(_loss(known[rows]) for rows in nodes)
    queue: list[tuple[float, int, int]] = []
    splits: list[_Split | None] = [_best_split(known, rows) for rows in nodes]
    for index, split in enumerate(splits):
        _push(queue, index, split)
    while queue and len(nodes) < most:
        _, _, index = heapq.heappop(queue)
        split = splits[index]
        assert split is not None
        more = _needed(split.low) + _needed(split.high) - _needed(nodes[index])
        if split.gain < LEAST_GAIN * loss:
            break
        if needed + more > sample:
            continue
        needed, loss = needed + more, loss - split.gain
        nodes[index] = split.low
        nodes.append(split.high)
        splits[index] = _best_split(known, split.low)
        splits.append(_best_split(known, split.high))
        _push(queue, index, splits[index])
        _push(queue, len(nodes) - 1, splits[-1])
    stratum = np.zeros(len(phase), np.int64)
    for index, rows in enumerate(nodes):
        stratum[rows] = index
    return stratum


def allot_sample(known: Floats, stratum: Int64s, sample: int) -> Int64s:
    """Steps to choose in each stratum: as many as its size times its scatter asks for, at least two.

    Args:
        known: `[n, k]`, as for `stratify_steps`.
        stratum: `[n]`, from 0.
        sample: steps to choose, at least what `LEAST_SAMPLE` asks for, at most n.

    Returns:
        `[n_strata]`, adding up to sample. A stratum that would get more than it has is taken whole.

    Source: Cochran, Sampling Techniques (3rd ed.), 5.5 and 5.8 (strata that need more than all of their units).
    """
    n = int(stratum.max()) + 1
    size = np.bincount(stratum, minlength=n)
    wanted = np.array([_loss(known[stratum == index]) for index in range(n)])
    least = np.minimum(size, LEAST_SAMPLE)
    if least.sum() > sample:  # not even two each: one each, the largest first
        least = np.zeros(n, np.int64)
        least[np.argsort(-size, kind="stable")[:sample]] = 1
    wanted += size * max(float(wanted.sum()) / float(size.sum()), 1.0) * _EQUAL_STEPS
    low, high = 0.0, float((size / wanted).max()) * 2
    for _ in range(100):
        middle = (low + high) / 2
        if _allotted(wanted * middle, least, size).sum() <= sample:
            low = middle
        else:
            high = middle
    return _fill(_allotted(wanted * low, least, size), size, wanted, sample)


def _allotted(share: Floats, least: Int64s, size: Int64s) -> Int64s:
    return np.minimum(np.maximum(least, np.floor(share)), size).astype(np.int64)


def _fill(found: Int64s, size: Int64s, wanted: Floats, sample: int) -> Int64s:
    """Give what rounding left to the strata that want it most, one each, round after round."""
    left = sample - int(found.sum())
    order = np.argsort(-wanted, kind="stable")
    while left:
        room = order[found[order] < size[order]][:left]
        found[room] += 1
        left -= len(room)
    return found


def _needed(rows: Int64s) -> int:
    return min(len(rows), LEAST_SAMPLE)


def _loss(values: Floats) -> float:
    """N σ of a stratum, σ² added over the columns."""
    return float(len(values) * np.sqrt(values.var(axis=0).sum()))


def _push(queue: list[tuple[float, int, int]], index: int, split: _Split | None) -> None:
    if split is not None and split.gain > 0:
        heapq.heappush(queue, (-split.gain, len(queue), index))


def _best_split(known: Floats, rows: Int64s) -> _Split | None:
    """The cut, over all columns, that lessens N σ most; None for fewer than two steps that differ."""
    best: _Split | None = None
    values = known[rows] - known[rows].mean(axis=0) if len(rows) else known[rows]
    n = len(rows)
    if n < 2:
        return None
    whole = _loss(values)
    for column in np.flatnonzero(values.max(axis=0) > values.min(axis=0)).tolist():
        order = np.argsort(values[:, column], kind="stable")
        ranked = values[order]
        differ = ranked[1:, column] > ranked[:-1, column]
        halves = _side_losses(ranked) + _side_losses(ranked[::-1])[::-1]
        at = int(np.argmin(np.where(differ, halves, np.inf)))
        if best is None or whole - halves[at] > best.gain:
            best = _Split(rows[order[: at + 1]], rows[order[at + 1 :]], whole - float(halves[at]))
    return best


def _side_losses(ranked: Floats) -> Floats:
    """N σ of the first 1, 2, …, n − 1 steps."""
    count = np.arange(1, len(ranked))
    sums, squares = ranked[:-1].cumsum(axis=0), (ranked[:-1] ** 2).cumsum(axis=0)
    variance = (squares - sums**2 / count[:, None]).sum(axis=1) / count
    return np.asarray(count * np.sqrt(np.maximum(variance, 0)), np.float64)


def _join_phases(known: Floats, nodes: list[Int64s], sample: int) -> list[Int64s]:
    """Phases joined with those most alike until the sample holds enough steps for each."""
    nodes = sorted(nodes, key=lambda rows: float(known[rows, 0].mean()))
    most = max(sample // STEPS_PER_PHASE, 1)
    while len(nodes) > most and sum(map(len, nodes)) > sample:
        costs = [
            _loss(known[np.concatenate(pair)]) - _loss(known[pair[0]]) - _loss(known[pair[1]])
            for pair in pairwise(nodes)
        ]
        at = int(np.argmin(costs))
        nodes[at : at + 2] = [np.concatenate(nodes[at : at + 2])]
    return nodes


MOSTLY_CAPTURED = 0.5
"""From half of the steps on, a run counts as captured."""
WINDOWS_SHARE = 0.5
"""Part of the budget that capture windows may take in a run that was mostly not captured."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The steps of one host that there are to choose from.

    Attributes:
        known: `[n, k]` in ps, what is known of each: its time, its wait for input, ….
        phase: `[n]`, phase id.
        window: `[n]`, number of the window that captured each; -1 for none.
        by_chance: `[n]`, whether that window was opened by chance.
    """

    known: Floats
    phase: Int64s
    window: Int64s
    by_chance: Bools

    @property
    def n(self) -> int:
        """How many."""
        return len(self.phase)


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen steps.

    Attributes:
        index: `[n_chosen]`, rising, which of the steps.
        stratum: `[n_chosen]`, from 0.
        size: `[n_strata]`, steps of the run in each.
        phases: per stratum, how many of them are of each phase.
    """

    index: Int64s
    stratum: Int64s
    size: Int64s
    phases: tuple[dict[int, int], ...]


@dataclass(frozen=True, eq=False)
class SamplePlan:
    """Strata, and how many steps are to be chosen in each.

    Attributes:
        phase: `[n]`, phase id of every step.
        stratum: `[n]`, from 0.
        allotted: `[n_strata]`, steps to choose.
    """

    phase: Int64s
    stratum: Int64s
    allotted: Int64s

    def draw(self, rng: np.random.Generator) -> Choice:
        """Choose the steps, each of a stratum with the same chance."""
        order = np.argsort(self.stratum, kind="stable")
        size = np.bincount(self.stratum, minlength=len(self.allotted))
        strata = zip(size.cumsum().tolist(), size.tolist(), self.allotted.tolist(), strict=True)
        picked = [rng.choice(order[end - size : end], count, replace=False) for end, size, count in strata]
        index = np.sort(np.concatenate(picked))
        return Choice(index, self.stratum[index], size, _phase_counts(self.stratum, self.phase, len(size)))


def plan_sample(steps: Candidates, sample: int, rng: np.random.Generator) -> SamplePlan:
    """Strata for a sample of that many steps, or of all there are.

    Args:
        steps: to choose from.
        sample: how many, ≥ 1.
        rng: chance, for the choice among capture windows where not all fit into the budget.
    """
    sample = min(sample, steps.n)
    stratum = np.full(steps.n, -1, np.int64)
    chosen = np.zeros(steps.n, bool)
    if (steps.window >= 0).mean() < MOSTLY_CAPTURED:
        chosen = _choose_windows(steps, int(sample * WINDOWS_SHARE), rng)
        stratum[chosen] = renumber(steps.phase[chosen])[1]
    allotted = np.bincount(stratum[chosen], minlength=int(stratum.max()) + 1)
    rest = np.flatnonzero(~chosen)
    if len(rest):
        known, left = steps.known[rest], sample - int(chosen.sum())
        of_rest = stratify_steps(known, steps.phase[rest], left)
        stratum[rest] = of_rest + len(allotted)
        allotted = np.concatenate([allotted, allot_sample(known, of_rest, left)])
    return SamplePlan(steps.phase, stratum, allotted)


def _choose_windows(steps: Candidates, most: int, rng: np.random.Generator) -> Bools:
    """Steps of capture windows: of all where they fit in, else of those that chance opened, at random."""
    chosen = steps.window >= 0
    if chosen.sum() <= most:
        return chosen
    if (chosen & steps.by_chance).any():
        chosen &= steps.by_chance
    windows = rng.permutation(np.unique(steps.window[chosen]))
    size = np.bincount(steps.window[chosen])
    taken = windows[size[windows].cumsum() <= most]
    return chosen & np.isin(steps.window, taken)


def _phase_counts(stratum: Int64s, phase: Int64s, n: int) -> tuple[dict[int, int], ...]:
    phases, of_phase = renumber(phase)
    pairs, counts = np.unique(stratum * len(phases) + of_phase, return_counts=True)
    found: tuple[dict[int, int], ...] = tuple({} for _ in range(n))
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        found[pair // len(phases)][int(phases[pair % len(phases)])] = count
    return found
