"""Tuning a job while it runs, with proof: what is tried on the job's own steps is kept only if it is faster."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.tune.cache import Cached as Cached
    from phasepoint.tune.knobs import Effect as Effect
    from phasepoint.tune.knobs import Knob as Knob
    from phasepoint.tune.knobs import Turn as Turn
    from phasepoint.tune.offline.kernel import kernel as kernel
    from phasepoint.tune.tuned_loader import TunedLoader as TunedLoader
    from phasepoint.tune.tuned_loader import loader as loader

_HOMES = {
    "Effect": "knobs",
    "Cached": "cache",
    "Knob": "knobs",
    "TunedLoader": "tuned_loader",
    "Turn": "knobs",
    "kernel": "offline.kernel",
    "loader": "tuned_loader",
}

__all__ = ["Cached", "Effect", "Knob", "TunedLoader", "Turn", "kernel", "loader"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.tune.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.tune' has no attribute {name!r}")
