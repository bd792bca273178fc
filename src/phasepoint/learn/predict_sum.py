"""The time of a program from those of its kernels: a sum with an interval between independent and common errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats


@dataclass(frozen=True)
class Sum:
    """A sum of times with its interval, ps."""

    time_ps: float
    low_ps: float
    high_ps: float


def sum_times(weight: Floats, ends: tuple[Floats, Floats, Floats], *, same: Sequence[str], shared: Floats) -> Sum:
    """Σ weight × time, its interval from the kernels' intervals.

    Errors of executions of one kernel are one error. Those of two kernels are correlated by `shared` (0: they cancel
    as independent ones do; 1: all are too long together): the half-widths d of a 90 % interval add up as
    √((1 − ρ) Σ d² + ρ (Σ d)²), each side for itself, ρ their mean weighted by d.

    Args:
        weight: shape [n], executions.
        ends: time, lower and upper end, each of shape [n], ps.
        same: [n] names of what is computed; equal ones have equal errors.
        shared: shape [n], ρ of the method that predicted each, 0–1.
    """
    time_ps, low_ps, high_ps = ends
    total = float(weight @ time_ps)
    places = {name: place for place, name in enumerate(dict.fromkeys(same))}
    groups = np.array([places[name] for name in same], dtype=np.int64)
    below = _half_width(weight * (time_ps - low_ps), groups, shared)
    above = _half_width(weight * (high_ps - time_ps), groups, shared)
    return Sum(total, max(total - below, 0.0), total + above)


def _half_width(width: Floats, groups: npt.NDArray[np.int64], shared: Floats) -> float:
    if not width.sum() > 0:
        return 0.0
    of_group = np.bincount(groups, weights=width)
    rho = float(width @ shared / width.sum())
    return float(np.sqrt((1 - rho) * (of_group**2).sum() + rho * of_group.sum() ** 2))
