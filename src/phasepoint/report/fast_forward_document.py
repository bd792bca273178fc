"""What a report says of replays, as JSON: the compact without its list of windows, which can be as long as the run."""

from typing import Any

from phasepoint.replay.fast_forward import FastForward
from phasepoint.report.replay_compact_document import compact_document


def fast_forward_document(found: FastForward) -> dict[str, Any]:
    """The part `fast_forward` of `phasepoint report RUN --json`."""
    names = ("command", "checkpoints", "plans", "unavailable", "no_compact", "replays", "problems")
    compact = None if found.compact is None else compact_document(found.compact)
    if compact is not None:
        compact.pop("windows", None)
    return {**{name: getattr(found, name) for name in names}, "compact": compact}
