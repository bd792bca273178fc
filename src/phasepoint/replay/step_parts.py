"""What the chosen steps' time went into: of captured ones as captured, of others by the windows' shares."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import weighted_median
from phasepoint.phases.captured import PARTS, Captured
from phasepoint.phases.cells import fit_cells
from phasepoint.phases.prediction import part_variances, step_parts
from phasepoint.phases.strata import Sampled, StepTimes, Stratum


@dataclass(frozen=True, eq=False)
class StepParts:
    """Parts of the chosen steps.

    Attributes:
        parts_ps: `[n, len(PARTS)]`, adding up to each step's time.
        variances: `[m, len(PARTS)]`, variance of the run's parts because shares are not known exactly, by source.
        freedom: `[m]`, degrees of freedom of each.
    """

    parts_ps: Int64s
    variances: Floats
    freedom: Floats


def fill_parts(times: StepTimes, captured: Captured, phase: Int64s, weight: Floats) -> StepParts:
    """Parts of every chosen step.

    Args:
        times: of the chosen steps.
        captured: those captured among them, one or more; rows are positions among the chosen.
        phase: `[n]`, phase of each.
        weight: `[n]`, steps of the run that each stands for.
    """
    known = np.zeros(len(phase), bool)
    known[captured.row] = True
    parts = np.zeros((len(phase), len(PARTS)), np.int64)
    if known.all():
        parts[captured.row] = captured.parts_ps
        return StepParts(parts, np.zeros((0, len(PARTS))), np.zeros(0))
    phases, stratum = renumber(phase)
    strata = tuple(_describe(times, known, stratum == index, weight, one) for index, one in enumerate(phases.tolist()))
    sampled = Sampled(times, captured, strata, stratum, renumber(captured.window)[1])
    fit = fit_cells(sampled, np.zeros((len(captured.row), 0)), stands_for=weight)
    parts = step_parts(fit, stratum, times.dur_ps)
    parts[captured.row] = captured.parts_ps
    variances, freedom = part_variances(fit, range(len(strata)))
    return StepParts(parts, variances.reshape(-1, len(PARTS)), freedom)


def _describe(
    times: StepTimes, known: NDArray[np.bool_], mine: NDArray[np.bool_], weight: Floats, phase: int
) -> Stratum:
    dur = times.dur_ps * weight
    total, waiting = float(dur[mine].sum()), float((times.input_ps * weight)[mine].sum())
    middle = weighted_median(times.dur_ps[mine].astype(np.float64), weight[mine])
    return Stratum(0, phase, int(total), int(dur[mine & ~known].sum()), middle, waiting / max(total, 1.0))
