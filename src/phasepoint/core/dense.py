"""Numbering of distinct keys and sums per number: the loops under every aggregate here. Linear, in compiled code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.compiled import compiled

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0917


def number_keys(*columns: NDArray[np.int32] | Int64s) -> tuple[NDArray[np.int32], Int64s]:
    """Number distinct rows 0, 1, … in the order in which they first appear.

    Args:
        columns: one to four integer columns, `[n_rows]` each.

    Returns:
        `[n_rows]` number of each row's key, and `[n_keys]` the row in which each key first stands.
    """
    if not 1 <= len(columns) <= 4:
        raise ValueError(f"one to four key columns, not {len(columns)}")
    n_rows = len(columns[0])
    zeros = np.broadcast_to(np.int64(0), n_rows)
    wide = [np.asarray(column).astype(np.int64, copy=False) for column in columns] + [zeros] * (4 - len(columns))
    numbers = np.empty(n_rows, np.int32)
    wide = [np.ascontiguousarray(c) if len(columns) > i else c for i, c in enumerate(wide)]
    return numbers, np.asarray(_number_keys(*wide, numbers), np.int64)


@dataclass(frozen=True)
class PairSums:
    """Sums over rows with the same pair of keys, sorted by the first key, then the second. `[n_pairs]` each.

    Attributes:
        sample: a row of the pair.
        count: rows.
        first_sum: exact sum of the first values.
        second_sum: exact sum of the second values.
    """

    sample: NDArray[np.int32]
    count: Int64s
    first_sum: Int64s
    second_sum: Int64s


PairRoom = tuple[NDArray[np.int32], Int64s, Int64s, Int64s, NDArray[np.int32]]
"""Memory for `sum_by_pair`: of its result, and of the rows' order."""


def sum_by_pair(
    major: NDArray[np.int32],
    kind: NDArray[np.int32],
    minor_of_kind: NDArray[np.int32],
    values: tuple[Int64s, Int64s],
    *,
    room: PairRoom | None = None,
) -> PairSums:
    """Add up two columns over equal pairs of keys.

    Args:
        major: `[n_rows]` first key, from -1 up, dense: memory grows with the largest.
        kind: `[n_rows]` kind of each row, which decides its second key.
        minor_of_kind: `[n_kinds]` second key, dense; rows of kinds below 0 are left out.
        values: `[n_rows]` what to add up, and what else.
        room: memory from `pair_room`, of which the result keeps all but the last; allocated here if None.
    """
    sample, count, first_sum, second_sum, order = room or pair_room(len(major), np.empty)
    sums = sample, count, first_sum, second_sum
    size = _sum_by_pair(major, kind, minor_of_kind, *values, order, sums)
    return PairSums(sample[:size], count[:size], first_sum[:size], second_sum[:size])


def pair_room(n_rows: int, take: Callable[[int, type], NDArray[Any]]) -> PairRoom:
    """Memory for `sum_by_pair`: for a caller that works in a thread of its own, whose allocations are much slower.

    Args:
        n_rows: rows.
        take: gives memory of a size and type.
    """
    order, sample, count, first_sum, second_sum = (take(n_rows, kind) for kind in (np.int32,) * 2 + (np.int64,) * 3)
    return sample, count, first_sum, second_sum, order


@dataclass(frozen=True)
class Numbering:
    """Distinct keys of chosen rows, numbered in the order in which they first appear.

    Attributes:
        number: `[n_chosen]` number of each chosen row's key.
        first: `[n_keys]` row in which each key first stands.
        earliest: `[n_keys]` row that holds the least time of each key, the first of equals.
    """

    number: NDArray[np.int32]
    first: Int64s
    earliest: Int64s


def number_chosen(
    kind: NDArray[np.int32], code_of_kind: NDArray[np.int32], key: Int64s, time: Int64s, room: NDArray[np.int32]
) -> Numbering:
    """Number the distinct pairs of code and key among rows whose kind has a code.

    Args:
        kind: `[n_rows]` kind of each row.
        code_of_kind: `[n_kinds]` code, below 0 for rows that are not chosen.
        key: `[n_rows]` second half of the key.
        time: `[n_rows]` instants.
        room: `[n_rows]` memory, which the result keeps.
    """
    chosen, first, earliest = _number_chosen(kind, code_of_kind, key, time, room)
    return Numbering(room[:chosen], first, earliest)


def spread_numbers(
    kind: NDArray[np.int32],
    code_of_kind: NDArray[np.int32],
    number: NDArray[np.int32],
    values: NDArray[np.int32],
    into: NDArray[np.int32],
) -> None:
    """Write each chosen row's value, `[n_keys]` by the number of its key, `into` its place among all rows."""
    _spread_numbers(kind, code_of_kind, number, values, into)


def place_in(time: Int64s, start: Int64s, end: Int64s) -> NDArray[np.int32]:
    """`[n]` the interval that holds each instant, -1 where none does; fast where the instants go through time.

    Args:
        time: `[n]` instants.
        start: `[n_intervals]` starts, sorted.
        end: `[n_intervals]` ends; no interval reaches into the next.
    """
    arrays = (np.ascontiguousarray(column, np.int64) for column in (time, start, end))
    index = np.empty(len(time), np.int32)
    _place_in(*arrays, index)
    return index


def sum_by(numbers: NDArray[np.int32], n_keys: int, values: Int64s) -> Int64s:
    """`[n_keys]` exact sums of `values` per key; rows numbered below 0 are left out."""
    return np.asarray(_sum_by(numbers, n_keys, values), np.int64)


def first_by(numbers: NDArray[np.int32], n_keys: int, values: Int64s) -> Int64s:
    """`[n_keys]` row that holds the least of `values` per key, the first of equals."""
    return np.asarray(_first_by(numbers, n_keys, values), np.int64)


# Compiled loops.


@compiled()
def _number_keys(a, b, c, d, numbers):
    n = len(a)
    first = np.empty(1024, np.int64)
    table = np.full(4096, -1, np.int32)
    count = 0
    for i in range(n):
        if i and a[i] == a[i - 1] and b[i] == b[i - 1] and c[i] == c[i - 1] and d[i] == d[i - 1]:
            numbers[i] = numbers[i - 1]
            continue
        mask = len(table) - 1
        slot = mix_key(a[i], b[i], c[i], d[i]) & mask
        while True:
            known = table[slot]
            if known < 0:
                break
            j = first[known]
            if a[j] == a[i] and b[j] == b[i] and c[j] == c[i] and d[j] == d[i]:
                break
            slot = (slot + 1) & mask
        if known >= 0:
            numbers[i] = known
            continue
        if count == len(first):
            first = np.concatenate((first, np.empty(count, np.int64)))
        first[count], table[slot], numbers[i] = i, count, count
        count += 1
        if 2 * count > len(table):
            table = np.full(4 * len(table), -1, np.int32)
            mask = len(table) - 1
            for key in range(count):
                j = first[key]
                slot = mix_key(a[j], b[j], c[j], d[j]) & mask
                while table[slot] >= 0:
                    slot = (slot + 1) & mask
                table[slot] = key
    return first[:count].copy()


@compiled(inline="always")
def mix_key(a, b, c, d):
    """A multiplicative hash of four integers. Source of the constant: 2^64 / golden ratio (Knuth, TAOCP 3, 6.4)."""
    h = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(29)) ^ np.uint64(b)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(29)) ^ np.uint64(c)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(29)) ^ np.uint64(d)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((h ^ (h >> np.uint64(32))) >> np.uint64(1))


@compiled()
def _number_chosen(kind, code_of_kind, key, time, numbers):
    first = np.empty(1024, np.int64)
    earliest = np.empty(1024, np.int64)
    table = np.full(4096, -1, np.int32)
    count = chosen = 0
    last = -1
    for i in range(len(kind)):
        code = code_of_kind[kind[i]]
        if code < 0:
            continue
        known = np.int32(-1)
        if last >= 0 and key[i] == key[last] and code == code_of_kind[kind[last]]:
            known = numbers[chosen - 1]
        else:
            mask = len(table) - 1
            slot = mix_key(key[i], code, np.int64(0), np.int64(0)) & mask
            while table[slot] >= 0:
                j = first[table[slot]]
                if key[j] == key[i] and code_of_kind[kind[j]] == code:
                    known = table[slot]
                    break
                slot = (slot + 1) & mask
            if known < 0:
                if count == len(first):
                    first = np.concatenate((first, np.empty(count, np.int64)))
                    earliest = np.concatenate((earliest, np.empty(count, np.int64)))
                first[count], earliest[count], table[slot] = i, i, count
                known = np.int32(count)
                count += 1
                if 2 * count > len(table):
                    table = np.full(4 * len(table), -1, np.int32)
                    mask = len(table) - 1
                    for one in range(count):
                        j = first[one]
                        slot = mix_key(key[j], code_of_kind[kind[j]], np.int64(0), np.int64(0)) & mask
                        while table[slot] >= 0:
                            slot = (slot + 1) & mask
                        table[slot] = one
        if time[i] < time[earliest[known]]:
            earliest[known] = i
        numbers[chosen] = known
        chosen += 1
        last = i
    return chosen, first[:count].copy(), earliest[:count].copy()


@compiled()
def _spread_numbers(kind, code_of_kind, number, values, into):
    k = 0
    for i in range(len(kind)):
        if code_of_kind[kind[i]] >= 0:
            into[i] = values[number[k]]
            k += 1


@compiled()
def _sum_by_pair(major, kind, minor_of_kind, first_values, second_values, order, sums):
    """Rows in buckets by major key (a counting sort); within a bucket the minor keys add up in one scratch row."""
    n = len(major)
    n_major = major.max() + 2 if n else 1
    n_minor = minor_of_kind.max() + 1 if len(minor_of_kind) else 0
    begin = np.zeros(n_major + 1, np.int64)
    for i in range(n):
        begin[major[i] + 2] += 1
    begin = np.cumsum(begin)
    place = begin.copy()
    for i in range(n):
        order[place[major[i] + 1]] = i
        place[major[i] + 1] += 1
    at = np.full(max(n_minor, 0), -1, np.int64)
    sample, count, first_sum, second_sum = sums
    size = 0
    for bucket in range(n_major):
        low = size
        for k in range(begin[bucket], begin[bucket + 1]):
            i = order[k]
            minor = minor_of_kind[kind[i]]
            if minor < 0:
                continue
            if at[minor] < 0:
                at[minor] = size
                sample[size], count[size], first_sum[size], second_sum[size] = i, 0, 0, 0
                size += 1
            entry = at[minor]
            count[entry] += 1
            first_sum[entry] += first_values[i]
            second_sum[entry] += second_values[i]
        for k in range(low, size):
            at[minor_of_kind[kind[sample[k]]]] = -1
        _sort_by_minor(kind, minor_of_kind, low, size, sums)
    return size


@compiled()
def _sort_by_minor(kind, minor_of_kind, low, high, sums):
    """Shell's sort of one bucket's entries in place: NumPy's sorts take a second to compile. Source of the gaps:
    Knuth, TAOCP 3, 5.2.1 (Pratt's 1, 4, 13, 40, …)."""
    sample, count, first_sum, second_sum = sums
    gap = 1
    while 3 * gap + 1 < high - low:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(low + gap, high):
            row, rows, one, two = sample[k], count[k], first_sum[k], second_sum[k]
            minor = minor_of_kind[kind[row]]
            j = k
            while j >= low + gap and minor_of_kind[kind[sample[j - gap]]] > minor:
                i = j - gap
                sample[j], count[j], first_sum[j], second_sum[j] = sample[i], count[i], first_sum[i], second_sum[i]
                j = i
            sample[j], count[j], first_sum[j], second_sum[j] = row, rows, one, two
        gap //= 3


@compiled()
def _place_in(time, start, end, index):
    n, at = len(start), -1  # the last interval that began by then: tracks go through time, so it is near the one before
    for i in range(len(time)):
        t = time[i]
        if at >= 0 and start[at] > t:
            low, high = -1, at
        elif at + 1 < n and start[at + 1] <= t:
            at += 1
            low, high = at, (at + 1 if at + 1 == n or start[at + 1] > t else n)
        else:
            low, high = at, at + 1
        while high - low > 1:
            middle = (low + high) // 2
            if start[middle] <= t:
                low = middle
            else:
                high = middle
        at = low
        index[i] = at if at >= 0 and t < end[at] else -1


@compiled()
def _sum_by(numbers, n_keys, values):
    sums = np.zeros(n_keys, np.int64)
    for i in range(len(numbers)):
        if numbers[i] >= 0:
            sums[numbers[i]] += values[i]
    return sums


@compiled()
def _first_by(numbers, n_keys, values):
    first = np.full(n_keys, -1, np.int64)
    for i in range(len(numbers)):
        k = numbers[i]
        if k >= 0 and (first[k] < 0 or values[i] < values[first[k]]):
            first[k] = i
    return first
