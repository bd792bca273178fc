"""Who stands above a span: a kernel's launch, the op around that, its layer, the step.

The way up from a span is its launch, where it was launched, else its parent. Ways are followed by pointer jumping:
every round doubles how far each span sees, so chains of any depth cost n log(depth).
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s

NONE = -1
"""Row number of what is not there."""


def nearest_above(spans: pa.Table, chosen: NDArray[np.bool_]) -> Int64s:
    """The nearest chosen span above each span, itself excluded, through its launch and the parents of that.

    A span that was launched from outside every such span is held to be inside those that enclose it on its own track.

    Args:
        spans: rows of `spans` with `window`, `span`, `parent` and `launch`.
        chosen: `[n]` which spans may be found.

    Returns:
        `[n]` row numbers of `spans`, `NONE` where there is none.
    """
    parent, launch = referred_rows(spans, "parent"), referred_rows(spans, "launch")
    found = climb(np.where(launch == NONE, parent, launch), chosen)
    aside = (found == NONE) & (launch != NONE) & (parent != NONE)
    if not aside.any():
        return found
    start = parent[aside]
    found[aside] = np.where(chosen[start], start, found[start])
    return found


def inherited(spans: pa.Table, column: str) -> pa.Array:
    """A column's own value, else that of the nearest span above that has one: a kernel's layer is its op's.

    Args:
        spans: rows of `spans` with `window`, `span`, `parent`, `launch` and the column.
        column: `layer`, `direction`, `step`.

    Returns:
        `[n]` values of the column's type, null where no span above has one.
    """
    values = spans[column].combine_chunks()
    known = values.is_valid().to_numpy(zero_copy_only=False)
    row = np.where(known, np.arange(spans.num_rows), nearest_above(spans, known))
    return values.take(pa.array(row, mask=row == NONE))


def referred_rows(spans: pa.Table, column: str) -> Int64s:
    """Rows that a column of span numbers refers to, each within its window.

    Args:
        spans: rows of `spans` with `window`, `span` and the column.
        column: `parent` or `launch`.

    Returns:
        `[n]` row numbers of `spans`, `NONE` where the column is null or refers to a span that is not there.
    """
    known = spans[column].is_valid().to_numpy()
    wanted = spans[column].fill_null(0).to_numpy()
    return find_rows(spans, spans["window"].to_numpy(), wanted, known)


def find_rows(spans: pa.Table, window: Int64s, span: Int64s, known: NDArray[np.bool_] | None = None) -> Int64s:
    """Rows of the spans of given numbers.

    Args:
        spans: rows of `spans` with `window` and `span`.
        window: `[m]` windows.
        span: `[m]` span numbers in them.
        known: `[m]` which to look for; None looks for all.

    Returns:
        `[m]` row numbers of `spans`, `NONE` where there is no such span.
    """
    known = np.ones(len(span), np.bool_) if known is None else known
    windows, owner = np.unique(spans["window"].to_numpy(), return_inverse=True)
    if not len(windows):
        return np.full(len(span), NONE, np.int64)
    place = np.minimum(np.searchsorted(windows, window), len(windows) - 1)
    known = known & (windows[place] == window)
    number = spans["span"].to_numpy()
    first = np.searchsorted(owner, np.arange(len(windows) + 1))
    if np.all(owner[1:] >= owner[:-1]) and np.array_equal(number, np.arange(len(number)) - first[owner]):
        known &= (span >= 0) & (span < (first[1:] - first[:-1])[place])  # as every reader numbers them
        return np.where(known, first[place] + span, NONE)
    numbers, rank = np.unique(number, return_inverse=True)
    key = owner * len(numbers) + rank
    order = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(numbers, span), len(numbers) - 1)
    known &= numbers[at] == span
    wanted = place * len(numbers) + at
    found = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(order) - 1)]
    return np.where(known & (key[found] == wanted), found, NONE)


def climb(up: Int64s, chosen: NDArray[np.bool_]) -> Int64s:
    """Follow `up` from each row to the first chosen row above it; a circle leads nowhere.

    Args:
        up: `[n]` the row above each, `NONE` at the top.
        chosen: `[n]` which rows may be found.

    Returns:
        `[n]` row numbers, `NONE` where there is none.
    """
    up = up.copy()
    for _ in range(len(up).bit_length() + 1):
        going = np.flatnonzero((up != NONE) & ~chosen[up])
        if not len(going):
            return up
        up[going] = up[up[going]]
    up[(up != NONE) & ~chosen[up]] = NONE
    return up
