"""Columns as codes: every form a column comes in, nulls, and combinations of columns."""

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.core.encoding import compact, encode_column, encode_rows, first_rows, renumber

TEXTS = ["b", None, "a", "b", "c", None]


def _decoded(column: pa.ChunkedArray) -> list[object]:
    codes, values = encode_column(column)
    return [None if code < 0 else values[code] for code in codes.tolist()]


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([pa.array(TEXTS)]),
        pa.chunked_array([pa.array(TEXTS).dictionary_encode()]),
        pa.chunked_array([pa.array(TEXTS[:2]).dictionary_encode(), pa.array(TEXTS[2:]).dictionary_encode()]),
        pa.chunked_array([pa.array(TEXTS[:4]), pa.array([], pa.string()), pa.array(TEXTS[4:])]),
    ],
    ids=["plain", "dictionary", "two dictionaries", "chunks"],
)
def test_codes_stand_for_the_texts(column: pa.ChunkedArray) -> None:
    assert _decoded(column) == TEXTS


def test_a_dictionary_that_names_a_text_twice_gives_one_code() -> None:
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["x", "y", "x"]))
    codes, values = encode_column(pa.chunked_array([twice]))
    assert values == ["x", "y"]
    assert codes.tolist() == [0, 1, 0, -1]


def test_a_column_without_rows() -> None:
    codes, values = encode_column(pa.chunked_array([], pa.string()))
    assert (codes.tolist(), values) == ([], [])


def test_integers_of_any_size_are_values_too() -> None:
    numbers = [-(2**63), 2**63 - 1, None, -1, -(2**63)]
    assert _decoded(pa.chunked_array([pa.array(numbers, pa.int64())])) == numbers


def test_rows_are_equal_where_all_columns_are() -> None:
    rng = np.random.default_rng(3)
    columns = {
        "a": [None if v == 4 else int(v) * 2**60 for v in rng.integers(0, 5, 500)],
        "b": [None if v == 2 else f"name-{v}" for v in rng.integers(0, 4, 500)],
        "c": rng.integers(-3, 3, 500).tolist(),
    }
    codes = encode_rows(pa.table(columns), ("a", "b", "c")).tolist()
    expected: dict[tuple[object, ...], int] = {}
    for code, row in zip(codes, zip(*columns.values(), strict=True), strict=True):
        assert expected.setdefault(row, code) == code
    assert sorted(expected.values()) == list(range(len(expected)))


@pytest.mark.parametrize("size", [7, 10**6], ids=["a table", "sorting"])
def test_compact_keeps_the_order(size: int) -> None:
    codes = np.array([6, 2, 2, 5, 6], np.int64)
    left, count = compact(codes, size)
    assert (left.tolist(), count) == ([2, 0, 0, 1, 2], 3)


@pytest.mark.parametrize("codes", [[], [3], [0, 2, 1, 0], [5, 5, 9], [-4, 7, -4], [10**15, 3, 10**15]])
def test_renumber_is_unique_with_its_inverse(codes):
    values, positions = renumber(np.array(codes, np.int64))
    expected, inverse = np.unique(np.array(codes, np.int64), return_inverse=True)
    assert values.tolist() == expected.tolist()
    assert positions.tolist() == inverse.tolist()


def test_first_rows():
    assert first_rows(np.array([1, 0, 1, 2, 0])).tolist() == [1, 0, 3]
    assert first_rows(np.empty(0, np.int64)).tolist() == []
