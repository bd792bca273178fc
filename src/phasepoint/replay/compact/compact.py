"""`compact_run`: the cheapest windows and weights that stand for a run, and what they say of the whole.

Steps are chosen with all that is known of the run (`replay/compact/choice.py`); the estimate is made of the chosen
steps and of the sizes of their strata alone (`replay/compact/estimate.py`). See docs/compact.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.core.units import format_ratio
from phasepoint.estimates.captured import PARTS, Captured
from phasepoint.phases.clock.steps import StepSeries, sum_ps
from phasepoint.replay.compact.choice import Candidates, Choice, SamplePlan, plan_sample
from phasepoint.replay.compact.estimate import Interval, Seen, estimate_run
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.summary import reference_host


@dataclass(frozen=True)
class CompactWindow:
    """Consecutive chosen steps that stand for equally many steps each.

    Attributes:
        host: rank.
        attempt: restarts before it.
        first_step: number of its first step.
        last_step: number of its last step, inclusive.
        phase: name of the phase of its steps.
        dur_ps: time of its steps.
        weight: steps of the run that each of its steps stands for; weight × time, added over all windows, is the
            estimated time of the run.
        captured: whether a capture window saw its steps, so that it says what their time went into as well.
    """

    host: int
    attempt: int
    first_step: int
    last_step: int
    phase: str
    dur_ps: int
    weight: float
    captured: bool

    @property
    def n_steps(self) -> int:
        """Steps in the window."""
        return self.last_step - self.first_step + 1


@dataclass(frozen=True)
class PartEstimate:
    """One part of the time inside steps: a category, or a phase.

    Attributes:
        name: of the category or the phase.
        steps: steps of the phase; None for a category.
        estimate_ps: the time, from the chosen windows.
        low_ps: lower end of the interval.
        high_ps: upper end of it; None where two steps or more would be needed to know.
        actual_ps: what was recorded; None where that is not known of every step.
    """

    name: str
    steps: int | None
    estimate_ps: int
    low_ps: int
    high_ps: int | None
    actual_ps: int | None


@dataclass(frozen=True)
class Compact:
    """Windows and weights that stand for a run.

    Attributes:
        run: path of the run.
        host: the host whose steps are meant.
        budget: share of its steps that may be used, 0–1.
        seed: of the choice.
        confidence: of the intervals.
        steps_used: steps in the windows.
        steps_total: steps of the host.
        estimate_ps: time inside steps, from the windows.
        low_ps: lower end of the interval.
        high_ps: upper end of it; None where two steps or more would be needed to know.
        actual_ps: time inside steps as the step clock measured it.
        outside_ps: time of the sessions outside steps, measured, part of none of the above.
        by_category: adds up to estimate_ps; empty where the windows hold no captured step.
        by_phase: adds up to estimate_ps.
        windows: by attempt and step.
        notes: what limits the result, in words.
    """

    run: str
    host: int
    budget: float
    seed: int
    confidence: float
    steps_used: int
    steps_total: int
    estimate_ps: int
    low_ps: int
    high_ps: int | None
    actual_ps: int
    outside_ps: int
    by_category: tuple[PartEstimate, ...]
    by_phase: tuple[PartEstimate, ...]
    windows: tuple[CompactWindow, ...]
    notes: tuple[str, ...]


DEFAULT_BUDGET = 0.05
"""Share of the steps that stand for a run where none is asked for. A choice: the largest of the three shares (1, 2 and
5 %) whose errors docs/compact.md gives."""
CONFIDENCE = 0.95
"""Of the intervals, as of all that Phasepoint gives."""
TIME_WEIGHT, TIME_FIRST_STEPS = 2, 200
"""In a run captured in full, a step's time counts so many times as much for the strata as each of its parts does, and
more where fewer than a hundred steps are chosen: 200 / steps. Measured on six jobs at 5 %: with 1 instead of 2 parts
come out a sixth better and time by half worse; with 36 steps, 2 instead of 6 makes time twice as wrong."""


@dataclass(frozen=True, eq=False)
class HostSteps:
    """The steps of one host, in the run's order.

    Attributes:
        host: rank.
        row: `[n]`, rows of the run's clock.
        series: what the clock knows of each.
        captured: the captured ones; rows are positions among the host's steps, windows are numbered through all
            attempts.
        phase: `[n]`, phase id.
    """

    host: int
    row: Int64s
    series: StepSeries
    captured: Captured
    phase: Int64s

    def plan(self, sample: int, rng: np.random.Generator) -> SamplePlan:
        """Strata and their shares of a sample of that many steps."""
        window = np.full(len(self.row), -1, np.int64)
        window[self.captured.row] = self.captured.window
        by_chance = np.zeros(len(self.row), bool)
        by_chance[self.captured.row] = np.isfinite(self.captured.weight)
        return plan_sample(Candidates(self._known(sample), self.phase, window, by_chance), sample, rng)

    def choose(self, sample: int, seed: int) -> Choice:
        """Choose that many of them."""
        rng = np.random.default_rng(seed)
        return self.plan(sample, rng).draw(rng)

    def _known(self, sample: int) -> Floats:
        """What is known of every step and strata may go by: the clock's columns; of captured runs, the parts too."""
        columns = [self.series.dur_ps, self.series.input_ps, self.series.compile_ps]
        if len(self.captured.row) == len(self.row):
            time_weight = max(TIME_WEIGHT, TIME_FIRST_STEPS // sample)
            columns = [time_weight * self.series.dur_ps, *self.captured.parts_ps.T]
        return np.column_stack(columns).astype(np.float64)

    def seen(self, choice: Choice) -> Seen:
        """What the chosen steps show."""
        index = choice.index
        at = self.captured.index_of(index)
        row = np.flatnonzero(at >= 0)
        at = at[row]
        mine = self.captured
        captured = Captured(row, mine.window[at], mine.weight[at], mine.parts_ps[at])
        return Seen(choice.stratum, self.phase[index], self.series.take(index), captured, choice.size, choice.phases)


def compact_run(analysis: Analysis, *, budget: float = DEFAULT_BUDGET, seed: int = 0) -> Compact:
    """Choose steps that stand for a run, and estimate the run from them.

    Args:
        analysis: of the run.
        budget: share of the steps that may be chosen, above 0, at most 1.
        seed: of the choice, ≥ 0.

    Returns:
        The windows, and the time inside the steps of the host with most steps. With a budget of 1 it is exact.

    Raises:
        UsageError: the budget is not above 0 and at most 1, or comes to less than one step.
        NoDataError: the run has no steps.
    """
    steps = read_host_steps(analysis)
    n = len(steps.row)
    choice = steps.choose(_sample_size(budget, n), seed)
    seen = steps.seen(choice)
    found = estimate_run(seen, confidence=CONFIDENCE)
    actual_ps = sum_ps(steps.series.dur_ps)
    whole = len(steps.captured.row) == n
    parts_ps = [sum_ps(column) if whole else None for column in steps.captured.parts_ps.T]
    named = [(name, time_ps) for name, time_ps in zip(PARTS, parts_ps, strict=True) if name in found.parts]
    categories = [PartEstimate(name, None, *found.parts[name], time_ps) for name, time_ps in named]
    wall_ps = sum(session.wall_ps for session in analysis.clock.of_host(steps.host))
    return Compact(
        run=analysis.run.path,
        host=steps.host,
        budget=budget,
        seed=seed,
        confidence=CONFIDENCE,
        steps_used=len(choice.index),
        steps_total=n,
        estimate_ps=found.total.estimate_ps,
        low_ps=found.total.low_ps,
        high_ps=found.total.high_ps,
        actual_ps=actual_ps,
        outside_ps=max(wall_ps - actual_ps, 0),
        by_category=tuple(part for part in categories if part.high_ps or part.actual_ps or part.estimate_ps),
        by_phase=_phases(found.phases, steps, analysis.names),
        windows=_windows(analysis, steps, choice, seen),
        notes=tuple(_notes(analysis, steps, choice, seen)),
    )


def read_host_steps(analysis: Analysis) -> HostSteps:
    """The steps of the host with most of them.

    Raises:
        NoDataError: the run has no steps.
    """
    clock, host = analysis.clock, reference_host(analysis.clock)
    if host is None or not clock.n_steps:
        raise NoDataError(f"{analysis.run.path}: no steps were recorded; wrap the loop's loader in run.steps(loader)")
    row = np.flatnonzero(clock.host == host)
    seen = analysis.estimates.seen
    mine = np.flatnonzero(clock.host[seen.row] == host)
    attempt = clock.attempt[seen.row[mine]]
    window = renumber(attempt * (int(seen.window.max(initial=0)) + 1) + seen.window[mine])[1]
    captured = Captured(np.searchsorted(row, seen.row[mine]), window, seen.weight[mine], seen.parts_ps[mine])
    return HostSteps(host, row, clock.take(row), captured, analysis.labels[row])


def _sample_size(budget: float, n: int) -> int:
    if not 0 < budget <= 1:
        raise UsageError(f"budget {budget:g}: expected a share of the steps above 0 and at most 1, such as 0.05 or 5%")
    sample = int(budget * n + 1e-9)
    if sample < 1:
        least = format_ratio(1 / n)
        raise UsageError(f"budget {100 * budget:g} % of {n:,} steps is less than one step; give at least {least}")
    return sample


def _phases(found: Mapping[int, Interval], steps: HostSteps, names: Mapping[int, str]) -> tuple[PartEstimate, ...]:
    return tuple(
        PartEstimate(names[phase], int(mine.sum()), *interval, sum_ps(steps.series.dur_ps[mine]))
        for phase, interval in found.items()
        if (mine := steps.phase == phase).any()
    )


def _windows(analysis: Analysis, steps: HostSteps, choice: Choice, seen: Seen) -> tuple[CompactWindow, ...]:
    """Neighbours of one stratum, phase and window as one."""
    row, n = steps.row[choice.index], len(choice.index)
    if not n:
        return ()
    step, attempt = analysis.clock.step[row], analysis.clock.attempt[row]
    window = np.full(n, -1, np.int64)
    window[seen.captured.row] = seen.captured.window
    same = (step[1:] == step[:-1] + 1) & (attempt[1:] == attempt[:-1]) & (choice.stratum[1:] == choice.stratum[:-1])
    same &= (window[1:] == window[:-1]) & (seen.phase[1:] == seen.phase[:-1])
    first = np.concatenate(([0], np.flatnonzero(~same) + 1))
    last = np.concatenate((first[1:] - 1, [n - 1]))
    return tuple(
        CompactWindow(
            host=steps.host,
            attempt=int(attempt[start]),
            first_step=int(step[start]),
            last_step=int(step[end]),
            phase=analysis.names[int(seen.phase[start])],
            dur_ps=sum_ps(seen.steps.dur_ps[start : end + 1]),
            weight=float(seen.weight[start]),
            captured=bool(window[start] >= 0),
        )
        for start, end in zip(first.tolist(), last.tolist(), strict=True)
    )


def _notes(analysis: Analysis, steps: HostSteps, choice: Choice, seen: Seen) -> list[str]:
    notes = []
    hosts = len({session.host for session in analysis.clock.sessions})
    if hosts > 1:
        notes.append(f"the steps of host {steps.host} are meant, which has most; {hosts - 1} more are left out")
    if not len(steps.captured.row):
        notes.append("the run has no converted capture window: nothing is known of what its time went into")
    elif not len(seen.captured.row):
        notes.append("no capture window fits into the budget: nothing is said of what the time went into")
    elif len(seen.captured.row) < len(choice.index):
        n, windows = len(seen.captured.row), len(np.unique(seen.captured.window))
        notes.append(
            f"categories rest on {n:,} captured steps in {windows:,} windows, time on all {len(choice.index):,}"
        )
    if any(len(counts) > 1 for counts in seen.phases):
        notes.append("too few steps for each phase to have its own: phases with like steps are taken together")
    if bool((np.bincount(seen.stratum) < np.minimum(seen.size, 2)).any()):
        notes.append("one step stands for several: how sure the estimate is is not known; a larger budget tells")
    return notes
