"""A compact of a run as a JSON document: seconds beside the exact picoseconds."""

from typing import Any

from phasepoint.core.units import PS_PER_S
from phasepoint.replay.compact_result import Compact, CompactWindow, PartEstimate
from phasepoint.report.documents import plain


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
