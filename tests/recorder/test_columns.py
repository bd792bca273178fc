"""Columns made from buffers are what `pyarrow.array` makes, which asks for pandas."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.errors import TableError
from phasepoint.core.tables import TABLES
from phasepoint.recorder.output import column_of_values, int64_column, name_column

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUES = {
    pa.int64(): INT64,
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=12),
    pa.dictionary(pa.int32(), pa.string()): TEXT,
    pa.list_(pa.string()): st.lists(TEXT, max_size=3),
}


def test_every_declared_type_is_tried():
    assert {column.type for spec in TABLES.values() for column in spec.columns} == set(VALUES)


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_values_become_what_pyarrow_makes_of_them(kind, data):
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=20))
    column = column_of_values(values, kind)
    column.validate(full=True)
    assert column.type == kind
    assert column.to_pylist() == values
    assert column.null_count == pa.array(values, kind).null_count


@given(st.lists(st.tuples(INT64, st.booleans())))
def test_integers_with_a_mask(pairs):
    values, known = np.array([v for v, _ in pairs], np.int64), np.array([k for _, k in pairs], bool)
    column = int64_column(values, known)
    column.validate(full=True)
    assert column.to_pylist() == [value if is_known else None for value, is_known in pairs]


def test_every_second_value_of_an_array():
    assert int64_column(np.arange(8, dtype=np.int64)[::2]).to_pylist() == [0, 2, 4, 6]


def test_names_by_index():
    column = name_column(np.array([1, -1, 0, 1], np.int64), ["train", "eval"])
    column.validate(full=True)
    assert column.type == pa.dictionary(pa.int32(), pa.string())
    assert column.to_pylist() == ["eval", None, "train", "eval"]
    assert name_column(np.array([-1, -1], np.int64), []).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        ([1.5], pa.int64(), TypeError),
        ([2**63], pa.int64(), OverflowError),
        (["1"], pa.int64(), TypeError),
        (["x"], pa.float64(), TypeError),
        ([1], pa.int8(), TableError),
    ],
)
def test_what_does_not_fit_is_refused(values, kind, error):
    with pytest.raises(error):
        column_of_values(values, kind)


def test_a_path_that_is_no_text_is_kept_in_escapes():
    assert column_of_values(["ckpt/\udcff"], pa.string()).to_pylist() == ["ckpt/\\udcff"]
