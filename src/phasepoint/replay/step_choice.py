"""Which steps stand for a run: chosen by chance within strata, with more where the clock says that time scatters more.

A run that was captured in most of its steps is sampled as it is. In one that was mostly not captured, capture windows
come first, up to half of the budget: they alone say what time went into, and stand for themselves where time is asked
for, since captured steps run slower than others. What is left of the budget goes to other steps of the clock.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.encoding import renumber
from phasepoint.replay.step_strata import allot_sample, stratify_steps

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

MOSTLY_CAPTURED = 0.5
"""From half of the steps on, a run counts as captured."""
WINDOWS_SHARE = 0.5
"""Part of the budget that capture windows may take in a run that was mostly not captured."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of one host that there are to choose from.

    Attributes:
        clock: `[n, k]` in ps: time, wait for input, compilation.
        phase: `[n]`, phase id.
        window: `[n]`, number of the window that captured each; -1 for none.
        by_chance: `[n]`, whether that window was opened by chance.
    """

    clock: Floats
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


def choose_steps(steps: Steps, sample: int, rng: np.random.Generator) -> Choice:
    """Choose that many steps, or all there are.

    Args:
        steps: to choose from.
        sample: how many, ≥ 1.
        rng: chance.
    """
    sample = min(sample, steps.n)
    stratum = np.full(steps.n, -1, np.int64)
    chosen = np.zeros(steps.n, bool)
    captured = steps.window >= 0
    if captured.mean() < MOSTLY_CAPTURED:
        chosen = _choose_windows(steps, int(sample * WINDOWS_SHARE), rng)
        stratum[chosen] = renumber(steps.phase[chosen])[1]
    rest = np.flatnonzero(~chosen)
    if len(rest):
        of_rest, picked = _choose_single(steps.clock[rest], steps.phase[rest], sample - int(chosen.sum()), rng)
        stratum[rest] = of_rest + int(stratum.max()) + 1
        chosen[rest[picked]] = True
    index = np.flatnonzero(chosen)
    size = np.bincount(stratum)
    return Choice(index, stratum[index], size, _phase_counts(stratum, steps.phase, len(size)))


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


def _choose_single(clock: Floats, phase: Int64s, sample: int, rng: np.random.Generator) -> tuple[Int64s, Int64s]:
    """Stratum of each step, and the positions of those chosen."""
    stratum = stratify_steps(clock, phase, sample)
    allotted = allot_sample(clock, stratum, sample)
    order = np.argsort(stratum, kind="stable")
    ends = np.bincount(stratum, minlength=len(allotted)).cumsum()
    picked = [
        rng.choice(order[end - size : end], count, replace=False)
        for end, size, count in zip(ends.tolist(), np.diff(ends, prepend=0).tolist(), allotted.tolist(), strict=True)
    ]
    return stratum, np.concatenate(picked)


def _phase_counts(stratum: Int64s, phase: Int64s, n: int) -> tuple[dict[int, int], ...]:
    phases, of_phase = renumber(phase)
    pairs, counts = np.unique(stratum * len(phases) + of_phase, return_counts=True)
    found: tuple[dict[int, int], ...] = tuple({} for _ in range(n))
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        found[pair // len(phases)][int(phases[pair % len(phases)])] = count
    return found
