"""Which steps stand for a run: chosen by chance within strata, with more where time scatters more.

A run that was captured in most of its steps is sampled as it is. In one that was mostly not captured, capture windows
come first, up to half of the budget: they alone say what time went into, and stand for themselves where time is asked
for, since captured steps run slower than others. What is left of the budget goes to other steps of the clock.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.replay.step_strata import allot_sample, stratify_steps

MOSTLY_CAPTURED = 0.5
"""From half of the steps on, a run counts as captured."""
WINDOWS_SHARE = 0.5
"""Part of the budget that capture windows may take in a run that was mostly not captured."""


@dataclass(frozen=True, eq=False)
class Steps:
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
    by_chance: NDArray[np.bool_]

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


def plan_sample(steps: Steps, sample: int, rng: np.random.Generator) -> SamplePlan:
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


def _choose_windows(steps: Steps, most: int, rng: np.random.Generator) -> NDArray[np.bool_]:
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
