"""Stretches in which steps wait for data: seen on the loader's own clock, whatever the step's length does."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import median
from phasepoint.phases.changepoints import CAP, switch_price

_WAITING = 0.2
"""Part of a step from which on waiting for data is worth a name."""

_LEAST_RISE = 0.15
_SCALE = 0.08
_LEAST_STEPS = 8


def find_input_stalls(dur_ps: Int64s, input_ps: Int64s) -> NDArray[np.bool_]:
    """Steps in stretches of waiting, `[n]`: a two-level fit of the waiting part of each step.

    Args:
        dur_ps: step durations.
        input_ps: waiting for data, part of the duration.
    """
    from phasepoint.phases.kernels import cheapest_levels

    share = np.minimum(input_ps / np.maximum(dur_ps, 1), 1.0)
    high = share >= _WAITING
    if min(int(high.sum()), int((~high).sum())) < _LEAST_STEPS:
        return np.zeros(len(share), bool)
    levels = np.array([median(share[~high]), median(share[high])])
    if levels[1] - levels[0] < _LEAST_RISE:
        return np.zeros(len(share), bool)
    path = cheapest_levels(share, levels, _SCALE, switch_price(len(share)), CAP)
    return np.asarray(path == 1) if int((path == 1).sum()) >= _LEAST_STEPS else np.zeros(len(share), bool)
