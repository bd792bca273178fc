"""What a run's summary says, as values: everything that the terminal, the HTML page and `--json` draw.

Every time is integer picoseconds, every share is a ratio 0–1, missing is None. `msgspec.to_builtins` turns a
`RunSummary` into plain JSON values. Nothing here computes: `summary/summary.py` does.
"""

from dataclasses import dataclass

from phasepoint.phases.clock.accounting import RecordingCost
from phasepoint.phases.clock.breakdown import Anatomy, Breakdown, ClockAccount, OpTime
from phasepoint.phases.clock.hosts import HostSummary

SUMMARY_VERSION = 1
"""Version of the layout below, written into every JSON; it grows when a field changes its meaning or goes."""


@dataclass(frozen=True)
class PhaseSummary:
    """One phase: a class of steps that behave alike.

    Attributes:
        id: phase id, as in the labels and the strip.
        name: what it is called: by its kind, or as the job named it.
        kind: train, eval, compile, warm-up, checkpoint, input stall, slow, drift; `named` where only the job's own word
            says what it is.
        steps: number of its steps, on all hosts.
        segments: number of maximal stretches, on the reference host.
        total_ps: time of its steps, on all hosts.
        share: total_ps as a ratio of all time inside steps.
        median_ps: median step time.
        p05_ps: 5th percentile of step time.
        p95_ps: 95th percentile of step time.
        period_steps: steps from one start of the phase to the next, where it comes back regularly; else None.
        representative_window: window that stands for the phase, None where none was captured in it.
        representative_step: the step that stands for it.
        representative_host: host of the two above.
        representative_attempt: attempt of the two above.
        weight: share of the run's time the representative stands for.
        captured_steps: steps of the phase captured in full.
        captured_windows: windows with at least one step of the phase.
        input_ps: measured wait for input in its steps; None where the clock did not see it.
        compile_ps: measured compilation in its steps; None where the clock did not see it.
        restart_from: path of the newest checkpoint before the representative step, None where there is none.
        restart_step: step of that checkpoint.
        top_ops: by self time, the largest first, `other` last; empty where nothing was captured.
        breakdown: total_ps by category.
        differs: what tells it from the largest phase of its kind, in words; None for that one, and for an only one.
        anatomy: total_ps by what it served; None where no captured step tells.
        energy_j: joules that the GPUs took in its steps; None where no driver told them.
    """

    id: int
    name: str
    kind: str
    steps: int
    segments: int
    total_ps: int
    share: float
    median_ps: int
    p05_ps: int
    p95_ps: int
    period_steps: float | None
    representative_window: int | None
    representative_step: int | None
    representative_host: int | None
    representative_attempt: int | None
    weight: float
    captured_steps: int
    captured_windows: int
    input_ps: int | None
    compile_ps: int | None
    restart_from: str | None
    restart_step: int | None
    top_ops: tuple[OpTime, ...]
    breakdown: Breakdown
    differs: str | None = None
    anatomy: Anatomy | None = None
    energy_j: float | None = None


@dataclass(frozen=True)
class StripSegment:
    """One stretch of the reference host's time, in order; stretches tile it without overlap.

    Attributes:
        start_ps: start, from the beginning of the strip.
        dur_ps: length.
        phase: phase id; None for time outside steps.
        name: the phase's name, or `outside steps`.
        first_step: first step, None outside steps.
        last_step: last step, None outside steps.
        merged: how many stretches were drawn together into this one, 1 where it is one; `phase` is then the one
            that took most of the time.
    """

    start_ps: int
    dur_ps: int
    phase: int | None
    name: str
    first_step: int | None
    last_step: int | None
    merged: int = 1


@dataclass(frozen=True)
class RunEvent:
    """Something noticed in the run.

    Attributes:
        kind: compile, recompile, checkpoint, eval, input-stall, slow-steps, shape-change, drift, restart.
        host: host it was seen on.
        attempt: attempt it was seen in.
        first_step: first step concerned, None where it lies outside steps.
        last_step: last step concerned.
        start_ps: when, from the beginning of the strip; None where unknown.
        dur_ps: how long it lasted; None where unknown.
        cost_ps: time at stake: compiling, waiting, excess over the usual step time; None where unknown.
        text: one sentence with its numbers.
    """

    kind: str
    host: int
    attempt: int
    first_step: int | None
    last_step: int | None
    start_ps: int | None
    dur_ps: int | None
    cost_ps: int | None
    text: str


@dataclass(frozen=True)
class CheckpointSummary:
    """A checkpoint written; `start_ps` counts from the beginning of the host's strip.

    `dur_ps` is measured, or estimated with the standard error `error_ps`, or unknown and 0: `basis`.
    """

    host: int
    attempt: int
    step: int | None
    path: str
    start_ps: int
    dur_ps: int
    framework: str
    size_bytes: int | None
    asynchronous: bool | None
    has_iterator: bool | None
    basis: str = "measured"
    error_ps: int = 0


@dataclass(frozen=True)
class GapSummary:
    """Gaps of one kind, merged.

    Attributes:
        why: the reason.
        count: how many.
        total_ps: time concerned, None where no gap of the kind knows its length.
        steps: steps concerned, None where no gap of the kind names its steps.
        unknown: what is not known because of it.
    """

    why: str
    count: int
    total_ps: int | None
    steps: int | None
    unknown: str


@dataclass(frozen=True)
class NotSeen:
    """Everything that was not observed, counted.

    Attributes:
        gaps: the gaps table, by reason, longest first.
        steps: steps recorded by the clock.
        missing_steps: step numbers missing between the first and the last recorded one.
        captured_steps: steps captured in full and converted.
        captured_step_share: of all steps.
        captured_time_share: of the time inside steps.
        windows: windows recorded.
        pending_windows: windows whose raw capture is not converted: they are in no estimate.
        empty_windows: windows that hold no whole step, but a stretch of one.
        events: profiler events read.
        dropped_events: events that could not be placed or that the profiler lost.
        ignored_events: the profiler's own bookkeeping.
        orphan_events: device events with no launch.
        misnested_events: events that overlap a neighbour on their track.
        problems: what could not be read, in words: files, captures.
    """

    gaps: tuple[GapSummary, ...]
    steps: int
    missing_steps: int
    captured_steps: int
    captured_step_share: float
    captured_time_share: float
    windows: int
    pending_windows: int
    empty_windows: int
    events: int
    dropped_events: int
    ignored_events: int
    orphan_events: int
    misnested_events: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Shortfall:
    """Why a run is no ground for a verdict.

    Attributes:
        code: no-steps, steps-missed, not-written, killed or too-short.
        text: what is missing, one sentence without its full stop.
        remedy: what to do, one sentence without its full stop.
    """

    code: str
    text: str
    remedy: str


@dataclass(frozen=True)
class Bound:
    """One thing that limits the run: a finding worth 5 % of it or more; where there is none, what most time went into.

    Attributes:
        word: what it is bound by, in capitals, as the verdict begins: INPUT-BOUND, COMPUTE-BOUND, SLOW MACHINE, …
        cause: what limits it, one sentence without its full stop, with its time and its share of the run.
        share: of the run's wall time.
        time_ps: the time that it takes.
        code: of the finding that says so; None where none does.
        next_step: what to do first, without its full stop; None where there is nothing to do.
        saved_ps: time that the next step should win; None where it wins none by itself.
        low_ps: lower end of the 95 % interval of `saved_ps`; None likewise.
        high_ps: upper end of it; None likewise.
        confidence: high, medium or low.
    """

    word: str
    cause: str
    share: float
    time_ps: int
    code: str | None
    next_step: str | None
    saved_ps: int | None
    low_ps: int | None
    high_ps: int | None
    confidence: str


@dataclass(frozen=True)
class Verdict:
    """What limits a run, and what to do about it.

    Attributes:
        limit: what limits it, one sentence; its first words are those of the first bound.
        advice: what to do next and what else limits it, one to three short sentences; empty where there is nothing.
        bounds: the largest first; empty where too little is known to say.
        is_healthy: whether nothing is left to win that is worth 5 % of the run.
    """

    limit: str
    advice: str = ""
    bounds: tuple[Bound, ...] = ()
    is_healthy: bool = False

    @property
    def text(self) -> str:
        """All of it, as it is printed."""
        return f"{self.limit} {self.advice}".rstrip()


@dataclass(frozen=True)
class Recorded:
    """What a recording holds, the moment it ends.

    Attributes:
        steps: steps, on all processes.
        windows: capture windows.
        processes: processes that wrote.
        machines: machines that they ran on, at least 1.
        cost: what recording cost.
        not_enough: why the run is no ground for a verdict, None where it is one.
    """

    steps: int
    windows: int
    processes: int
    machines: int
    cost: RecordingCost
    not_enough: Shortfall | None


@dataclass(frozen=True)
class RunSummary:
    """What a run's time went into, and how sure that is.

    Attributes:
        version: layout of this summary.
        run: path of the run.
        verdict: what limits the run and what to do, in one to three sentences.
        advice: the last of them, from `Next: ` on; empty where there is nothing to do.
        bounds: the verdict as values, the largest first.
        is_healthy: whether nothing is left to win that is worth 5 % of the run.
        time_went: what the time went into, in one sentence with shares of `wall_ps`.
        state: closed, live or killed; of several hosts the worst.
        notes: what the reader must know first: still recording, killed, nothing captured, what to do.
        method: how phases were found.
        wall_ps: time of the sessions, added over hosts and attempts.
        inside_ps: time inside steps, added likewise.
        outside_ps: wall_ps less inside_ps.
        elapsed_ps: sessions' time on the reference host alone.
        steps: steps recorded, on all hosts.
        reference_host: the host whose steps the strip and the segments show; None without hosts.
        account: wall_ps by what the clock saw: phases, input wait, compiling, checkpoints, recording,
            outside steps. Exact.
        phases: largest share first.
        strip: the reference host's time in order, at most 2,000 stretches.
        categories: inside_ps by category, with intervals.
        input_wait_ps: measured wait for input in all steps; None where the clock did not see it. The part of it
            during which the device did nothing is `input` in `categories`; the rest was hidden behind work.
        top_ops: of the whole run, by self time, `other` last.
        events: in order of time.
        checkpoints: in order of time.
        hosts: one per host.
        not_seen: what was not observed.
        cost: what recording cost.
        environment: framework, devices, command, versions: names and values as recorded.
        machines: machines that the processes ran on; `hosts` counts the processes.
        not_enough: why the run is no ground for a verdict, None where it is one.
        steps_from: what was taken for steps, in words; None where the job marked them, or nothing says so.
        anatomy: inside_ps by what it served, with intervals; None where no captured step tells.
        steps_per_call: training steps in a recorded step, where it is a call of several; None elsewhere.
        energy_j: joules that the GPUs took inside steps; None where no driver told them.
    """

    version: int
    run: str
    verdict: str
    advice: str
    time_went: str
    state: str
    notes: tuple[str, ...]
    method: str
    wall_ps: int
    inside_ps: int
    outside_ps: int
    elapsed_ps: int
    steps: int
    reference_host: int | None
    account: ClockAccount
    phases: tuple[PhaseSummary, ...]
    strip: tuple[StripSegment, ...]
    categories: Breakdown
    input_wait_ps: int | None
    top_ops: tuple[OpTime, ...]
    events: tuple[RunEvent, ...]
    checkpoints: tuple[CheckpointSummary, ...]
    hosts: tuple[HostSummary, ...]
    not_seen: NotSeen
    cost: RecordingCost
    environment: tuple[tuple[str, str], ...]
    machines: int = 1
    bounds: tuple[Bound, ...] = ()
    is_healthy: bool = False
    not_enough: Shortfall | None = None
    steps_from: str | None = None
    steps_per_call: int | None = None
    anatomy: Anatomy | None = None
    energy_j: float | None = None
