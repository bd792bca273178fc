"""Loaders that can be tuned, one file and one row each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from phasepoint.tune.knobs import Knob
from phasepoint.tune.source import LoaderSource


@dataclass(frozen=True)
class Adapter:
    """One kind of loader.

    Attributes:
        place: module in this folder.
        module: that the job must have imported for its loaders to exist; empty where any may be.
        name: class in `place` that makes a `LoaderSource`; its `takes` says whether a loader is of its kind.
    """

    place: str
    module: str
    name: str


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("torch.batches", "torch", "TorchBatches"),
    Adapter("torch.stream", "torch", "TorchStream"),
    Adapter("stream", "", "Stream"),
)
"""The first that takes a loader gets it."""


def adapt(
    make_loader: Callable[..., Any],
    loader: Any,
    *,
    accepted: frozenset[str] | None,
    cpus: int,
    declared: Sequence[Knob],
    reseed: int | None,
) -> LoaderSource | None:
    """The source of a factory's loaders; None where no adapter takes what it makes.

    Args:
        make_loader: the user's factory.
        loader: what it makes without being asked for anything.
        accepted: names that it takes; None where it takes any.
        cpus: cores that the job may use.
        declared: knobs that the user names, in place of those found.
        reseed: where given, each batch may have random numbers of its own, drawn from this.
    """
    import sys

    for adapter in ADAPTERS:
        if adapter.module and adapter.module not in sys.modules:
            continue
        made = getattr(import_module(f"phasepoint.tune.adapters.{adapter.place}"), adapter.name)
        if made.takes(loader):
            source: LoaderSource = made(
                make_loader, loader, accepted=accepted, cpus=cpus, declared=declared, reseed=reseed
            )
            return source
    return None
