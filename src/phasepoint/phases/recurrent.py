"""Recurring phases: kinds of step from ops, hints and schedule; levels from the step clock. The default."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.alternation import find_alternation
from phasepoint.phases.changepoints import fit_levels
from phasepoint.phases.noise import estimate_noise
from phasepoint.phases.result import IntArray, Labelling
from phasepoint.phases.vectors import OpVectors, StepSeries


def label_recurrent(series: StepSeries, vectors: OpVectors | None) -> Labelling:
    """Label the run (thin path)."""
    values = np.log(np.maximum(series.dur_ps, 1))
    labels = np.zeros(series.n, np.int64)
    if series.n >= 8:
        sigma = estimate_noise(values)
        levels = fit_levels(values, sigma)
        member = find_alternation(values - levels.fitted, sigma, levels.gap)
        labels = levels.label + len(levels.centre) * member
    return Labelling(labels)
