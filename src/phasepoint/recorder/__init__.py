"""Live recording: step clock, capture windows under a budget, checkpoint hooks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.recorder.clock.cost import RecorderCost
    from phasepoint.recorder.recording import Recording, record, start

_HOMES = {"RecorderCost": "clock.cost", "Recording": "recording", "record": "recording", "start": "recording"}

__all__ = ["RecorderCost", "Recording", "record", "start"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from phasepoint.recorder.clock.importing import timed_import

        return getattr(timed_import(f"phasepoint.recorder.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.recorder' has no attribute {name!r}")
