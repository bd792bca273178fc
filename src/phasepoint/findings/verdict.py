"""The verdict: what limits the run, how much of it, and what to do next.

The finding that wins most is its first word, if it is worth `LEAST_BOUND` of the run, so that the verdict and the list
of findings never disagree. Where no finding is, the run is bound by what most of its time went into, and where that is
the device's own work, it is healthy. Where too little was seen to say so, the verdict says what would be needed.
"""

from collections.abc import Sequence

from phasepoint.core.units import format_counted, format_ps, format_ratio
from phasepoint.estimates.captured import INPUT, UNATTRIBUTED
from phasepoint.findings.evidence.roofline import peak_share
from phasepoint.findings.evidence.window_spans import RECORD_DEVICE, unseen_device
from phasepoint.findings.finding import RankedFinding
from phasepoint.findings.table import find_rule
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.accounting import PHASE
from phasepoint.phases.clock.breakdown import FEW, Breakdown, PartTime
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.enough import advise_capture
from phasepoint.summary.types import Bound, Verdict

LEAST_BOUND = 0.05
"""Share of the run from which a finding is its bound: below, nobody sees the change in the bill (a choice)."""

LEAST_LOW = 1 / 3
"""Where the lower end of what is won is a smaller part of it, only the ends are told, as findings do."""

MOST_ALSO = 2
"""Further bounds that the sentence names: a choice, it is read at a glance. `bounds` holds all."""

_DEVICE_WORK = ("compute", "communication", "data_movement")
"""Categories during which the device works."""

_NEVER_RECORDED = ("no-steps", "steps-missed")
"""Shortfalls of runs whose time cannot be told at all."""


def write_verdict(view: FindingsView, findings: Sequence[RankedFinding]) -> Verdict:
    """What limits a run.

    Args:
        view: the run.
        findings: of the same run, ranked.
    """
    analysis = view.analysis
    if not analysis.clock.wall_ps:
        return Verdict("Nothing was recorded: no steps and no time.")
    shortfall = analysis.shortfall
    if shortfall is not None and shortfall.code in _NEVER_RECORDED:
        return Verdict(f"NOT KNOWN: {shortfall.text}.", f"Next: {_lowered(shortfall.remedy)}.")
    return _bound_by(bounds) if (bounds := _bounds(findings)) else _without_finding(view, findings)


def _bound_by(bounds: tuple[Bound, ...]) -> Verdict:
    first, also = bounds[0], [f"{bound.word} {format_ratio(bound.share)}" for bound in bounds[1 : MOST_ALSO + 1]]
    advice = _next(first) + (f" Also: {', '.join(also)}." if also else "")
    return Verdict(f"{first.word}: {first.cause}.", advice, bounds)


def _bounds(findings: Sequence[RankedFinding]) -> tuple[Bound, ...]:
    """The findings that are worth `LEAST_BOUND` of the run, the largest of each word."""
    found: dict[str, Bound] = {}
    for finding in findings:
        word = find_rule(finding.code).bound
        if word is not None and finding.share >= LEAST_BOUND and finding.low_ps > 0:
            found.setdefault(word, _bound_of(word, finding))
    return tuple(found.values())


def _bound_of(word: str, finding: RankedFinding) -> Bound:
    return Bound(
        word=word,
        cause=_lowered(finding.title),
        share=finding.share,
        time_ps=finding.alone_ps,
        code=finding.code,
        next_step=_lowered(finding.remedy.split("; ", 1)[0]),
        saved_ps=finding.saved_ps,
        low_ps=finding.low_ps,
        high_ps=finding.high_ps,
        confidence=finding.confidence,
    )


def _next(bound: Bound) -> str:
    """`Next: … ; that should win about 27 s (20 s to 31 s).`"""
    if bound.saved_ps is None or bound.low_ps is None or bound.high_ps is None:
        return f"Next: {bound.next_step}."
    about, low, high = map(format_ps, (bound.saved_ps, bound.low_ps, bound.high_ps))
    if bound.confidence == "low" or bound.low_ps < LEAST_LOW * bound.saved_ps:
        return f"Next: {bound.next_step}; that should win something between {low} and {high}."
    ends = f" ({low} to {high})" if {low, high} != {about} else ""
    return f"Next: {bound.next_step}; that should win about {about}{ends}."


def _without_finding(view: FindingsView, findings: Sequence[RankedFinding]) -> Verdict:
    """By what most of the time went into."""
    analysis = view.analysis
    categories, wall_ps = analysis.estimates.categories, analysis.clock.wall_ps
    outside = [part for part in analysis.account.parts if part.kind != PHASE]
    if outside and (most := max(outside, key=lambda part: part.total_ps)).total_ps > analysis.clock.inside_ps:
        cause = f"{format_ps(most.total_ps)}, {format_ratio(most.share)} of the run, went into {most.name}"
        step = 'say what runs there: `with run.phase("name"):` around it, or record a longer job'
        bound = Bound("OUTSIDE STEPS", cause, most.share, most.total_ps, None, step, None, None, None, "high")
        return _bound_by((bound,))
    if unseen := view.once(unseen_device):
        return Verdict(f"NOT KNOWN: {unseen}.", f"Next: {RECORD_DEVICE}.")
    work_ps, low_ps, high_ps = _device_work(categories)
    if categories.basis == FEW or high_ps - low_ps > wall_ps / 2:
        return _not_known(analysis, work_ps, low_ps, high_ps)
    if 2 * work_ps < categories.total_ps:
        return _waiting_device(categories, work_ps, wall_ps)
    return _healthy(view, findings, work_ps)


def _not_known(analysis: Analysis, work_ps: int, low_ps: int, high_ps: int) -> Verdict:
    """The step times show no cause, and too little was captured to say what the steps' time went into."""
    categories, wall_ps = analysis.estimates.categories, analysis.clock.wall_ps
    windows = format_counted(categories.windows, "window")
    if not categories.windows:
        seen = "no step was captured, so what its time goes into is not known"
    elif categories.basis == FEW:
        steps, share = format_counted(categories.captured_steps, "step"), format_ratio(work_ps / categories.total_ps)
        seen = f"{windows} cannot speak for the run: in the {steps} captured the device works for {share} of the time"
    else:
        low, high = (format_ratio(ps / wall_ps) for ps in (low_ps, high_ps))
        seen = f"by {windows} the device works for anything between {low} and {high} of the run"
    return Verdict(
        f"NOT KNOWN: the times of the steps alone show no cause, and {seen}.",
        f"Next: {advise_capture(analysis.run, analysis.clock)}.",
    )


def _waiting_device(categories: Breakdown, work_ps: int, wall_ps: int) -> Verdict:
    """The device does nothing for most of the steps, and no rule says why."""
    largest = max((part for part in categories.parts if part.name not in _DEVICE_WORK), key=lambda part: part.total_ps)
    word = {INPUT: "INPUT-BOUND", UNATTRIBUTED: "NOT KNOWN"}.get(largest.name, "HOST-BOUND")
    cause = (
        f"the device works for {format_ratio(work_ps / wall_ps)} of the run ({format_ps(work_ps)}); "
        f"most of the rest, {format_ps(largest.total_ps)}, is {_words_of(largest)}"
    )
    step = "see what the host did while the device stood idle (phasepoint stack idle-causes)"
    bound = Bound(word, cause, largest.total_ps / wall_ps, largest.total_ps, None, step, None, None, None, "medium")
    return _bound_by((bound,))


def _words_of(part: PartTime) -> str:
    return {
        "host": "the host's own work",
        "idle": "idle time of both",
        INPUT: "waiting for data",
        UNATTRIBUTED: "not seen by the profiler",
    }.get(part.name, part.name)


def _healthy(view: FindingsView, findings: Sequence[RankedFinding], work_ps: int) -> Verdict:
    """The device works for most of the time, and nothing is left to win that is worth `LEAST_BOUND`."""
    peak, share = peak_share(view), work_ps / view.clock.wall_ps
    parts = {part.name: part.total_ps for part in view.analysis.estimates.categories.parts}
    if 2 * parts["communication"] > work_ps:
        word, does = "COMMUNICATION-BOUND", "exchanges data"
    elif 2 * parts["data_movement"] > work_ps or (peak is not None and peak.is_of_memory):
        word, does = "MEMORY-BOUND", "works"
    else:
        word, does = "COMPUTE-BOUND", "works"
    what = "memory's bandwidth" if word == "MEMORY-BOUND" else "peak"
    reached = f", at {format_ratio(peak.ratio)} of its {what}" if peak is not None else ""
    cause = f"the device {does} for {format_ratio(share)} of the run ({format_ps(work_ps)}){reached}"
    left = next((f for f in findings if f.saved_ps and f.low_ps > 0), None)
    rest = f"; the largest is {left.code}, {format_ratio(left.share)}" if left is not None else ""
    bound = Bound(word, cause, share, work_ps, None, None, None, None, None, "high")
    advice = f"Nothing was found that would win {format_ratio(LEAST_BOUND)} of the run{rest}."
    return Verdict(f"{word}: {cause}: healthy.", advice, (bound,), is_healthy=True)


def _device_work(categories: Breakdown) -> tuple[int, int, int]:
    """Time for which the device worked, and the ends of its 95 % interval, from what it did not work for."""
    work = [part for part in categories.parts if part.name in _DEVICE_WORK]
    other = [part for part in categories.parts if part.name not in _DEVICE_WORK]
    total_ps = sum(part.total_ps for part in work)
    half_ps = min(sum(part.high_ps - part.low_ps for part in some) for some in (work, other)) // 2
    return total_ps, max(total_ps - half_ps, 0), min(total_ps + half_ps, categories.total_ps)


def _lowered(text: str) -> str:
    """Without the capital that a sentence begins with, where that is a word and not a name (`DataLoader`, `A100`)."""
    first = text.split(maxsplit=1)[0] if text else ""
    return text[:1].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text
