"""A compact of a run, as values: the chosen windows with their weights, and what they say of the whole."""

from dataclasses import dataclass


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
