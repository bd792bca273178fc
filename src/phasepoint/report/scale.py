"""Where a value stands on an axis, and where the axis has its lines."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_LOG_FROM = 8.0
"""Largest over smallest value from which a logarithmic axis shows more than a linear one."""


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    Attributes:
        low, high: values at its ends.
        is_log: whether equal ratios are equally long; `low` is above 0 then.
        is_binary: whether its round values are multiples of a power of two (bytes).
    """

    low: float
    high: float
    is_log: bool = False
    is_binary: bool = False

    def position(self, value: float) -> float:
        """Place of a value, 0 at the low end, 1 at the high end; beyond the ends it is held there."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def fit_scale(smallest: float, largest: float, *, is_binary: bool = False) -> Scale:
    """An axis that shows values from smallest to largest: from zero, or logarithmic where they differ too much."""
    if smallest > 0 and largest / smallest > _LOG_FROM:
        return Scale(smallest * 0.8, largest * 1.25, is_log=True)
    return Scale(0.0, largest * 1.15 if largest > 0 else 1.0, is_binary=is_binary)


def tick_values(scale: Scale, at_most: int) -> list[float]:
    """Round values on an axis: 1, 2 or 5 times a power of ten; the coarsest set that has two, within `at_most`."""
    if scale.is_log:
        low, high = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
        decades = [10.0**power for power in range(low, high + 1)]
        every = [m * d for d in decades for m in (1, 2, 5)]
        fine = _within(every, scale)
        return fine if len(fine) <= at_most else _thin(_within(decades, scale), at_most) or _thin(fine, at_most)
    span = scale.high - scale.low
    if scale.is_binary:
        step = 2.0 ** math.ceil(math.log2(span / at_most))
    else:
        step = 10.0 ** math.floor(math.log10(span / at_most))
        step *= next((factor for factor in (1, 2, 5) if span / (step * factor) <= at_most), 10)
    return [step * i for i in range(math.ceil(scale.low / step), math.floor(scale.high / step) + 1)]


def _within(values: Iterable[float], scale: Scale) -> list[float]:
    return [value for value in values if scale.low <= value <= scale.high]


def _thin(values: list[float], at_most: int) -> list[float]:
    return values[:: -(-len(values) // at_most)] if values else []
