"""Phases of a run: which steps behave alike, when they come back, and what the run's time went into.

Names are loaded when first used, so that importing the floor costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.phases.detect import METHODS as METHODS
    from phasepoint.phases.detect import detect_phases as detect_phases
    from phasepoint.phases.estimates import estimate_totals as estimate_totals
    from phasepoint.phases.result import Phase as Phase
    from phasepoint.phases.result import PhaseResult as PhaseResult
    from phasepoint.phases.result import Segment as Segment
    from phasepoint.phases.result import TopOp as TopOp
    from phasepoint.phases.summary import summarize_run as summarize_run

_HOMES = {
    "METHODS": "detect",
    "detect_phases": "detect",
    "Phase": "result",
    "PhaseResult": "result",
    "Segment": "result",
    "TopOp": "result",
    "estimate_totals": "estimates",
    "summarize_run": "summary",
}

__all__ = [
    "METHODS",
    "Phase",
    "PhaseResult",
    "Segment",
    "TopOp",
    "detect_phases",
    "estimate_totals",
    "summarize_run",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.phases.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.phases' has no attribute {name!r}")
