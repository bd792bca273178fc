"""Analyses across the stack: model, layer, op, kernel and hardware counters of one run together.

Each analysis is a function of a run: `phasepoint.stack.device_time(run)` gives a `StackTable`.
"""

import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.stack.analyses import ANALYSES as ANALYSES
    from phasepoint.stack.analyses import analyse as analyse
    from phasepoint.stack.leveled import measure as measure
    from phasepoint.stack.regions import region as region
    from phasepoint.stack.result import StackTable as StackTable

_HOMES = {
    "ANALYSES": "analyses",
    "analyse": "analyses",
    "StackTable": "result",
    "measure": "leveled",
    "region": "regions",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.stack.{_HOMES[name]}"), name)
    from phasepoint.stack.analyses import ANALYSES, analyse

    if name.replace("_", "-") in {analysis.name for analysis in ANALYSES}:
        return partial(analyse, name=name)
    if (home := sys.modules.get(f"phasepoint.stack.{name}")) is not None:
        return home
    raise AttributeError(f"module 'phasepoint.stack' has no attribute {name!r}")


class _Package(ModuleType):
    """Importing a submodule does not set it here: an analysis and the module that holds it share a name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
