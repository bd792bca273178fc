"""What rules look at: one analysis of the run, and what several rules need of it, each computed once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.lazy import Once
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import format_counted
from phasepoint.estimates.captured import Captured, Sampled
from phasepoint.findings.finding import Unavailable
from phasepoint.phases.clock.accounting import StepAccount, checkpoint_stretches
from phasepoint.phases.clock.breakdown import Breakdown, PartTime
from phasepoint.phases.clock.steps import RunClock
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.enough import LEAST_STEPS, advise_capture


@dataclass(frozen=True, eq=False)
class FindingsView(Once):
    """A run, as rules see it.

    Attributes:
        analysis: clock, phases, estimates and the tables of the run.
    """

    analysis: Analysis

    def of_framework(self, *, torch: str, jax: str) -> str:
        """The words for the run's framework; both where it is not known, or where the run used both."""
        used = self.analysis.run.manifest.frameworks
        if ("torch" in used) != ("jax" in used):
            return torch if "torch" in used else jax
        return f"PyTorch: {torch}; JAX: {jax}"

    @property
    def clock(self) -> RunClock:
        """The steps of every host and attempt."""
        return self.analysis.clock

    @property
    def labels(self) -> Int64s:
        """`[n_steps]` phase id per row of the clock."""
        return self.analysis.labels

    @cached_property
    def phases(self) -> list[int]:
        """Ids of the phases that steps have."""
        return list(map(int, renumber(self.labels)[0]))

    def table(self, name: str) -> pa.Table:
        """A table of the run; those that `Analysis` does not hold (`spans`, `instructions`) are read when asked for."""
        return self.analysis.table(name)

    @cached_property
    def checkpoint_stretches(self) -> pa.Table:
        """When checkpoints held the job: `host`, `attempt`, `start_ps`, `dur_ps`."""
        return checkpoint_stretches(self.analysis.tables)

    @property
    def sampled(self) -> Sampled:
        """The run as its windows show it."""
        return self.analysis.estimates.sampled

    @property
    def captured(self) -> Captured:
        """The captured steps, with what each one's time went into."""
        return self.analysis.estimates.seen

    @property
    def is_fully_captured(self) -> bool:
        """Whether every step was captured: what is told of them was measured, and nothing estimated."""
        return 0 < self.clock.n_steps == len(self.captured.row)

    @cached_property
    def usual_ps(self) -> Int64s:
        """`[n_steps]` the median step time of each row's phase."""
        usual = np.zeros(self.clock.n_steps, np.int64)
        for phase in self.phases:
            mine = self.labels == phase
            usual[mine] = median_ps(self.clock.dur_ps[mine])
        return usual

    @property
    def step_parts(self) -> StepAccount:
        """What each step's time went into, as the account has it."""
        return self.analysis.step_parts

    def part(self, name: str, phase: int | None = None) -> PartTime:
        """Estimated time of a category (or `input`, `compiling`, `unattributed`), of the run or of a phase."""
        breakdown: Breakdown = (
            self.analysis.estimates.categories if phase is None else self.analysis.estimates.phases[phase]
        )
        return next(part for part in breakdown.parts if part.name == name)

    def phase_of_most(self, claimed_ps: Int64s) -> str | None:
        """Name of the phase whose steps hold most of a claim, `[n_steps]`; None where nothing is claimed."""
        if not claimed_ps.any():
            return None
        return self.analysis.names.get(int(np.bincount(self.labels, claimed_ps).argmax()))

    def need_steps(self, least: int = LEAST_STEPS) -> None:
        """Raises `Unavailable` where the run has fewer steps: for rules that compare steps with each other."""
        if self.clock.n_steps < least:
            found = format_counted(self.clock.n_steps, "step was", "steps were")
            raise Unavailable(f"{found} recorded; at least {least} are needed to compare them")

    def need_estimate(self) -> None:
        """Raises `Unavailable` where steps are too few to estimate others by; where all were captured, one will do."""
        if not self.is_fully_captured:
            self.need_steps()

    def need_windows(self, least: int = 1) -> None:
        """Raises `Unavailable` where fewer windows were captured and converted."""
        found = len(np.unique(self.captured.window))
        if found < least:
            seen = format_counted(found, "capture window holds", "capture windows hold")
            raise Unavailable(
                f"{seen} whole steps; at least {least} "
                f"{'is' if least == 1 else 'are'} needed: {advise_capture(self.analysis.run, self.clock)}"
            )
