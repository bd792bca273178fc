import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.errors import TableError
from phasepoint.core.tables import TABLES, array_of, table_from_columns, table_from_rows, table_spec, validate_table


@pytest.mark.parametrize("spec", TABLES.values(), ids=lambda s: s.name)
def test_every_column_says_what_it_holds_and_quantities_name_their_unit(spec):
    assert spec.row
    for column in spec.columns:
        assert column.doc, column.name
        if column.name.endswith("_ps"):
            assert (column.unit, column.type) == ("ps", pa.int64())
        if column.name.endswith("bytes"):
            assert column.unit == "bytes"
    assert set(spec.order_by) <= {c.name for c in spec.columns}


@pytest.mark.parametrize("spec", TABLES.values(), ids=lambda s: s.name)
def test_empty_table_validates(spec):
    empty = spec.empty
    assert validate_table(spec.name, empty).equals(empty)


def test_rows_become_a_table_and_what_is_left_out_is_null():
    table = table_from_rows("steps", [{"step": 3, "start_ps": 10, "dur_ps": 20, "kind": "eval"}])
    assert table.select(["step", "start_ps", "dur_ps", "kind", "input_ps"]).to_pylist() == [
        {"step": 3, "start_ps": 10, "dur_ps": 20, "kind": "eval", "input_ps": None}
    ]


def test_unknown_table_lists_those_there_are():
    with pytest.raises(TableError, match="no table named 'step'; the tables are steps, windows"):
        table_spec("step")


def test_unknown_column_is_named():
    with pytest.raises(TableError, match="table 'steps' has no column dur_us"):
        table_from_rows("steps", [{"step": 1, "start_ps": 0, "dur_ps": 1, "dur_us": 4}])


def test_null_where_the_value_must_be_known_is_refused():
    with pytest.raises(TableError, match="column 'dur_ps': 1 nulls where none may be"):
        table_from_rows("steps", [{"step": 1, "start_ps": 0}])


def test_missing_required_column_is_refused():
    with pytest.raises(TableError, match="lacks column 'start_ps', which must be known"):
        table_from_columns("steps", {"step": [1], "dur_ps": [2]})


def test_durations_are_never_floats():
    for other in (pa.array([2.0]), pa.array(["2"])):
        row = table_from_rows("steps", [{"step": 1, "start_ps": 0, "dur_ps": 2}]).set_column(2, "dur_ps", other)
        with pytest.raises(TableError, match=f"'dur_ps': expected int64, found {other.type}"):
            validate_table("steps", row)
    with pytest.raises(TableError, match="'dur_ps': expected int64"):
        table_from_rows("steps", [{"step": 1, "start_ps": 0, "dur_ps": 0.5}])


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), st.none() | st.text()), max_size=20))
def test_values_survive_the_round_trip(values):
    rows = [{"step": i, "start_ps": a, "dur_ps": b, "kind": k} for i, (a, b, k) in enumerate(values)]
    table = table_from_rows("steps", rows)
    assert [(r["start_ps"], r["dur_ps"], r["kind"]) for r in table.to_pylist()] == values


def test_a_number_beyond_64_bits_is_told_with_its_column():
    assert array_of("total_ps", [1, None], pa.int64()).to_pylist() == [1, None]
    with pytest.raises(TableError, match="column 'total_ps' holds a number beyond 64 bits"):
        array_of("total_ps", [1 << 63], pa.int64())
