"""A time that was measured in captured steps, over the whole run: the same estimator as that of the categories.

What a rule measures in a captured step (idle time while work was launched, a part of an op's time) is one more
quantity of that step. So its share of each cell of the time, and how sure that is, come from `estimates/cells.py`, and
two such times, or one of them and a category, can be compared.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.estimates.captured import Sampled
from phasepoint.estimates.cells import FAR, N_CELLS, Cells, cut_cells, fit_cells
from phasepoint.estimates.totals import half_widths, step_work
from phasepoint.phases.clock.steps import sum_ps


@dataclass(frozen=True, eq=False)
class RunTime:
    """A time of the run's steps.

    Attributes:
        by_step: `[n_steps]` ps, at most each step's duration: as measured where it was, else estimated.
        low_ps: lower end of the interval of its sum.
        high_ps: upper end of it.
    """

    by_step: Int64s
    low_ps: int
    high_ps: int

    @property
    def total_ps(self) -> int:
        """Its sum."""
        return sum_ps(self.by_step)


def estimate_time(
    sampled: Sampled,
    time_ps: Int64s | Floats,
    *,
    phases: Collection[int] | None = None,
    beyond_usual: bool = True,
    confidence: float = 0.95,
) -> RunTime:
    """What was measured in the captured steps, of all steps.

    Args:
        sampled: the run as the windows show it in which this was measured: see `Sampled.only`.
        time_ps: `[n_captured]` what was measured of each step, at least 0 and at most its duration.
        phases: those whose other steps are estimated; all by default.
        beyond_usual: whether work beyond three times a phase's median counts. Not so where what held such a step up
            is known to be something else.
        confidence: of the interval, between 0 and 1.

    Returns:
        The time of every step. With every step measured it is exact and the interval nil; with none it is 0.
    """
    dur_ps, rows = sampled.steps.dur_ps, sampled.captured.row
    by_step = np.zeros(len(dur_ps), np.int64)
    if not len(rows):
        return RunTime(by_step, 0, 0)
    fit = fit_cells(sampled, np.asarray(time_ps, np.float64)[:, None])
    if not beyond_usual:
        fit = replace(fit, cells=sampled.once(_usual_cells))
    strata = [i for i, stratum in enumerate(sampled.strata) if phases is None or stratum.phase in phases]
    of_strata = np.isin(sampled.stratum, strata)
    estimated = np.clip(step_work(fit, sampled.stratum, slice(-1, None))[:, 0], 0, dur_ps)
    by_step[of_strata] = estimated[of_strata].astype(np.int64)
    by_step[rows] = np.minimum(np.asarray(time_ps, np.int64), dur_ps[rows])
    total_ps, known_ps = sum_ps(by_step), sum_ps(by_step[rows])
    half_ps = half_widths(fit, strata, confidence)[-1]
    least_ps = _shown_by_all(sampled, np.asarray(time_ps, np.int64), of_strata, confidence)
    low_ps = min(max(total_ps - half_ps, known_ps, least_ps), total_ps)
    return RunTime(by_step, low_ps, min(total_ps + half_ps, max(sum_ps(dur_ps), total_ps)))


LEAST_ALIKE = 4
"""Windows by chance that must all show a time before that says how much there is at least: of fewer, the bound below is
less than a third of the run (0.025 ** (1 / 3) = 0.29)."""


def _shown_by_all(sampled: Sampled, time_ps: Int64s, of_strata: Bools, confidence: float) -> int:
    """What the steps have of a time at least, because each of n windows that chance opened shows it.

    If less than a part f of the steps had as much of it as the window that shows least, all n windows would show that
    much with a chance below fⁿ. So, but for that chance, the shortest steps that make up f have it: a bound that holds
    however the time is distributed, where few windows leave Student's interval wide.
    """
    rows, cluster = sampled.captured.row, sampled.cluster
    mine = of_strata[rows] & ~np.isnan(sampled.captured.weight)
    if not mine.any():
        return 0
    which = renumber(cluster[mine])[1]
    n = int(which.max()) + 1
    if n < LEAST_ALIKE:
        return 0
    shown, lasted = (np.bincount(which, ps[mine].astype(np.float64), n) for ps in (time_ps, sampled.steps.dur_ps[rows]))
    least_share = float((shown / np.maximum(lasted, 1.0)).min())
    part = ((1 - confidence) / 2) ** (1 / n)
    shortest_ps = np.sort(sampled.steps.dur_ps[of_strata])[: int(part * of_strata.sum())]
    return int(least_share * sum_ps(shortest_ps))


def _usual_cells(sampled: Sampled) -> Cells:
    """The cells without what lies beyond three times a phase's median."""
    cells = sampled.once(cut_cells)
    usual = np.arange(N_CELLS) != FAR
    return replace(cells, sizes=cells.sizes * usual, rest=cells.rest * usual, squares=cells.squares * usual)
