"""One reader per capture format, and the conversion of a run's raw captures. Knows formats and no analysis."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.sources.capture import Capture as Capture
    from phasepoint.sources.capture import find_steps as find_steps
    from phasepoint.sources.convert import ConvertResult as ConvertResult
    from phasepoint.sources.convert import convert_windows as convert_windows
    from phasepoint.sources.kineto import read_kineto as read_kineto
    from phasepoint.sources.xplane import read_xplane as read_xplane

_HOMES = {
    "Capture": "capture",
    "ConvertResult": "convert",
    "convert_windows": "convert",
    "find_steps": "capture",
    "read_kineto": "kineto",
    "read_xplane": "xplane",
}
"""Where each public name lives; looked up when it is first used, so that nothing imports numba without need."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.sources.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.sources' has no attribute {name!r}")
