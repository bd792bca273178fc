"""What the job logged in the same steps of replay and original, value by value: loss and whatever else it logs."""

import math
import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.phases.captured import StepKeys
from phasepoint.replay.fidelity_steps import CommonSteps
from phasepoint.store import Run

_Key = tuple[str, int, int]
"""Name, position among the common steps, and which of the step's values of that name."""


@dataclass(frozen=True)
class ScalarMatch:
    """One logged quantity.

    Attributes:
        name: the user's name for it.
        values: values that both sides have.
        equal: those equal bit for bit.
        largest_ratio: largest difference over the larger of the two values; null where no two numbers differ, or where
            one of them is not finite.
        first_step: first step in which both have one; null where there is none.
        first_ratio: difference there, as `largest_ratio`; 0 where they are equal.
        first_differing: first step in which they differ; null where none does.
        unmatched: values of the replay in common steps that the original does not have, and the other way round.
    """

    name: str
    values: int
    equal: int
    largest_ratio: float | None
    first_step: int | None
    first_ratio: float | None
    first_differing: int | None
    unmatched: int


def match_scalars(
    original: tuple[Run, StepKeys], replay: tuple[Run, StepKeys], common: CommonSteps
) -> tuple[ScalarMatch, ...]:
    """Compare what was logged in the common steps, by name.

    Args:
        original: the run that is replayed, and the keys of its steps.
        replay: the replay, likewise.
        common: their common steps.

    Raises:
        StoreError: a table cannot be read.
    """
    before = _values(*original, common.original)
    after = _values(*replay, common.replay)
    names = sorted({name for name, _, _ in before.keys() | after.keys()})
    return tuple(_match(name, before, after, common.step) for name in names)


def _values(run: Run, keys: StepKeys, rows: Int64s) -> dict[_Key, float | None]:
    """Values by name, position in `rows`, and number in the step."""
    scalars = run.table("scalars")
    row = keys.rows_of(scalars)
    kept = np.isin(row, rows) & (row >= 0)
    order = np.argsort(rows, kind="stable")
    place = order[np.searchsorted(rows[order], row[kept])] if len(rows) else row[kept]
    found: dict[_Key, float | None] = {}
    count: dict[tuple[str, int], int] = {}
    scalars = scalars.filter(pa.array(kept))
    for name, at, value in zip(scalars["name"].to_pylist(), place.tolist(), scalars["value"].to_pylist(), strict=True):
        number = count.get((name, at), 0)
        count[name, at] = number + 1
        found[name, at, number] = value
    return found


def _match(name: str, before: dict[_Key, float | None], after: dict[_Key, float | None], step: Int64s) -> ScalarMatch:
    mine = {key for key in before.keys() | after.keys() if key[0] == name}
    pairs = [
        (int(step[at]), left, right)
        for _, at, number in sorted(mine, key=lambda key: (step[key[1]], key[1], key[2]))
        if (left := before.get((name, at, number))) is not None and (right := after.get((name, at, number))) is not None
    ]
    differing = [(number, _ratio(left, right)) for number, left, right in pairs if not _equal(left, right)]
    ratios = [ratio for _, ratio in differing if ratio is not None]
    first = pairs[0] if pairs else None
    return ScalarMatch(
        name=name,
        values=len(pairs),
        equal=len(pairs) - len(differing),
        largest_ratio=max(ratios) if ratios and len(ratios) == len(differing) else None,
        first_step=first[0] if first else None,
        first_ratio=(0.0 if _equal(*first[1:]) else _ratio(*first[1:])) if first else None,
        first_differing=differing[0][0] if differing else None,
        unmatched=len(mine) - len(pairs),
    )


def _equal(left: float, right: float) -> bool:
    """Bit for bit; all values that are not a number are one."""
    return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))


def _ratio(left: float, right: float) -> float | None:
    """Difference over the larger of the two; None where one is not finite."""
    larger = max(abs(left), abs(right))
    if not math.isfinite(larger) or math.isnan(left) or math.isnan(right):
        return None
    return abs(left - right) / larger if larger else 0.0
