"""Tuning a job while it runs, with proof: what is tried on the job's own steps is kept only if it is faster."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.tune.cache import Cached as Cached
    from phasepoint.tune.knobs import Effect as Effect
    from phasepoint.tune.knobs import Knob as Knob
    from phasepoint.tune.knobs import Turn as Turn
    from phasepoint.tune.offline.kernel import kernel as kernel
    from phasepoint.tune.tuned_loader import TunedLoader as TunedLoader
    from phasepoint.tune.tuned_loader import loader as loader

__all__ = ["Cached", "Effect", "Knob", "TunedLoader", "Turn", "kernel", "loader"]
__getattr__ = lazy_names(
    __name__,
    {
        "Effect": ".knobs",
        "Cached": ".cache",
        "Knob": ".knobs",
        "TunedLoader": ".tuned_loader",
        "Turn": ".knobs",
        "kernel": ".offline.kernel",
        "loader": ".tuned_loader",
    },
)
