"""The verdict: what the run's time went into, in one sentence."""

import re
from collections.abc import Sequence

from phasepoint.core.units import format_ps
from phasepoint.phases.accounting import CHECKPOINT, COMPILING, INPUT_WAIT, OUTSIDE
from phasepoint.phases.breakdown import Breakdown, OpTime
from phasepoint.phases.summary_types import PhaseSummary, RunEvent, Shortfall

LEAST_SHARE = 0.02
"""Parts below 2 % of the time are left to the table, except that the largest part is always named."""
MAX_PARTS = 5

_STEPS_MISSING = ("no-steps", "steps-missed")


def write_verdict(
    account: Breakdown,
    phases: Sequence[PhaseSummary],
    events: Sequence[RunEvent],
    *,
    hosts: int,
    elapsed_ps: int,
    not_enough: Shortfall | None = None,
) -> str:
    """One sentence: the parts of the clock's account, largest first, with their shares of the wall time.

    Args:
        account: wall time by what the clock saw.
        phases: the run's phases, largest first, for the op that stands out in each sort.
        events: for where the waiting and the compiling was.
        hosts: how many took part.
        elapsed_ps: sessions' time on one host.
        not_enough: why the run is no ground for a verdict; where steps are missing, shares of its time mislead, and
            that is the verdict.
    """
    if not account.total_ps:
        return "nothing was recorded: no steps and no time"
    if not_enough is not None and not_enough.code in _STEPS_MISSING:
        return not_enough.text
    families: dict[str, float] = {}
    for part in account.parts:
        families[_family(part.name)] = families.get(_family(part.name), 0.0) + part.share
    ranked = sorted(families.items(), key=lambda item: -item[1])
    named = [(name, share) for name, share in ranked if share >= LEAST_SHARE][:MAX_PARTS] or ranked[:1]
    of = f"{hosts} × {format_ps(elapsed_ps)}" if hosts > 1 else format_ps(account.total_ps)
    words = []
    for index, (name, share) in enumerate(named):
        total = f" of {of}" if index == 0 else ""
        verb = "" if index else ("passed " if OUTSIDE in name else "went into ")
        words.append(f"{_percent(share)}{total} {verb}{_name(name, phases, events)}")
    return "; ".join(words)


def _family(name: str) -> str:
    """A phase's sort: `train` for train-1, train-2, …; the verdict speaks of sorts, the table of phases."""
    return re.sub(r"-\d+$", "", name)


def _name(part: str, phases: Sequence[PhaseSummary], events: Sequence[RunEvent]) -> str:
    if part == INPUT_WAIT:
        return f"waiting for input{_where('input-stall', events)}"
    if part == COMPILING:
        return COMPILING
    if part == CHECKPOINT:
        count = sum(event.kind == "checkpoint" for event in events)
        return f"{count} checkpoints" if count > 1 else "a checkpoint"
    if OUTSIDE in part:
        return part
    if part.startswith("input stall"):
        return f"work in {part} steps"
    phase = next((phase for phase in phases if _family(phase.name) == part), None)
    return f"{part} steps{_standing_out(phase.top_ops) if phase else ''}"


def _where(kind: str, events: Sequence[RunEvent]) -> str:
    """Where most of it was, if one stretch holds more than half."""
    found = [event for event in events if event.kind == kind and event.cost_ps]
    if not found:
        return ""
    worst = max(found, key=lambda event: event.cost_ps or 0)
    if 2 * (worst.cost_ps or 0) < sum(event.cost_ps or 0 for event in found):
        return f" in {len(found)} stretches"
    if worst.first_step == worst.last_step:
        return f" in step {worst.first_step}"
    return f", most of it in steps {worst.first_step}–{worst.last_step}"


def _standing_out(ops: Sequence[OpTime]) -> str:
    """The op (with its layer) that takes most of a phase, if it takes a tenth or more."""
    named = [op for op in ops if op.op != "other"]
    if not named or named[0].share < 0.1:
        return ""
    op = named[0]
    layer = f" in {op.layer}" if op.layer else ""
    return f" ({op.op}{layer} {_percent(op.share)} of their op time)"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
