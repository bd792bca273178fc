"""Phases of a run: which steps behave alike, and when they come back."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.phases.detection.detect import detect_phases
    from phasepoint.phases.detection.result import Phase, PhaseResult, Segment, TopOp
    from phasepoint.phases.detection.table import METHODS

__all__ = ["METHODS", "Phase", "PhaseResult", "Segment", "TopOp", "detect_phases"]

__getattr__ = lazy_names(
    __name__,
    {
        "METHODS": ".detection.table",
        "detect_phases": ".detection.detect",
        "Phase": ".detection.result",
        "PhaseResult": ".detection.result",
        "Segment": ".detection.result",
        "TopOp": ".detection.result",
    },
)
