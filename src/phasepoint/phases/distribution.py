"""How the step times of a phase are spread: a histogram whose counts add up to its steps."""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import quantile_ps

BINS = 48
"""About as many as a picture of the usual size can show apart."""
TAIL = 0.99
"""The bins end at this quantile, so that one step of an hour does not press all others into the first bin."""


@dataclass(frozen=True)
class StepDistribution:
    """A histogram of step times.

    Attributes:
        edges_ps: `[n + 1]`, rising; a bin holds its lower edge, the last one its upper edge too.
        counts: `[n]`, steps per bin.
        beyond: steps longer than the last edge.
        longest_ps: the longest step.
    """

    edges_ps: tuple[int, ...]
    counts: tuple[int, ...]
    beyond: int
    longest_ps: int


def build_distribution(dur_ps: Int64s) -> StepDistribution:
    """The histogram of step times `[n_steps]`, n ≥ 1, in ps.

    Raises:
        ValueError: no steps.
    """
    low_ps, high_ps, longest_ps = int(dur_ps.min()), quantile_ps(dur_ps, TAIL), int(dur_ps.max())
    if len(dur_ps) < 1 / (1 - TAIL):  # then the quantile is the longest or all but: nothing is gained by a tail
        high_ps = longest_ps
    n = max(min(BINS, high_ps - low_ps), 1)
    edges = np.array([low_ps + (high_ps - low_ps) * i // n for i in range(n + 1)], np.int64)
    inside = dur_ps[dur_ps <= high_ps]
    place = np.clip(np.searchsorted(edges, inside, side="right") - 1, 0, n - 1)
    counts = np.bincount(place, minlength=n)
    return StepDistribution(tuple(edges.tolist()), tuple(counts.tolist()), int(len(dur_ps) - len(inside)), longest_ps)
