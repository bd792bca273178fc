"""What a rule gives: a finding with the time it claims, or why the rule cannot judge."""

from dataclasses import dataclass, field

from phasepoint.core.arrays import Int64s
from phasepoint.core.errors import PhasepointError
from phasepoint.summary.types import Shortfall, Verdict

FINDINGS_VERSION = 1
"""Version of the JSON layout; it grows when a field changes its meaning or goes."""

PARTS = (
    *("compute", "communication", "data_movement", "host", "idle"),
    *("input", "compiling", "checkpoint", "excess", "late", "outside"),
)
"""What a claim can be of: the categories of a step's time, waiting for input, compiling; a checkpoint's time; what a
step lasted beyond its phase's usual step, or waited for a late host; time outside steps."""


class Unavailable(PhasepointError):
    """A rule cannot judge this run; the message says what it lacks and how to record it. Not: it found nothing."""


@dataclass(frozen=True)
class Evidence:
    """Where a finding can be looked up.

    Attributes:
        text: what the rows show, one sentence with its numbers.
        table: table of the run that holds them.
        query: SQL that prints them (`phasepoint sql RUN "…"`).
    """

    text: str
    table: str
    query: str


@dataclass(frozen=True, eq=False)
class Claim:
    """The time that a finding says could be won.

    Attributes:
        part: one of `PARTS`.
        by_step: `[n_steps]` ps of each row of the clock, at most its duration.
        outside_ps: ps between steps.
    """

    part: str
    by_step: Int64s
    outside_ps: int = 0

    @property
    def total_ps(self) -> int:
        """All time claimed."""
        return int(self.by_step.sum()) + self.outside_ps


@dataclass(frozen=True, eq=False)
class Finding:
    """One cause of lost time and what to do about it.

    Attributes:
        code: of its rule: `INPUT-STALL`.
        title: one sentence with its numbers.
        claim: the time that would be won, step by step.
        low_ps: lower end of the 95 % interval of the claim's total.
        high_ps: upper end of it.
        phase: name of the phase concerned most, None where it concerns the whole run or none.
        layers: module paths or op names concerned, the most expensive first.
        remedy: the call or the flag to change, in words and code. Its first clause, up to a semicolon, is what to do
            first, and begins with a verb.
        evidence: rows that show it.
        confidence: high, medium or low.
        wrong_if: what would make it wrong, one sentence.
    """

    code: str
    title: str
    claim: Claim
    low_ps: int
    high_ps: int
    remedy: str
    evidence: tuple[Evidence, ...]
    confidence: str
    wrong_if: str
    phase: str | None = None
    layers: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class RankedFinding:
    """A finding as it is told: with what earlier ones claim of the same time taken out.

    Attributes:
        code, title, phase, layers, remedy, evidence, confidence, wrong_if: as in `Finding`.
        saved_ps: time that would be won beyond what the findings before it win.
        low_ps: lower end of its 95 % interval.
        high_ps: upper end of it.
        alone_ps: time that would be won if this were the only one.
        share: saved_ps as a ratio of the run's wall time.
    """

    code: str
    title: str
    phase: str | None
    saved_ps: int
    low_ps: int
    high_ps: int
    alone_ps: int
    share: float
    layers: tuple[str, ...]
    remedy: str
    evidence: tuple[Evidence, ...]
    confidence: str
    wrong_if: str


@dataclass(frozen=True)
class CannotJudge:
    """A rule that could not run, and what it lacks."""

    code: str
    reason: str


@dataclass(frozen=True)
class Findings:
    """Every rule's answer about one run.

    Attributes:
        run: path of the run.
        wall_ps: the run's wall time, of which the shares are.
        verdict: what limits the run and what to do next; its first bound is the first finding.
        findings: the most recoverable time first.
        unavailable: rules that could not judge.
        clear: codes of the rules that judged and found nothing.
        not_enough: why the run is no ground for a verdict, None where it is one; a gate does not pass on it.
    """

    run: str
    wall_ps: int
    verdict: Verdict
    findings: tuple[RankedFinding, ...]
    unavailable: tuple[CannotJudge, ...]
    clear: tuple[str, ...]
    not_enough: Shortfall | None = None
