"""Stretches of a replay in which the machine was slow: they are left out, and told.

On shared machines everything takes 1.2 to 1.4 times as long for seconds at a time. A whole run averages over that, a
replay of seconds does not. What a stretch takes is held against the same step numbers of the original, so that steps
which differ by their data do not look slow; what the replay's fastest stretches take over them is its usual pace.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from phasepoint.replay.clean_steps import CleanSteps
from phasepoint.replay.step_means import StepMeans

BLOCK_STEPS = 8
"""Steps of a stretch: the median of so many scatters by 4 % where single ones do by 10 %."""

LEAST_BLOCKS = 5
"""Fewer stretches do not show a usual pace."""

SLOW_RATIO = 1.12
"""A stretch is slow above so many times the usual pace: beyond the scatter of medians, below a core's slow seconds
(1.25 to 1.35 times; docs/overhead.md)."""

USUAL_QUANTILE = 0.25
"""Of the stretches' paces, the usual one: up to three quarters of a replay may be slow."""


def without_slow(run: CleanSteps, original: StepMeans) -> CleanSteps:
    """The same steps, of which those in slow stretches are not clean any more.

    Args:
        run: steps of a replay.
        original: step times of the original by number; steps that it lacks are left as they are.
    """
    clean = np.flatnonzero(run.clean)
    place = np.searchsorted(original.step, run.step[clean])
    known = (place < len(original.step)) & np.isin(run.step[clean], original.step)
    rows, before = clean[known], original.own_ps[place[known]]
    blocks = len(rows) // BLOCK_STEPS
    if blocks < LEAST_BLOCKS:
        return run
    pace = run.own_ps[rows] / np.maximum(before, 1)
    stretches = np.array_split(np.arange(len(rows)), blocks)
    medians = np.array([np.median(pace[one]) for one in stretches])
    slow: NDArray[np.bool_] = medians > SLOW_RATIO * np.quantile(medians, USUAL_QUANTILE)
    kept = run.clean.copy()
    for one in np.flatnonzero(slow).tolist():
        kept[rows[stretches[one]]] = False
    return replace(run, clean=kept)
