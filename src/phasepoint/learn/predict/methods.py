"""The methods that predict a kernel's time, one row each, tried in order: what one leaves open, the next answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phasepoint.learn.models.model_file import Model
from phasepoint.learn.predict.target import Target
from phasepoint.learn.predict.types import Start

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Method:
    """A way to predict kernels.

    Attributes:
        name: as results say it.
        start: for a device, and a model that the user gave.
    """

    name: str
    start: Callable[[Target, Model | None], Start]


def _network(target: Target, model: Model | None) -> Start:
    from phasepoint.learn.predict.network import start_network

    return start_network(target, model)


def _operators(target: Target, model: Model | None) -> Start:
    from phasepoint.learn.predict.gpu import start_operators

    return start_operators(target, model)


def _analytic(target: Target, model: Model | None) -> Start:
    from phasepoint.learn.predict.analytic import start_analytic

    return start_analytic(target, model)


METHODS: tuple[Method, ...] = (
    Method("network", _network),
    Method("operators", _operators),
    Method("analytic", _analytic),
)
