"""How long a capture window disturbs the steps after it: until what it captured has been written."""

from collections.abc import Mapping
from typing import Any

WRITING = 2
"""How long writing a capture disturbs the job, over the processor time that writing takes.

On one core, where writing and the job take turns, PyTorch steps were slow again for 1 to 1.3 times that time after the
window (20 MB captures, 0.25 s, six replays, 2026-11-21).
"""

SETTLING_COLUMNS = ("start_ps", "dur_ps", "write_cost_ps")
"""Columns of `windows` that `settled_ps` needs."""


def settled_ps(window: Mapping[str, Any]) -> int:
    """When the job is itself again after a window, from the session's epoch."""
    return int(window["start_ps"] + window["dur_ps"] + WRITING * (window["write_cost_ps"] or 0))
