"""The sentences and figures that the terminal and the page share, so that both say the same.

A checkpoint in words: for its mark on the timeline and for tables.

The command that replays a phase, ready to be copied into a shell.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from phasepoint.core.units import format_bytes, format_count, format_counted, format_joules, format_ps, format_ratio
from phasepoint.phases.clock.accounting import RecordingCost
from phasepoint.phases.clock.breakdown import FEW, MEASURED, Breakdown, ClockAccount, PartTime
from phasepoint.phases.detection.table import DEFAULT_METHOD
from phasepoint.replay.checkpoints import IndexedCheckpoint, refusal
from phasepoint.report.words.names import printable
from phasepoint.report.words.recorded_line import processes_text, small_ratio
from phasepoint.summary.types import GapSummary, NotSeen, RunSummary


def replay_command(run: str, phase: str, command: Sequence[str], *, from_start: bool = False) -> str:
    """`phasepoint replay run RUN --phase P -- COMMAND…`, quoted; `COMMAND…` where the run does not know its command.

    Args:
        run: path of the run.
        phase: its name or id.
        command: words with which the job was started.
        from_start: whether the job is started from its beginning.
    """
    words = ["phasepoint", "replay", "run", run, "--phase", phase]
    words += ["--from-start"] if from_start else []
    text = " ".join(shlex.quote(printable(word)) for word in words)
    job = " ".join(shlex.quote(printable(word)) for word in command) or "COMMAND…"
    return f"{text} -- {job}"


_PARTS = (
    ("has_model", "model"),
    ("has_optimizer", "optimizer"),
    ("has_prng", "random state"),
    ("has_iterator", "data iterator"),
)

_KEY = ("host", "attempt", "step", "path")


def contents(one: IndexedCheckpoint) -> str:
    """What is in it and what is not, as far as it is known: `model, optimizer; no data iterator`."""
    held = ", ".join(name for part, name in _PARTS if getattr(one, part) is True)
    absent = " or ".join(name for part, name in _PARTS if getattr(one, part) is False)
    loader = "loader's state beside it" if one.iterator_state is not None else ""
    return "; ".join(text for text in (held, f"no {absent}" if absent else "", loader) if text)


def checkpoint_text(one: IndexedCheckpoint) -> str:
    """One line: step, size, time to write, state, contents, path."""
    step = "before the first step" if one.step is None else f"after step {one.step:,}"
    size = "" if one.size_bytes is None else f", {format_bytes(one.size_bytes)}"
    waited = f", the job waited {format_ps(one.dur_ps)}" if one.dur_ps else ""
    state = f", {one.state}" if one.state != "unknown" else ""
    held = contents(one)
    return f"checkpoint {step}{size}{waited}{state}{f' ({held})' if held else ''}: {one.path}"


def tell_checkpoints(checkpoints: Iterable[IndexedCheckpoint]) -> Callable[[Mapping[str, Any]], tuple[str, bool]]:
    """What the timeline says of a row of `checkpoints`, and whether no replay can start from it."""
    told = {tuple(getattr(one, name) for name in _KEY): one for one in checkpoints}

    def tell(row: Mapping[str, Any]) -> tuple[str, bool]:
        one = told[tuple(row[name] for name in _KEY)]
        return checkpoint_text(one), refusal(one) is not None

    return tell


CATEGORY_NAMES = {
    "data_movement": "data movement",
    "input": "waiting for input",
    "idle": "idle",
    "unattributed": "not attributed",
}


def category_name(name: str) -> str:
    """A category as people write it."""
    return CATEGORY_NAMES.get(name, name)


WIDE = 0.5
"""Ratio of a value beyond which its interval is told by both ends: `± 22 s` of 3.6 s says nothing of the lower one."""


def interval_text(total_ps: int, low_ps: int, high_ps: int) -> str:
    """`± 412 ms`, by the wider side; `1.2 s – 9.8 s` where that is more than half of it; nothing if it was measured."""
    margin = max(total_ps - low_ps, high_ps - total_ps)
    if margin > WIDE * total_ps:
        return f"{format_ps(low_ps)} – {format_ps(high_ps)}"
    return f"± {format_ps(margin)}" if margin else ""


def part_interval(part: PartTime) -> str:
    """The interval of a part, or how the part is known without one."""
    if part.basis == "measured":
        return "measured"
    return interval_text(part.total_ps, part.low_ps, part.high_ps)


def account_basis(account: ClockAccount) -> str:
    """How the clock's account is known."""
    estimated = any(part.basis == "estimated" for part in account.parts)
    return f"measured{', what has ± is estimated' if estimated else ''}; adds up exactly"


def period_text(steps: float | None) -> str:
    """How often a phase comes back: `100 steps`."""
    return "–" if steps is None else f"{steps:,.0f} steps"


def slower_text(ratio: float | None) -> str:
    """How much slower a host is than the others: `+1.2 %`."""
    return "–" if ratio is None else f"{100 * ratio:+.1f} %"


def headline(summary: RunSummary) -> str:
    """The line under the verdict: which run, how long, how many steps."""
    parts = (
        summary.run,
        summary.state,
        format_ps(summary.elapsed_ps),
        format_counted(summary.steps, "step"),
        processes_text(len(summary.hosts), summary.machines),
        "" if summary.method == DEFAULT_METHOD else f"phases found by {summary.method}",
    )
    return " · ".join(printable(part) for part in parts if part)


def hosts_title(summary: RunSummary) -> str:
    """What the rows of the table of hosts are: machines, or processes of which several ran on one machine."""
    return "Hosts" if len(summary.hosts) <= summary.machines else "Processes"


def steps_line(summary: RunSummary) -> str:
    """What a step is, and what the steps took of energy; empty where nothing says so."""
    parts = [f"Steps are {summary.steps_from}." if summary.steps_from else ""]
    if summary.steps_per_call is not None:
        parts.append(f"Each recorded step is a call of {format_counted(summary.steps_per_call, 'training step')}.")
    if summary.energy_j:
        most = max(summary.phases, key=lambda phase: phase.energy_j or 0.0)
        share = format_ratio((most.energy_j or 0.0) / summary.energy_j)
        parts.append(f"The GPUs took {format_joules(summary.energy_j)}, {share} of it in {most.name} steps.")
    return printable(" ".join(part for part in parts if part))


def estimate_basis(breakdown: Breakdown) -> str:
    """What an estimate rests on."""
    if not breakdown.windows:
        return "nothing was captured, so nothing can be attributed"
    if breakdown.basis == MEASURED:
        count = format_count(breakdown.captured_steps)
        return "measured in the only step" if count == "1" else f"measured in all {count} steps"
    windows = format_counted(breakdown.windows, "capture window")
    steps = format_counted(breakdown.captured_steps, "captured step")
    if breakdown.basis == FEW:
        return f"shares by {windows}, {steps}: too few to say how long"
    return f"estimated from {windows}, {steps}; ± and ranges are {100 * breakdown.confidence:.0f} % intervals"


def ops_title(breakdown: Breakdown, of: str) -> str:
    """What a table of ops is headed with, by how the same scope's breakdown is known.

    Args:
        breakdown: of the phase, or of the run.
        of: the phase's name; empty for the run.
    """
    if breakdown.basis != FEW:
        return f"Top ops of {of}, by self time" if of else "Top ops, by self time"
    steps = format_counted(breakdown.captured_steps, "captured step")
    return f"Ops in the {steps}{f' of {of}' if of else ''}: too few windows to tell of the others"


def not_seen_lines(seen: NotSeen) -> list[str]:
    """Everything that was not observed, one sentence each; the first says how much was."""
    lines = [_captured_line(seen)]
    counted = (
        (seen.missing_steps, "Step numbers missing between the first and the last recorded step"),
        (seen.pending_windows, "Windows not converted yet, and so in no estimate"),
        (seen.dropped_events, "Profiler events lost or impossible to place"),
        (seen.orphan_events, "Device events with no launch in the capture"),
        (seen.misnested_events, "Events that overlap a neighbour on their track without nesting"),
    )
    lines += [_stretches_line(seen.empty_windows)] if seen.empty_windows else []
    lines += [f"{what}: {format_count(count)}" for count, what in counted if count]
    lines += [gap_line(gap) for gap in seen.gaps]
    lines += [printable(problem) for problem in seen.problems]
    return lines


def _stretches_line(stretches: int) -> str:
    were = "stretch inside a step was" if stretches == 1 else "stretches inside steps were"
    return (
        f"{format_count(stretches)} {were} captured: a whole step was dearer than the budget. Their ops say what ran, "
        "not how often."
    )


def _captured_line(seen: NotSeen) -> str:
    if not seen.captured_steps:
        return f"No step was captured in full; the step clock saw {format_counted(seen.steps, 'step')}."
    if seen.captured_steps == seen.steps:
        count = format_count(seen.steps)
        return "The only step was captured in full." if seen.steps == 1 else f"All {count} steps were captured in full."
    return (
        f"Captured in full: {format_count(seen.captured_steps)} of {format_counted(seen.steps, 'step')} "
        f"({small_ratio(seen.captured_step_share)} of the steps, {small_ratio(seen.captured_time_share)} of their "
        f"time), in {format_counted(seen.windows, 'window')}; the step clock saw the others."
    )


def gap_line(gap: GapSummary) -> str:
    """One kind of gap in one sentence."""
    length = f", {format_ps(gap.total_ps)}" if gap.total_ps is not None else ""
    steps = f", {format_counted(gap.steps, 'step')}" if gap.steps else ""
    times = f" × {format_count(gap.count)}" if gap.count > 1 else ""
    return printable(f"{gap.why}{times}{length}{steps}: {gap.unknown}")


_REST = "The recorder's own account is missing, as it is where a job was killed, so nothing says what it cost in all."
_NO_ACCOUNT = f"What recording cost is not known. {_REST}"


def cost_line(cost: RecordingCost) -> str:
    """What recording cost the job, against the budget."""
    if cost.imported:
        return "What recording cost is not known: the trace was recorded by another profiler and imported."
    if not cost.total_ps:
        return "No cost was measured: no window was captured." if cost.complete else _NO_ACCOUNT
    if cost.share is None:
        return f"Recording cost {format_ps(cost.total_ps)}; the job's time is not known."
    if not cost.complete and cost.within_budget is None:
        least = f"at least {format_ps(cost.total_ps)}, {small_ratio(cost.share)} of the job's time"
        return f"Recording cost {least}. {_REST}"
    budget = ""
    if cost.budget is not None:
        verdict = {True: "within", False: "over", None: "against"}[cost.within_budget]
        budget = f", {verdict} the budget of {format_ratio(cost.budget)}"
    known = " up to the last flush (a process was killed)" if cost.killed_sessions else ""
    return f"Recording cost {format_ps(cost.total_ps)}{known}, {small_ratio(cost.share)} of the job's time{budget}."


def cost_parts(cost: RecordingCost) -> list[tuple[str, int]]:
    """The parts of the recording's cost with their names; they add up to `total_ps`."""
    return [
        ("entering", cost.entry_ps),
        ("step clock and planning", cost.clock_ps),
        ("writing rows (CPU, off the job's thread)", cost.flush_ps),
        ("opening profiler sessions", cost.start_ps),
        ("slower steps while capturing", cost.slowdown_ps),
        ("closing sessions", cost.stop_ps),
        ("waiting for other ranks' windows", cost.wait_ps),
        ("writing captures (CPU, off the job's thread)", cost.write_ps),
        ("converting them (CPU, beside the job)", cost.convert_ps),
    ]
