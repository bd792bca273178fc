"""What chosen steps say of the whole run: a function of their rows and of the sizes of their strata, nothing else.

What a captured step's time went into is known; of the other chosen steps it is estimated by the windows' shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import weighted_median
from phasepoint.estimates.captured import PARTS, Captured, Sampled, Stratum
from phasepoint.estimates.cells import fit_cells
from phasepoint.estimates.stratified import (
    ChosenSteps,
    StratifiedTotals,
    estimate_from_steps,
    half_widths,
    round_closing,
)
from phasepoint.estimates.totals import part_variances, step_parts
from phasepoint.phases.clock.steps import StepSeries


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


def fill_parts(steps: StepSeries, captured: Captured, phase: Int64s, weight: Floats) -> StepParts:
    """Parts of every chosen step.

    Args:
        steps: the chosen steps.
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
    strata = tuple(_describe(steps, known, stratum == index, weight, one) for index, one in enumerate(phases.tolist()))
    sampled = Sampled(steps, captured, strata, stratum, renumber(captured.window)[1], weight)
    fit = fit_cells(sampled, np.zeros((len(captured.row), 0)))
    parts = step_parts(fit, stratum, steps.dur_ps)
    parts[captured.row] = captured.parts_ps
    variances, freedom = part_variances(fit, range(len(strata)))
    return StepParts(parts, variances.reshape(-1, len(PARTS)), freedom)


def _describe(steps: StepSeries, known: Bools, mine: Bools, weight: Floats, phase: int) -> Stratum:
    """A stratum of the run from chosen steps, each counted as often as it stands for others."""
    dur = steps.dur_ps * weight
    total, waiting = float(dur[mine].sum()), float((steps.input_ps * weight)[mine].sum())
    middle = weighted_median(steps.dur_ps[mine].astype(np.float64), weight[mine])
    return Stratum(0, phase, int(total), int(dur[mine & ~known].sum()), middle, waiting / max(total, 1.0))


@dataclass(frozen=True, eq=False)
class Seen:
    """The chosen steps, and the sizes of their strata.

    Attributes:
        stratum: `[n]`, from 0.
        phase: `[n]`, phase id.
        steps: the chosen steps, `[n]`.
        captured: what went into those that a window saw; rows are positions among the chosen.
        size: `[n_strata]`, steps of the run in each.
        phases: per stratum, how many of its steps are of each phase.
    """

    stratum: Int64s
    phase: Int64s
    steps: StepSeries
    captured: Captured
    size: Int64s
    phases: tuple[Mapping[int, int], ...]

    @property
    def weight(self) -> Floats:
        """`[n]`, steps of the run that each chosen step stands for."""
        return (self.size / np.maximum(np.bincount(self.stratum, minlength=len(self.size)), 1))[self.stratum]


class Interval(NamedTuple):
    """An estimate in ps with its interval; `high_ps` None where two steps or more would be needed to know."""

    estimate_ps: int
    low_ps: int
    high_ps: int | None


@dataclass(frozen=True)
class RunEstimate:
    """The run from the chosen steps.

    Attributes:
        total: time inside steps.
        parts: of `PARTS`, by name, adding up to it; empty where no chosen step was captured.
        phases: by id, adding up to it.
    """

    total: Interval
    parts: Mapping[str, Interval]
    phases: Mapping[int, Interval]


def estimate_run(seen: Seen, *, confidence: float = 0.95) -> RunEstimate:
    """Estimate the run.

    Args:
        seen: the chosen steps.
        confidence: of the intervals, 0–1.

    Returns:
        Estimates that close to the picosecond. Where every step is chosen they are exact and the intervals nil; for
        parts that needs every step captured, too.
    """
    dur_ps = seen.steps.dur_ps
    time = estimate_from_steps(ChosenSteps(seen.stratum, dur_ps[:, None], seen.size))
    total_ps = round_half_up(time.totals[0])
    half = half_widths(time.variances, time.freedom, confidence)[0]
    least_ps = sum(dur_ps.tolist())
    total = _interval(total_ps, half, least_ps)
    return RunEstimate(
        total=total,
        parts=_parts(seen, total, confidence) if len(seen.captured.row) else {},
        phases=_phases(seen, time, total_ps, confidence),
    )


def _parts(seen: Seen, total: Interval, confidence: float) -> dict[str, Interval]:
    filled = fill_parts(seen.steps, seen.captured, seen.phase, seen.weight)
    found = estimate_from_steps(ChosenSteps(seen.stratum, filled.parts_ps, seen.size))
    variances = np.vstack([found.variances, filled.variances])
    halves = half_widths(variances, np.concatenate([found.freedom, filled.freedom]), confidence)
    estimates = round_closing(list(found.totals), total.estimate_ps)
    least_ps = [sum(column) for column in seen.captured.parts_ps.T.tolist()]
    parts = {name: _interval(*row) for name, *row in zip(PARTS, estimates, halves, least_ps, strict=True)}
    return {name: one._replace(high_ps=_least(one.high_ps, total.high_ps)) for name, one in parts.items()}


def _least(high_ps: int | None, whole_ps: int | None) -> int | None:
    """A part is at most the whole."""
    return whole_ps if high_ps is None else high_ps if whole_ps is None else min(high_ps, whole_ps)


def _phases(seen: Seen, time: StratifiedTotals, total_ps: int, confidence: float) -> dict[int, Interval]:
    ids = sorted({phase for counts in seen.phases for phase in counts})
    exact, halves = [], []
    for phase in ids:
        counts = [counts.get(phase, 0) for counts in seen.phases]
        means = (count * mean[0] for count, mean in zip(counts, time.means, strict=True))
        exact.append(sum(means, Fraction(0)))
        part = np.array(counts) / np.maximum(seen.size, 1)
        variances = np.where(part[:, None] > 0, time.variances * part[:, None] ** 2, 0)
        halves.append(half_widths(variances, time.freedom, confidence)[0])
    return {
        phase: _interval(estimate, half, 0)
        for phase, estimate, half in zip(ids, round_closing(exact, total_ps), halves, strict=True)
    }


def _interval(estimate_ps: int, half_ps: int | None, least_ps: int) -> Interval:
    """An interval that does not reach below what the chosen steps took themselves."""
    low_ps = min(least_ps, estimate_ps) if half_ps is None else max(estimate_ps - half_ps, min(least_ps, estimate_ps))
    return Interval(estimate_ps, low_ps, None if half_ps is None else estimate_ps + half_ps)


def round_half_up(value: Fraction) -> int:
    """The nearest whole number, the larger one of two: ⌊value + 1/2⌋."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)
