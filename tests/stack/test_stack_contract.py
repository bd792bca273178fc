"""What every analysis of the stack keeps to; a new one joins by its row in `ANALYSES`."""

import csv
import inspect
import io
import json
import pkgutil
import re
import sys
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import kernel, run_of, span

sys.path.append(str(Path(__file__).parents[1] / "findings"))
from contract_runs import RUNS

import phasepoint.stack
from phasepoint.cli.main import run as run_command
from phasepoint.core.tables import table_from_rows
from phasepoint.report.documents import stack_document, to_json
from phasepoint.report.tables import arrow_table
from phasepoint.report.tables.text import csv_text
from phasepoint.stack import analyses
from phasepoint.stack.analyses.table import ANALYSES, analyse, find_analysis
from phasepoint.stack.shard.shard import Definition, StackShard, schema_of, shards_of
from phasepoint.store import open_run

CODES = [f"A{i}" for i in range(1, 16)]


@pytest.fixture(scope="module", params=ANALYSES, ids=lambda one: one.name)
def analysis(request):
    return request.param


def host(start_ns, end_ns, **fields):
    """A span of the host's main thread."""
    return span(start_ns, end_ns, **{"level": "op", "device": "host", "track": "main", "category": "host", **fields})


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """Two hosts with steps, layers, launches, counters and memory."""
    spans = [
        host(0, 90, name="phasepoint.step#0", level="model", step=0),
        host(1, 30, name="phasepoint.layer#Net/0|Linear", level="layer", layer="Net/0", step=0, parent=0),
        host(2, 25, name="aten::addmm", parent=1, shape="f32[4], f32[2,3], f32[3,4]", step=0),
        host(30, 60, name="phasepoint.layer#Net/1|ReLU", level="layer", layer="Net/1", step=0, parent=0),
        host(31, 55, name="aten::relu", parent=3, shape="f32[2,4]", step=0, direction="forward"),
        kernel(20, 40, name="gemm", launch=2, step=0, track="stream 7"),
        kernel(40, 47, name="relu", launch=4, step=0),
        kernel(50, 52, name="Memcpy DtoH", category="data_movement", bytes=128, step=0),
        kernel(60, 70, name="ncclDevKernel_AllReduce_Sum", category="communication", step=0),
    ]
    tables = {
        "steps": [{"step": i, "start_ps": i * 90_000, "dur_ps": 90_000} for i in range(3)],
        "launches": [{"window": 0, "span": 5, "occupancy_ratio": 0.5}],
        "metrics": [{"window": 0, "span": 6, "name": "dram__bytes_read.sum", "unit": "bytes", "value": 32.0}],
        "allocations": [{"window": 0, "time_ps": 3_000, "device": "gpu:0", "bytes": 512, "span": 2}],
    }
    return run_of(tmp_path_factory.mktemp("rich") / "run", spans, spans[:6], **tables)


@pytest.fixture(scope="module")
def table(analysis, rich):
    return analyse(rich, analysis.name)


@pytest.fixture(scope="module")
def shards_by_sort(tmp_path_factory):
    """The shards of a run of a sort; each run is written once, and the analyses share their groundwork."""
    return cache(lambda write: shards_of(write(tmp_path_factory.mktemp(write.__name__))))


def check_table(analysis, rows):
    assert rows.schema.equals(schema_of(analysis.columns), check_metadata=True)
    rows.validate(full=True)
    for column in analysis.columns:
        values = rows[column.name].to_pylist()
        assert column.nullable or None not in values
        if column.unit == "ratio" and column.name != "roof_ratio":
            assert all(value is None or 0 <= value <= 1 for value in values)


@pytest.mark.parametrize("write", RUNS, ids=lambda write: write.__name__)
def test_every_sort_of_run_is_taken(analysis, write, shards_by_sort):
    shards = shards_by_sort(write)
    parts = [analysis.of_shard(shard) for shard in shards]
    rows = analysis.definition.of_shards([part.rows for part in parts])
    check_table(analysis, rows)
    assert rows.num_rows or not parts or any(part.notes for part in parts)
    again = analysis.definition.of_shards([analysis.of_shard(shard).rows for shard in shards])
    assert again.equals(rows)


def test_an_empty_run_gives_the_declared_columns_and_a_reason(analysis, tmp_path):
    table = analyse(run_of(tmp_path / "run", []), analysis.name)
    assert table.rows.schema.equals(schema_of(analysis.columns), check_metadata=True)
    assert table.rows.num_rows == 0
    assert table.notes


def test_one_span_is_enough(analysis, tmp_path):
    table = analyse(run_of(tmp_path / "run", [kernel(0, 5)]), analysis.name)
    table.rows.validate(full=True)


def test_a_span_of_the_host_alone_is_no_device_work(analysis, tmp_path):
    table = analyse(run_of(tmp_path / "run", [host(0, 5, level="runtime")]), analysis.name)
    assert table.rows.num_rows == 0


def test_twice_the_same(analysis, rich, table):
    twice = analyse(open_run(rich.path), analysis.name)
    assert table.rows.equals(twice.rows)
    assert table.notes == twice.notes


def test_the_tables_are_left_as_they_were(analysis, rich):
    shard = shards_of(rich)[0]
    names = ("spans", "steps", "launches", "metrics", "allocations", "instructions")
    before = {name: shard.table(name).to_pylist() for name in names}
    analysis.of_shard(shard)
    assert {name: shard.table(name).to_pylist() for name in names} == before


def test_rows_are_as_declared(analysis, table):
    assert table.rows.num_rows > 0
    check_table(analysis, table.rows)


def test_every_number_says_its_unit(analysis):
    assert len({column.name for column in analysis.columns}) == len(analysis.columns)
    for column in analysis.columns:
        assert column.doc
        for suffix, unit in (("_ps", "ps"), ("_bytes", "bytes"), ("_ratio", "ratio"), ("flop_per_s", "flop/s")):
            if column.name.endswith(suffix):
                assert column.unit == unit


def test_a_quantity_says_who_says_it(analysis, table):
    rows = table.rows.to_pylist()
    for column in analysis.columns:
        if not column.name.endswith("_source"):
            continue
        for row in rows:
            said = row[column.name]
            assert said is None or set(said.split(", ")) <= {"counter", "compiler", "formula"}
            value = next(row.get(name) for name in _values_of(column.name) if name in row)
            assert (value is None) == (said is None)


def _values_of(source):
    stem = source.removesuffix("_source")
    return (stem, f"{stem}_ratio")


def test_it_has_a_section_in_the_docs(analysis):
    text = (Path(__file__).parents[2] / "docs" / "stack.md").read_text(encoding="utf-8")
    assert re.search(rf"^### .*\b{analysis.name}\b", text, re.M)


def test_it_is_documented(analysis):
    said = inspect.getdoc(analysis.definition.read)
    assert said
    assert inspect.getdoc(inspect.getmodule(analysis.definition.read))
    if analysis.code:
        assert said.startswith(f"{analysis.code}, ")


def test_it_is_found_by_name_and_code_and_called_in_python(analysis, rich, table):
    assert find_analysis(analysis.name.upper().replace("-", "_")) is analysis
    assert analysis.code is None or find_analysis(analysis.code.lower()) is analysis
    called = getattr(phasepoint.stack, analysis.name.replace("-", "_"))(rich)
    assert called.rows.equals(table.rows)


def test_shards_are_merged_in_any_grouping(analysis, rich):
    parts = [analysis.of_shard(shard).rows for shard in shards_of(rich)]
    empty = analysis.of_shard(_Empty(rich, rich.shards[0])).rows
    merge = analysis.definition.merge
    whole = merge([*parts, empty])
    assert merge([merge(parts[:1]), merge([parts[1], empty])]).equals(whole)
    assert merge([]).schema.equals(whole.schema)


class _Empty(StackShard):
    """A shard with nothing in it."""

    def table(self, name, columns=None):
        table = table_from_rows(name, [])
        return table if columns is None else table.select(list(columns))


def test_json_and_csv_hold_every_row(analysis, table):
    document = json.loads(to_json("stack", stack_document(table)))
    assert document["rows"] == table.rows.to_pylist()
    assert [column["name"] for column in document["columns"]] == table.rows.column_names
    rows = list(csv.DictReader(io.StringIO("".join(csv_text(arrow_table(table.rows))))))
    assert [list(row) for row in rows] == [table.rows.column_names] * table.rows.num_rows


def test_the_command_prints_it(analysis, rich, table, capsys):
    assert run_command(["stack", str(rich.path), "--analysis", analysis.code or analysis.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == table.rows.to_pylist()


def test_every_definition_is_a_row():
    modules = [info.name for info in pkgutil.walk_packages(analyses.__path__, f"{analyses.__name__}.")]
    made = {
        name for one in modules for name, value in vars(import_module(one)).items() if isinstance(value, Definition)
    }
    assert made == {one.python_name for one in ANALYSES}


def test_all_fifteen_are_there():
    assert Counter(one.code for one in ANALYSES if one.code) == Counter(CODES)


spans = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 15),
        st.sampled_from(["kernel", "op", "layer", "runtime"]),
        st.sampled_from(["gpu:0", "gpu:1"]),
        st.sampled_from([None, "M/a", "M/b"]),
        st.sampled_from([None, 0, 1]),
        st.sampled_from([None, 0, 3]),
    ),
    max_size=14,
)


class _Spans(StackShard):
    """A shard with given spans."""

    def __init__(self, run, rows):
        super().__init__(run, run.shards[0])
        self._tables["spans"] = table_from_rows("spans", rows)


@settings(max_examples=25)
@given(rows=spans)
def test_any_spans_are_taken(analysis, rich, rows):
    made = [
        {
            "span": i,
            **span(
                start,
                start + dur,
                level=level,
                name=f"{level} {start % 3}",
                device=device if level == "kernel" else "host",
                track=device if level == "kernel" else "main",
                layer=layer,
                step=step,
                launch=launch if level == "kernel" else None,
            ),
        }
        for i, (start, dur, level, device, layer, step, launch) in enumerate(rows)
    ]
    analysis.of_shard(_Spans(rich, made)).rows.validate(full=True)
