"""Exact arithmetic on sets of half-open intervals `[start, end)` of int64 picoseconds. No floats, no rounding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Bools, Int64s


@dataclass(frozen=True)
class IntervalSet:
    """Intervals sorted by start that neither overlap nor touch.

    Attributes:
        start_ps: `[n]` starts, ps.
        end_ps: `[n]` ends, ps, each after its start.
    """

    start_ps: Int64s
    end_ps: Int64s

    @property
    def total_ps(self) -> int:
        """Time covered, ps."""
        return int((self.end_ps - self.start_ps).sum())


_MANY = 4096
"""From so many intervals on, loading the compiled merge pays; few are not worth the import."""

_FEWER = 16
"""Of so many times fewer intervals than windows, only the windows that they meet are looked at."""

_NOT_INTERVALS = "intervals need as many ends as starts, none before its start"

EMPTY = IntervalSet(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start_ps: Int64s, end_ps: Int64s, *, where: NDArray[np.bool_] | None = None) -> IntervalSet:
    """The union of any intervals, in any order, overlapping or not; those of no length vanish.

    Args:
        start_ps: `[n]` starts, ps.
        end_ps: `[n]` ends, ps.
        where: `[n]` which of them; None takes all.

    Raises:
        ValueError: an interval ends before it starts, or the lengths differ.
    """
    start_ps = np.asarray(start_ps, np.int64)
    end_ps = np.asarray(end_ps, np.int64)
    if start_ps.shape != end_ps.shape:
        raise ValueError(_NOT_INTERVALS)
    if len(start_ps) >= _MANY:
        return _union_of_many(start_ps, end_ps, np.empty(0, np.bool_) if where is None else where)
    if np.any(end_ps < start_ps):
        raise ValueError(_NOT_INTERVALS)
    kept = end_ps > start_ps
    if where is not None:
        kept &= where
    start_ps, end_ps = start_ps[kept], end_ps[kept]
    if not len(start_ps):
        return EMPTY
    if np.any(start_ps[1:] < start_ps[:-1]):
        order = np.argsort(start_ps, kind="stable")  # linear on the sorted runs that tracks give
        start_ps, end_ps = start_ps[order], end_ps[order]
    reach = np.maximum.accumulate(end_ps)
    first = np.concatenate(([True], start_ps[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return IntervalSet(start_ps[first], reach[last])


def unite(sets: Sequence[IntervalSet]) -> IntervalSet:
    """The union of several sets."""
    full = [s for s in sets if len(s.start_ps)]
    if len(full) <= 1:
        return full[0] if full else EMPTY
    start_ps, end_ps = (np.concatenate(arrays) for arrays in zip(*((s.start_ps, s.end_ps) for s in full), strict=True))
    if len(start_ps) < _MANY:
        return union(start_ps, end_ps)
    begin = np.cumsum([0] + [len(s.start_ps) for s in full])
    return _merge_runs(start_ps, end_ps, begin, len(full))


def subtract(minuend: IntervalSet, subtrahend: IntervalSet) -> IntervalSet:
    """What `minuend` covers and `subtrahend` does not."""
    if not len(minuend.start_ps) or not len(subtrahend.start_ps):
        return minuend
    return intersect(minuend, _complement(subtrahend, int(minuend.start_ps[0]), int(minuend.end_ps[-1])))


def intersect(left: IntervalSet, right: IntervalSet) -> IntervalSet:
    """What both sets cover."""
    if not len(left.start_ps) or not len(right.start_ps):
        return EMPTY
    _, _, common = overlaps(left, right)
    return common


def overlaps(left: IntervalSet, right: IntervalSet) -> tuple[Int64s, Int64s, IntervalSet]:
    """Where intervals of two sets meet; sets may hold intervals that touch, none that overlap.

    Returns:
        `[m]` numbers of the left intervals, rising, `[m]` those of the right ones, and what both cover.
    """
    first = np.searchsorted(right.end_ps, left.start_ps, side="right")
    last = np.searchsorted(right.start_ps, left.end_ps, side="left")
    count = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(count)), count)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    partner = first[owner] + offset
    start = np.maximum(left.start_ps[owner], right.start_ps[partner])
    end = np.minimum(left.end_ps[owner], right.end_ps[partner])
    return owner, partner, IntervalSet(start, end)


def covered_ps(covered: IntervalSet, low_ps: Int64s, high_ps: Int64s) -> Int64s:
    """How much of each window `[low, high)` a set covers.

    Args:
        covered: the set.
        low_ps: `[n_windows]` starts of the windows, ps.
        high_ps: `[n_windows]` their ends, ps.

    Returns:
        `[n_windows]` time covered, ps.
    """
    low_ps, high_ps = np.asarray(low_ps, np.int64), np.asarray(high_ps, np.int64)
    if _FEWER * len(covered.start_ps) <= len(low_ps) and _rises(low_ps) and _rises(high_ps):
        return _covered_by_few(covered, low_ps, high_ps)
    return _covered_before(covered, high_ps) - _covered_before(covered, low_ps)


def held_in(values: Int64s, first: Int64s, last: Int64s) -> Bools:
    """Whether any of some ranges of whole numbers holds each value `[n]`, such as steps that a window captured.

    Args:
        first, last: `[n_ranges]` ends, both of which belong to it, in any order; one that ends before it begins holds
            nothing.
    """
    whole = first <= last
    begun = np.searchsorted(np.sort(first[whole]), values, side="right")
    return np.asarray(begun > np.searchsorted(np.sort(last[whole]), values, side="left"))


def partition(layers: Sequence[IntervalSet], low_ps: Int64s, high_ps: Int64s) -> Int64s:
    """Split each window's time among layers by priority: an instant goes to the first layer that covers it.

    Args:
        layers: sets in order of priority.
        low_ps: `[n_windows]` starts of the windows, ps.
        high_ps: `[n_windows]` their ends, ps; none before its start.

    Returns:
        `[n_windows, n_layers + 1]` ps; the last column is what no layer covers. Rows add up to `high - low` exactly.
    """
    low_ps, high_ps = np.asarray(low_ps, np.int64), np.asarray(high_ps, np.int64)
    result = np.zeros((len(low_ps), len(layers) + 1), np.int64)
    reached = EMPTY
    before = np.zeros(len(low_ps), np.int64)
    for column, layer in enumerate(layers):
        if not len(layer.start_ps):
            continue  # its column stays 0
        reached = unite((reached, layer)) if len(reached.start_ps) else layer
        covered = covered_ps(reached, low_ps, high_ps)
        result[:, column] = covered - before
        before = covered
    result[:, -1] = high_ps - low_ps - before
    return result


def _union_of_many(start_ps: Int64s, end_ps: Int64s, where: NDArray[np.bool_]) -> IntervalSet:
    from phasepoint.core.intervals.merge import join_runs

    capacity = int(np.count_nonzero(where)) if len(where) else len(start_ps)
    start, end, begin = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity + 1, np.int64)
    n_runs = join_runs(np.ascontiguousarray(start_ps), np.ascontiguousarray(end_ps), where, start, end, begin)
    if n_runs < 0:
        raise ValueError(_NOT_INTERVALS)
    return _merge_runs(start, end, begin, n_runs)


def _merge_runs(start: Int64s, end: Int64s, begin: Int64s, n_runs: int) -> IntervalSet:
    """Runs of intervals that neither overlap nor touch within their run, merged; the arrays are written over."""
    from phasepoint.core.intervals.merge import merge_pairs

    if n_runs > 1:
        spare = np.empty(begin[n_runs], np.int64), np.empty(begin[n_runs], np.int64)
    while n_runs > 1:
        n_runs = merge_pairs(start, end, *spare, begin, n_runs)
        (start, end), spare = spare, (start, end)
    return IntervalSet(start[: begin[n_runs]], end[: begin[n_runs]])


def _rises(time_ps: Int64s) -> bool:
    return bool((time_ps[1:] >= time_ps[:-1]).all())


def _covered_by_few(covered: IntervalSet, low_ps: Int64s, high_ps: Int64s) -> Int64s:
    """`covered_ps` of windows in order: only those that an interval meets are looked at."""
    result = np.zeros(len(low_ps), np.int64)
    first = np.searchsorted(high_ps, covered.start_ps, side="right")
    count = np.maximum(np.searchsorted(low_ps, covered.end_ps, side="left") - first, 0)
    interval = np.repeat(np.arange(len(count)), count)
    window = np.arange(len(interval)) - np.repeat(np.cumsum(count) - count - first, count)
    end, start = covered.end_ps[interval], covered.start_ps[interval]
    np.add.at(result, window, np.minimum(high_ps[window], end) - np.maximum(low_ps[window], start))
    return result


def _covered_before(covered: IntervalSet, time_ps: Int64s) -> Int64s:
    if not len(covered.start_ps):
        return np.zeros(len(time_ps), np.int64)
    ends = np.cumsum(covered.end_ps - covered.start_ps)
    index = np.searchsorted(covered.start_ps, time_ps, side="right") - 1
    inside = np.minimum(time_ps, covered.end_ps[index]) - covered.end_ps[index]
    return np.where(index < 0, 0, ends[index] + inside)


def _complement(covered: IntervalSet, low_ps: int, high_ps: int) -> IntervalSet:
    """[low, high] \\ covered, for a set that is not empty: from each end to the next start."""
    start = np.concatenate(([min(low_ps, int(covered.start_ps[0]))], covered.end_ps))
    end = np.concatenate((covered.start_ps, [max(high_ps, int(covered.end_ps[-1]))]))
    kept = end > start
    return IntervalSet(start[kept], end[kept])
