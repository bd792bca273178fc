"""Analyses across the stack: model, layer, op, kernel and hardware counters of one run together.

Each analysis is a function of a run: `phasepoint.stack.device_time(run)` gives a `StackTable`.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.measure.measure import measure
    from phasepoint.measure.regions import region
    from phasepoint.stack.analyses.table import ANALYSES, analyse
    from phasepoint.stack.shard.shard import StackTable

__all__ = ["ANALYSES", "StackTable", "analyse", "measure", "region"]

_find = lazy_names(
    __name__,
    {
        "ANALYSES": ".analyses.table",
        "analyse": ".analyses.table",
        "StackTable": ".shard.shard",
        "measure": "phasepoint.measure.measure",
        "region": "phasepoint.measure.regions",
    },
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from phasepoint.stack.analyses.table import ANALYSES, analyse

        if name.replace("_", "-") in {analysis.name for analysis in ANALYSES}:
            return partial(analyse, name=name)
    return _find(name)
