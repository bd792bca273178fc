"""What every row of FORMATS keeps: it knows its own files, imports them exactly, says clearly what it cannot read."""

import gzip
import random

import pyarrow as pa
import pytest
from trace_samples import SAMPLES

from phasepoint.cli.main import run as run_command
from phasepoint.core.errors import SourceError
from phasepoint.core.tables import TABLES
from phasepoint.sources.events.capture import WINDOW_TABLES, CaptureRequest
from phasepoint.sources.ingest.formats import (
    FORMAT_OF,
    HEAD_BYTES,
    describe_formats,
    detect_format,
    read_capture,
)
from phasepoint.sources.ingest.import_run import import_traces
from phasepoint.store import open_run

EACH = pytest.mark.parametrize("name", FORMAT_OF)


@pytest.fixture(scope="module")
def samples():
    assert SAMPLES.keys() == FORMAT_OF.keys(), "every format has a sample in trace_samples.py"
    return {name: make() for name, make in SAMPLES.items()}


@pytest.fixture
def load(tmp_path):
    """Import some bytes as one file into a run of its own."""

    def load(data, out="run", name="trace"):
        (tmp_path / name).write_bytes(data)
        return import_traces([tmp_path / name], tmp_path / out, workers=1).files[0], open_run(tmp_path / out)

    return load


def rows_of(run):
    """All rows but what it cost to make them."""
    names = (*WINDOW_TABLES, "steps", "conversions")
    tables = {name: run.table(name) for name in names}
    tables["conversions"] = tables["conversions"].drop_columns("convert_cost_ps")
    return {name: table.to_pylist() for name, table in tables.items()}


def try_to_load(load, tmp_path, data, out):
    """What came of some bytes: a file that is accounted for; None where they are refused and nothing is left."""
    try:
        file, _ = load(data, out)
    except SourceError as refused:
        message = str(refused)
    else:
        assert file.events == file.spans + file.ignored + file.dropped
        return file
    assert str(tmp_path / "trace") in message
    assert not (tmp_path / out).exists()
    return None


def refuse(load, tmp_path, data):
    """The message with which some bytes are refused; nothing is left of the run."""
    with pytest.raises(SourceError) as refused:
        load(data)
    assert refused.value.exit_code == 7
    assert str(refused.value).startswith(str(tmp_path / "trace"))
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]
    return str(refused.value)


@EACH
def test_it_knows_its_own_files_and_no_other(samples, name):
    assert detect_format(samples[name][:HEAD_BYTES]) == name
    others = {other for other, data in samples.items() if other != name and FORMAT_OF[name].detect(data[:HEAD_BYTES])}
    assert others <= ({"kineto", "rocprof"} if name == "chrome" else set())
    assert not FORMAT_OF[name].detect(b"")


@EACH
def test_a_row_says_what_messages_need(name):
    row = FORMAT_OF[name]
    assert row.name == name
    assert row.words in describe_formats()
    assert row.suffixes
    assert all(suffix.startswith(".") for suffix in row.suffixes)
    assert row.rank is None or row.rank.groups == 1


@EACH
def test_messages_and_help_name_it(load, tmp_path, capsys, name):
    row = FORMAT_OF[name]
    assert row.words in refuse(load, tmp_path, b"step,loss\n1,2\n")
    assert run_command(["import", "--help"]) == 0
    assert row.words in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SourceError, match=rf"there are readers for .*\b{name}\b"):
        read_capture("tomorrow", b"", CaptureRequest())


@EACH
def test_every_event_is_accounted_for(samples, load, name):
    file, run = load(samples[name])
    assert (file.format, file.problem) == (name, None)
    assert file.events == file.spans + file.ignored + file.dropped
    assert file.spans == run.table("spans").num_rows > 0
    (row,) = run.table("conversions").to_pylist()
    assert row["orphan_events"] == file.orphans <= file.spans
    accounts = run.table("accounts").to_pylist()
    assert sum(one["events"] for one in accounts if one["fate"] != "kept") == file.ignored + file.dropped
    assert run.manifest.frameworks.keys() == ({FORMAT_OF[name].framework} - {None})


@EACH
def test_times_are_whole_picoseconds_from_the_epoch(samples, load, name):
    _, run = load(samples[name])
    for table in ("spans", "steps"):
        for column in ("start_ps", "dur_ps"):
            times = run.table(table).column(column)
            assert times.type == pa.int64()
            assert times.null_count == 0
            assert min(times.to_pylist()) >= 0
    assert min(run.table("spans").column("start_ps").to_pylist()) == 0 or run.table("steps").num_rows > 1


@EACH
def test_parents_and_launches_are_spans(samples, load, name):
    spans = {row["span"]: row for row in load(samples[name])[1].table("spans").to_pylist()}
    for row in spans.values():
        if row["parent"] is not None:
            parent = spans[row["parent"]]
            assert parent["start_ps"] <= row["start_ps"] or parent["track"] != row["track"]
        if row["launch"] is not None:
            assert spans[row["launch"]]["start_ps"] <= row["start_ps"]


@EACH
def test_parts_of_a_step_make_its_length(samples, load, name):
    _, run = load(samples[name])
    lengths = dict(zip(*(run.table("steps").column(column).to_pylist() for column in ("step", "dur_ps")), strict=True))
    walls = {}
    for row in run.table("breakdowns").to_pylist():
        key = row["step"], row["device"]
        walls[key] = walls.get(key, 0) + row["wall_ps"]
    assert walls
    assert {key: lengths[key[0]] for key in walls} == walls


@EACH
def test_the_same_bytes_give_the_same_rows_packed_or_not(samples, load, tmp_path, name):
    expected = rows_of(load(samples[name], "one")[1])
    assert rows_of(load(samples[name], "two")[1]) == expected
    assert rows_of(load(gzip.compress(samples[name]), "three")[1]) == expected
    assert gzip.decompress((tmp_path / "trace").read_bytes()) == samples[name]


@EACH
def test_without_spans_the_sums_are_the_same(samples, name):
    steps = TABLES["steps"].empty

    def read(keep_spans):
        return read_capture(name, samples[name], CaptureRequest(steps=steps, keep_spans=keep_spans))

    kept, summed = read(True), read(False)
    assert summed.spans.num_rows == 0
    for table in ("ops", "breakdowns"):
        assert getattr(summed, table).to_pylist() == getattr(kept, table).to_pylist()


@EACH
def test_an_empty_file_is_refused(load, tmp_path, name):
    assert refuse(load, tmp_path, b"").endswith("the file is empty")
    refuse(load, tmp_path, gzip.compress(b""))


@EACH
def test_a_file_that_is_cut_off_says_so_or_is_refused(samples, load, tmp_path, name):
    data = samples[name]
    whole = load(data, "whole")[0]
    for index in range(1, 12):
        file = try_to_load(load, tmp_path, data[: len(data) * index // 12], f"run{index}")
        assert file is None or (file.problem and file.spans <= whole.spans), f"cut at {index}/12"


@EACH
def test_a_packed_file_that_is_cut_off_says_so_or_is_refused(samples, load, tmp_path, name):
    packed = gzip.compress(samples[name])
    for index in (1, 6, 11):
        file = try_to_load(load, tmp_path, packed[: len(packed) * index // 12], f"run{index}")
        assert file is None or file.problem, f"cut at {index}/12"


@EACH
def test_garbage_ends_in_a_message_and_in_nothing_else(samples, load, tmp_path, name):
    data, rng = samples[name], random.Random(name)
    for index in range(6):
        begin = max(len(data) * index // 6, 16)
        try_to_load(load, tmp_path, data[:begin] + rng.randbytes(len(data) - begin), f"run{index}")
