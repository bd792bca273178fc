"""What a run without a break sustains: whether it slows down, by how much and when."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.bench.suite.result import SustainedWindow
from phasepoint.core.arrays import Floats
from phasepoint.core.statistics import MAD_TO_SIGMA, median
from phasepoint.core.units import PS_PER_S

LEAST_WINDOWS = 10
"""Before a change and behind it: ten seconds. A choice: a shorter dip is no state that a device stays in."""

LEAST_CHANGE = 0.05
"""A choice: by less, neighbours and clocks move any run."""

LEAST_SIGNIFICANCE = 5.0
"""Standard errors of the difference. A choice: the place of the change is looked for, among hundreds."""


@dataclass(frozen=True)
class Sustained:
    """What a run sustained.

    Attributes:
        first_per_s: inferences a second before the change, or of the whole run where there is none.
        last_per_s: behind it.
        change_s: when it changed, from the begin; None where it did not.
    """

    first_per_s: float
    last_per_s: float
    change_s: float | None


def judge_sustained(windows: Sequence[SustainedWindow]) -> Sustained | None:
    """Where a run's speed changed for good, if it did.

    Args:
        windows: in order.

    Returns:
        The split into two stretches whose medians differ most, in units of what windows scatter by; None of a run that
        is too short to have two.
    """
    speeds = np.array([window.runs * PS_PER_S / window.dur_ps for window in windows])
    if len(speeds) < 2 * LEAST_WINDOWS:
        return None
    places = range(LEAST_WINDOWS, len(speeds) - LEAST_WINDOWS + 1)
    place = max(places, key=lambda at: _significance(speeds[:at], speeds[at:]))
    before, behind = median(speeds[:place]), median(speeds[place:])
    changes = abs(behind / before - 1) >= LEAST_CHANGE
    if not changes or _significance(speeds[:place], speeds[place:]) < LEAST_SIGNIFICANCE:
        whole = median(speeds)
        return Sustained(whole, whole, None)
    return Sustained(before, behind, windows[place].start_ps / PS_PER_S)


def _significance(before: Floats, behind: Floats) -> float:
    """Difference of the medians over its standard error, from what windows of each stretch scatter by."""
    least, error = _LEAST_SPREAD * median(before), 0.0
    for part in (before, behind):
        spread = MAD_TO_SIGMA * median(np.abs(part - median(part)))
        error += max(spread, least) ** 2 / len(part)
    return abs(median(behind) - median(before)) / max(math.sqrt(error), _NOTHING)


_NOTHING = 1e-12  # no error at all is none to divide by

_LEAST_SPREAD = 0.005
"""Of windows, as a share of the speed: counts of whole runs jump by one."""
