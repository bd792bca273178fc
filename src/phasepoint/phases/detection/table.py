"""The methods of phase detection: the one table. A new one is a file in `methods` with `label` in it, and a row.

Nothing heavy is imported here, so that a command can name the methods in its help.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from phasepoint.phases.detection.result import Labelling
    from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors


@dataclass(frozen=True)
class PhaseMethod:
    """One method.

    Attributes:
        name: as it is asked for, and its file.
        is_quick: whether it runs along with every report. The others load a library and fit models for seconds, longer
            than a reader waits (benchmarks/report.py); they run when they are asked for.
    """

    name: str
    is_quick: bool

    @property
    def label(self) -> "Callable[[DistinctSteps, OpVectors | None], Labelling]":
        """Its function: a label for every step, from the step clock and the ops of the captured ones."""
        home = import_module(f"phasepoint.phases.detection.methods.{self.name}")
        return cast("Callable[[DistinctSteps, OpVectors | None], Labelling]", home.label)


def _by_name(*methods: PhaseMethod) -> Mapping[str, PhaseMethod]:
    """The methods by what they are asked for."""
    return {method.name: method for method in methods}


METHODS = _by_name(
    PhaseMethod("recurrent", is_quick=True),
    PhaseMethod("ols", is_quick=True),
    PhaseMethod("kmeans", is_quick=False),
    PhaseMethod("dbscan", is_quick=False),
)

DEFAULT_METHOD = next(iter(METHODS))
"""The first: it finds phases that come back, and needs no captured ops (docs/phases.md compares them)."""


def find_method(name: str) -> PhaseMethod:
    """The method of this name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in METHODS:
        raise ValueError(f"no method named {name!r}; the methods are {', '.join(METHODS)}")
    return METHODS[name]
