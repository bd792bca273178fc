"""Columns as small integers: a number per row, and the value that each number stands for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s

_SPARSE, _FEW = 4, 1 << 16
"""A table over all codes takes less time than sorting them where it is at most four times as long as they are."""


def encode_column(column: pa.ChunkedArray) -> tuple[Int64s, list[Any]]:
    """Number every value of a column, whether or not it came dictionary-encoded.

    Args:
        column: `[n]` of any type that Arrow can encode; nulls allowed.

    Returns:
        `[n]` codes, -1 where null, and the values by code, each once. A value that no row has may be among them.
    """
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return np.empty(0, np.int64), []
    values = column.chunk(0).dictionary.to_pylist()
    indices = [pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    codes = np.concatenate(indices).astype(np.int64)
    once = list(dict.fromkeys(values))
    if len(once) == len(values):
        return codes, values
    place = {value: code for code, value in enumerate(once)}
    return np.array([*(place[value] for value in values), -1], np.int64)[codes], once


def encode_rows(table: pa.Table, columns: Sequence[str]) -> Int64s:
    """Number every combination of values, `[n]` from 0 up in order of the columns' codes; nulls are a value too."""
    rows, size = np.zeros(table.num_rows, np.int64), 1
    for name in columns:
        codes, values = encode_column(table.column(name))
        rows, size = compact(rows * (len(values) + 1) + codes + 1, size * (len(values) + 1))
    return rows


def renumber(codes: Int64s) -> tuple[Int64s, Int64s]:
    """The values that occur `[n_values]`, rising, and each row's position among them `[n]`.

    As `np.unique(codes, return_inverse=True)`, without its sort where the values are small and not negative; the
    positions are `codes` themselves where every value up to the largest occurs.
    """
    if not len(codes) or codes.min() < 0 or (size := int(codes.max()) + 1) > _SPARSE * max(len(codes), _FEW):
        values, positions = np.unique(codes, return_inverse=True)
        return values, positions.ravel()
    used = np.zeros(size, np.bool_)
    used[codes] = True
    values = np.flatnonzero(used)
    return values, codes if len(values) == size else (np.cumsum(used) - 1)[codes]


def first_rows(codes: Int64s) -> Int64s:
    """The first row of each code, `[n_codes]`, of codes `[n]` from 0 of which none is unused."""
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def compact(codes: Int64s, size: int) -> tuple[Int64s, int]:
    """Renumber codes `[n]`, 0 to `size` - 1, so that none is unused and their order stays; and how many are left."""
    if size > _SPARSE * max(len(codes), _FEW):
        left, renumbered = np.unique(codes, return_inverse=True)
        return renumbered.ravel(), len(left)
    used = np.zeros(size, np.bool_)
    used[codes] = True
    rank = np.cumsum(used) - 1
    return rank[codes], int(used.sum())
