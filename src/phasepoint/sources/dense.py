"""Numbering of distinct keys and sums per number: the two loops under every aggregate here. Linear, in compiled code."""

import numba
import numpy as np
from numpy.typing import NDArray

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

Int64s = NDArray[np.int64]


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
    numbers, first = _number_keys(*(np.ascontiguousarray(c) if len(columns) > i else c for i, c in enumerate(wide)))
    return numbers, first


def sum_by(numbers: NDArray[np.int32], n_keys: int, values: Int64s) -> Int64s:
    """`[n_keys]` exact sums of `values` per key; rows numbered below 0 are left out."""
    return np.asarray(_sum_by(numbers, n_keys, values), np.int64)


def first_by(numbers: NDArray[np.int32], n_keys: int, values: Int64s) -> Int64s:
    """`[n_keys]` row that holds the least of `values` per key, the first of equals."""
    return np.asarray(_first_by(numbers, n_keys, values), np.int64)


# Compiled loops.


@numba.njit(cache=True)
def _number_keys(a, b, c, d):
    n = len(a)
    numbers = np.empty(n, np.int32)
    first = np.empty(1024, np.int64)
    table = np.full(4096, -1, np.int32)
    count = 0
    for i in range(n):
        if i and a[i] == a[i - 1] and b[i] == b[i - 1] and c[i] == c[i - 1] and d[i] == d[i - 1]:
            numbers[i] = numbers[i - 1]
            continue
        mask = len(table) - 1
        slot = _mix(a[i], b[i], c[i], d[i]) & mask
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
                slot = _mix(a[j], b[j], c[j], d[j]) & mask
                while table[slot] >= 0:
                    slot = (slot + 1) & mask
                table[slot] = key
    return numbers, first[:count].copy()


@numba.njit(cache=True, inline="always")
def _mix(a, b, c, d):
    """A multiplicative hash of four integers. Source of the constant: 2^64 / golden ratio (Knuth, TAOCP 3, 6.4)."""
    h = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(29)) ^ np.uint64(b)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(29)) ^ np.uint64(c)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(29)) ^ np.uint64(d)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((h ^ (h >> np.uint64(32))) >> np.uint64(1))


@numba.njit(cache=True)
def _sum_by(numbers, n_keys, values):
    sums = np.zeros(n_keys, np.int64)
    for i in range(len(numbers)):
        if numbers[i] >= 0:
            sums[numbers[i]] += values[i]
    return sums


@numba.njit(cache=True)
def _first_by(numbers, n_keys, values):
    first = np.full(n_keys, -1, np.int64)
    for i in range(len(numbers)):
        k = numbers[i]
        if k >= 0 and (first[k] < 0 or values[i] < values[first[k]]):
            first[k] = i
    return first
