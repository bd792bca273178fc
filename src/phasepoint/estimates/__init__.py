"""From the captured steps to the whole run, with intervals."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.estimates.estimates import estimate_totals

__all__ = ["estimate_totals"]

__getattr__ = lazy_names(__name__, {"estimate_totals": ".estimates"})
