"""Step times by step number: the mean over hosts and repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.replay.clean_steps import CleanSteps


@dataclass(frozen=True, eq=False)
class StepMeans:
    """Step times by number.

    Attributes:
        step: `[n]` step numbers, rising.
        own_ps: `[n]`, mean over those who did the step.
    """

    step: Int64s
    own_ps: Int64s

    def at(self, numbers: Int64s) -> "StepMeans":
        """Only the steps of these numbers."""
        kept = np.isin(self.step, numbers)
        return StepMeans(self.step[kept], self.own_ps[kept])


def mean_steps(runs: Sequence[CleanSteps], where: Sequence[NDArray[np.bool_]] | None = None) -> StepMeans:
    """Clean steps of one run, or of repeats of it.

    Args:
        runs: the repeats.
        where: for each, `[n_steps]`, the steps that count; all clean ones if None.

    Returns:
        A step that a host did twice, because its job was started again, counts as it was done last.
    """
    chosen = [_newest(run, run.clean if where is None else run.clean & where[i]) for i, run in enumerate(runs)]
    step = np.concatenate([run.step[rows] for run, rows in zip(runs, chosen, strict=True)])
    own_ps = np.concatenate([run.own_ps[rows] for run, rows in zip(runs, chosen, strict=True)])
    numbers, index, counts = np.unique(step, return_inverse=True, return_counts=True)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, index, own_ps)
    return StepMeans(numbers, sums // np.maximum(counts, 1))


def _newest(run: CleanSteps, kept: NDArray[np.bool_]) -> Int64s:
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((run.attempt[rows], run.step[rows], run.host[rows]))]
    host, step = run.host[rows], run.step[rows]
    last = np.append((host[1:] != host[:-1]) | (step[1:] != step[:-1]), True)[: len(rows)]
    return np.asarray(rows[last], np.int64)
