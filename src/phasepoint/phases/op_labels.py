"""What the captured steps' ops add to labels from the clock: kinds of step of equal duration."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import renumber
from phasepoint.phases.op_regimes import regimes_of_kinds

_LONGEST_CYCLE = 64
_PURE = 0.97
_PRICE = 8.0
_LEAST = 3


def refine_by_ops(label: Int64s, kind: Int64s, values: NDArray[np.float64]) -> Int64s:
    """Labels `[n]`, split where captured steps of one label are of several kinds.

    In order: a cycle of kinds; long stretches of a kind; else only the captured steps themselves move, to the label
    that is mostly of their kind and nearest in duration, or to one of their own where there are three of them.

    Args:
        label: labels from the clock, from 0.
        kind: kind by ops, -1 where the step was not captured.
        values: log durations.
    """
    if (kind >= 0).all() or not (kind >= 0).any():
        return label
    main = _main_kinds(label, kind)
    result = label.copy()
    next_label = int(label.max()) + 1
    for number in renumber(label)[0]:
        members = np.flatnonzero(label == number)
        seen = np.flatnonzero(kind[members] >= 0)
        kinds = kind[members][seen]
        if len(seen) == 0 or (kinds == kinds[0]).all():
            continue
        spread = _spread(members, seen, kinds)
        for other in np.unique(spread[spread != main[int(number)]]):
            mine = members[spread == other]
            target = _label_of_kind(int(other), main, label, values, mine)
            if target is None and len(mine) < _LEAST:
                continue
            result[mine] = next_label if target is None else target
            next_label += target is None
    return result


def _main_kinds(label: Int64s, kind: Int64s) -> dict[int, int]:
    """The commonest kind among the captured steps of each label; -1 where none was captured."""
    main = {}
    for number in renumber(label)[0]:
        kinds = kind[(label == number) & (kind >= 0)]
        main[int(number)] = int(np.bincount(kinds).argmax()) if len(kinds) else -1
    return main


def _spread(members: Int64s, seen: Int64s, kinds: Int64s) -> Int64s:
    """A kind for every member of a label, `[n_members]`, from those of its captured members."""
    cycle = _cycle(members[seen], kinds)
    if cycle is not None:
        return cycle[members % len(cycle)]
    regime = regimes_of_kinds(kinds, _PRICE)
    bounds = np.searchsorted(np.arange(len(members)), (seen[1:] + seen[:-1]) / 2, side="right")
    owner = np.searchsorted(bounds, np.arange(len(members)), side="right")
    spread = regime[owner]
    spread[seen] = kinds
    return spread


def _cycle(at: Int64s, kinds: Int64s) -> Int64s | None:
    """Kind by position in the shortest cycle that explains the captured steps; null where none does."""
    common = np.bincount(kinds).max() / len(kinds)
    rare = np.bincount(kinds)
    if common > _PURE or np.sort(rare)[-2] < _LEAST:
        return None
    n_kinds = int(kinds.max()) + 1
    for period in range(2, min(_LONGEST_CYCLE, len(kinds) // 3) + 1):
        table = np.bincount(at % period * n_kinds + kinds, minlength=period * n_kinds).reshape(period, n_kinds)
        pure = table.max(axis=1).sum() / len(kinds)
        if pure >= _PURE and (table.sum(axis=1) >= 2).all():
            return np.asarray(table.argmax(axis=1), np.int64)
    return None


def _label_of_kind(
    kind: int, main: dict[int, int], label: Int64s, values: NDArray[np.float64], mine: Int64s
) -> int | None:
    """The label mostly of this kind whose duration is nearest, where one lies within a factor of two."""
    level = float(np.median(values[mine]))
    near = [
        (abs(float(np.median(values[label == number])) - level), number) for number, of in main.items() if of == kind
    ]
    if not near or min(near)[0] > np.log(2):
        return None
    return min(near)[1]
