"""Analyses across the stack: model, layer, op, kernel and hardware counters of one run together.

Each analysis is a function of a run: `phasepoint.stack.device_time(run)` gives a `StackTable`.
"""

import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.measure.measure import measure
    from phasepoint.measure.regions import region
    from phasepoint.stack.analyses.table import ANALYSES, analyse
    from phasepoint.stack.shard.shard import StackTable

_HOMES = {
    "ANALYSES": "phasepoint.stack.analyses.table",
    "analyse": "phasepoint.stack.analyses.table",
    "StackTable": "phasepoint.stack.shard.shard",
    "measure": "phasepoint.measure.measure",
    "region": "phasepoint.measure.regions",
}

__all__ = ["ANALYSES", "StackTable", "analyse", "measure", "region"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from phasepoint.stack.analyses.table import ANALYSES, analyse

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
