import csv
import io

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.report.export.csv_tables import CSV_TABLES, _run_ops, csv_tables
from phasepoint.report.tables import arrow_table
from phasepoint.report.tables.text import csv_text
from phasepoint.summary.roofline import measure_phases


def test_null_is_empty_and_dictionaries_are_text():
    table = pa.table({"a": pa.array(["x", None]).dictionary_encode(), "b_ps": pa.array([1, None], pa.int64())})
    assert csv_text(arrow_table(table)) == "a,b_ps\nx,1\n,\n"


@given(st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_is_read_back(rows):
    names, values = [name for name, _ in rows], [value for _, value in rows]
    table = pa.table({"name": pa.array(names, pa.string()), "value": pa.array(values, pa.int64())})
    parsed = list(csv.reader(io.StringIO(csv_text(arrow_table(table)), newline="")))
    assert parsed == [["name", "value"], *[[name, str(value)] for name, value in rows]]


def test_formulas_are_disarmed_for_spreadsheets_only():
    table = pa.table({"op": ['=HYPERLINK("x")', "-1", "+a", "@b", "a=b"], "n": [-1, -2, 3, 4, 5]})
    assert csv_text(arrow_table(table), for_spreadsheet=True).splitlines()[1:] == [
        '"\'=HYPERLINK(""x"")",-1',
        "'-1,-2",
        "'+a,3",
        "'@b,4",
        "a=b,5",
    ]
    assert "'" not in csv_text(arrow_table(table))


def test_every_table_is_there_and_quantities_carry_units(opened):
    run, summary, _ = opened
    tables = csv_tables(run, summary)
    assert list(tables) == list(CSV_TABLES)
    for table in tables.values():
        for field in table.schema:
            if pa.types.is_floating(field.type):
                assert field.name.endswith(("_ratio", "_share", "_steps", "probability")), field.name


def test_ops_of_phases_add_up_to_the_ops_table(opened):
    run, summary, _ = opened
    _, ops = measure_phases(run, method=summary.method)
    whole = run.table("ops")
    for name, column in (("count", "calls"), ("total_ps", "total_ps"), ("self_ps", "self_ps")):
        assert sum(ops.column(column).to_pylist()) == sum(whole.column(name).to_pylist())
    by_device = {}
    for row in ops.to_pylist():
        key = row["phase"], row["device"]
        by_device[key] = by_device.get(key, 0) + row["self_share"]
    assert all(abs(total - 1) < 1e-12 for total in by_device.values())


def test_times_that_no_float_holds_have_a_share(opened):
    """Of a damaged run: 2^62 - 1 ps are no exact float."""
    run, summary, _ = opened
    _, ops = measure_phases(run, method=summary.method)
    at = ops.column_names.index("self_ps")
    damaged = ops.slice(0, 1).set_column(at, "self_ps", pa.array([2**62 - 1], pa.int64()))
    assert _run_ops(damaged).column("self_share").to_pylist() == [1.0]
