"""One reader per capture format, and the conversion of a run's raw captures. Knows formats and no analysis."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.sources.chrome.reader import read_kineto
    from phasepoint.sources.events.capture import Capture, CaptureRequest, find_steps
    from phasepoint.sources.ingest.convert import ConvertResult, convert_windows
    from phasepoint.sources.xplane.reader import read_xplane

__all__ = ["Capture", "CaptureRequest", "ConvertResult", "convert_windows", "find_steps", "read_kineto", "read_xplane"]

__getattr__ = lazy_names(
    __name__,
    {
        "Capture": ".events.capture",
        "CaptureRequest": ".events.capture",
        "find_steps": ".events.capture",
        "ConvertResult": ".ingest.convert",
        "convert_windows": ".ingest.convert",
        "read_kineto": ".chrome.reader",
        "read_xplane": ".xplane.reader",
    },
)
