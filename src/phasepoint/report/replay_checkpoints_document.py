"""A run's checkpoints as a JSON document."""

from typing import Any

from phasepoint.replay.checkpoint_list import CheckpointList
from phasepoint.report.documents import plain


def checkpoints_document(listed: CheckpointList) -> dict[str, Any]:
    """What `phasepoint replay RUN --json` prints: the index, with `leads_to` in every checkpoint."""
    return {
        "run": listed.run,
        "checkpoints": [{**plain(one.checkpoint), "leads_to": list(one.leads_to)} for one in listed.checkpoints],
        "unreached": [{"phase": phase, "reason": reason} for phase, reason in listed.unreached],
        "notes": list(listed.notes),
    }
