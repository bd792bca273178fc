"""What is found out about a run once, for everything that is said of it."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.summary.summary import summarize_run

__all__ = ["summarize_run"]

__getattr__ = lazy_names(__name__, {"summarize_run": ".summary"})
