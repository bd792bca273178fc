"""Numbering and sums, held against dictionaries."""

from collections import Counter, defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.dense import number_chosen, spread_numbers, sum_by_pair

rows_strategy = st.lists(
    st.tuples(st.integers(-1, 3), st.integers(0, 4), st.integers(-3, 3), st.integers(-(2**40), 2**40)), max_size=30
)


def columns(rows):
    array = np.array(rows, np.int64).reshape(-1, 4)
    return array[:, 0].astype(np.int32), array[:, 1].astype(np.int32), array[:, 2].copy(), array[:, 3].copy()


@given(rows_strategy, st.lists(st.integers(-1, 3), min_size=5, max_size=5))
def test_sums_by_pair_are_those_of_a_dictionary(rows, minor_of_kind):
    major, kind, first, second = columns(rows)
    sums = sum_by_pair(major, kind, np.array(minor_of_kind, np.int32), (first, second))
    count, totals = Counter(), defaultdict(lambda: [0, 0])
    for one, of_kind, a, b in rows:
        if minor_of_kind[of_kind] >= 0:
            key = one, minor_of_kind[of_kind]
            count[key] += 1
            totals[key][0] += a
            totals[key][1] += b
    found = [(int(major[i]), minor_of_kind[kind[i]]) for i in sums.sample]
    assert found == sorted(count)
    assert sums.count.tolist() == [count[key] for key in found]
    assert sums.first_sum.tolist() == [totals[key][0] for key in found]
    assert sums.second_sum.tolist() == [totals[key][1] for key in found]


@given(rows_strategy, st.lists(st.integers(-1, 1), min_size=5, max_size=5))
def test_numbers_of_chosen_rows_are_those_of_a_dictionary(rows, code_of_kind):
    _, kind, key, time = columns(rows)
    code = np.array(code_of_kind, np.int32)
    numbering = number_chosen(kind, code, key, time, np.empty(len(rows), np.int32))
    numbers, chosen = {}, [i for i in range(len(rows)) if code[kind[i]] >= 0]
    expected = [numbers.setdefault((code[kind[i]], key[i]), len(numbers)) for i in chosen]
    assert numbering.number.tolist() == expected
    assert numbering.first.tolist() == [chosen[expected.index(n)] for n in range(len(numbers))]
    for n, row in enumerate(numbering.earliest.tolist()):
        assert row == min((i for i, m in zip(chosen, expected, strict=True) if m == n), key=lambda i: (time[i], i))
    into = np.full(len(rows), -9, np.int32)
    spread_numbers(kind, code, numbering.number, np.arange(len(numbers), dtype=np.int32) + 100, into)
    assert into.tolist() == [100 + dict(zip(chosen, expected, strict=True)).get(i, -109) for i in range(len(rows))]


def test_many_keys_outgrow_the_first_table():
    key = np.arange(50_000, dtype=np.int64)[::-1].copy() * 977
    kind = np.zeros(50_000, np.int32)
    numbering = number_chosen(kind, np.zeros(1, np.int32), key, key, np.empty(50_000, np.int32))
    assert numbering.number.tolist() == list(range(50_000))
    assert numbering.first.tolist() == list(range(50_000))
