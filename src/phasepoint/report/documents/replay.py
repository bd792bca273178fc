"""What is said of replays as JSON: a run's checkpoints, its compact, and what the report shows of both."""

from typing import Any

from phasepoint.core.units import PS_PER_S
from phasepoint.replay.compact.compact import Compact, CompactWindow, PartEstimate
from phasepoint.replay.fast_forward import FastForward
from phasepoint.replay.plan.plan import CheckpointList
from phasepoint.report.documents.document import plain


def compact_document(found: Compact) -> dict[str, Any]:
    """The fields of `phasepoint replay compact --json`."""
    times = ("estimate_ps", "low_ps", "high_ps", "actual_ps")
    return {
        **{name: getattr(found, name) for name in ("run", "host", "budget", "seed", "confidence")},
        "steps_used": found.steps_used,
        "steps_total": found.steps_total,
        **{name.replace("_ps", "_s"): _seconds(getattr(found, name)) for name in (*times, "outside_ps")},
        "by_category": [{"category": one.name, **_times(one)} for one in found.by_category],
        "by_phase": [{"phase": one.name, "steps": one.steps, **_times(one)} for one in found.by_phase],
        "windows": [_window(one) for one in found.windows],
        "notes": list(found.notes),
        **{name: getattr(found, name) for name in (*times, "outside_ps")},
    }


def _times(one: PartEstimate) -> dict[str, Any]:
    names = ("estimate_ps", "low_ps", "high_ps", "actual_ps")
    seconds = {name.replace("_ps", "_s"): _seconds(getattr(one, name)) for name in names}
    return seconds | {name: getattr(one, name) for name in names}


def _window(one: CompactWindow) -> dict[str, Any]:
    fields: dict[str, Any] = plain(one)
    return {**fields, "dur_s": _seconds(one.dur_ps)}


def _seconds(time_ps: int | None) -> float | None:
    return None if time_ps is None else time_ps / PS_PER_S


def checkpoints_document(listed: CheckpointList) -> dict[str, Any]:
    """What `phasepoint replay RUN --json` prints: the index, with `leads_to` in every checkpoint."""
    return {
        "run": listed.run,
        "checkpoints": [{**plain(one.checkpoint), "leads_to": list(one.leads_to)} for one in listed.checkpoints],
        "unreached": [{"phase": phase, "reason": reason} for phase, reason in listed.unreached],
        "notes": list(listed.notes),
    }


def fast_forward_document(found: FastForward) -> dict[str, Any]:
    """The part `fast_forward` of `phasepoint report RUN --json`."""
    names = ("command", "checkpoints", "plans", "unavailable", "no_compact", "replays", "problems")
    compact = None if found.compact is None else compact_document(found.compact)
    if compact is not None:
        compact.pop("windows", None)
    return {**{name: getattr(found, name) for name in names}, "compact": compact}
