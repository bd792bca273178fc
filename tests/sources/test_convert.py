"""Raw captures of a run become parts, once, whatever happens in between."""

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from xplane_schema.build import PlaneBuilder, environment, new_space

from phasepoint.core.tables import TABLES, table_from_columns, table_from_rows
from phasepoint.sources.ingest import convert
from phasepoint.sources.ingest.convert import convert_windows, keeps_spans, main
from phasepoint.store import create_run, open_run, open_shard, shard_table, write_part

US = 1_000_000
EPOCH_NS = 1_700_000_000_000_000_000


def capture(window):
    """Two steps; the profile begins 1 ms a window after the session."""
    space = new_space()
    environment(space, EPOCH_NS + window * 1_000_000)
    cpu = PlaneBuilder(space, "/host:CPU")
    for k in range(2):
        cpu.event("python", "phasepoint.step", k * 100 * US, 90 * US, step_num=2 * window + k)
        cpu.event("pool", "dot.1", (k * 100 + 10) * US, 50 * US, hlo_op="dot.1", program_id=4)
    return space.SerializeToString()


def window_row(window, **changes):
    row = {
        "window": window, "first_step": 2 * window, "last_step": 2 * window + 1, "start_ps": window * 1000 * US,
        "dur_ps": 200 * US, "reason": "sample", "probability": 0.5, "start_cost_ps": 1, "stop_cost_ps": 1,
        "capture_cost_ps": 2, "format": "xplane", "raw": f"raw/window-{window:06d}.xplane.pb.zst", "bytes": 10,
    }  # fmt: skip
    return row | changes


@pytest.fixture
def run_path(tmp_path):
    """A run of three windows, the second one's capture damaged."""
    path = str(tmp_path / "run")
    create_run(path)
    with_shard(path, [window_row(0), window_row(1), window_row(2)], {0: capture(0), 1: b"rubbish", 2: capture(2)})
    return path


def with_shard(path, rows, captures):
    shard = open_shard(path, 0, epoch_unix_ns=EPOCH_NS)
    for row in rows:
        if row["window"] in captures:
            shard.write_raw(row["raw"], captures[row["window"]])
    shard.append("windows", table_from_rows("windows", rows))
    shard.close()


def test_every_window_is_converted_and_a_damaged_one_is_a_gap(run_path):
    calls = []
    result = convert_windows(run_path, progress=lambda done, total: calls.append((done, total)))
    assert (result.converted, result.failed, result.written) == (2, 1, True)
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert "host=00000, window 1: XPlane capture of 7 bytes" in result.problems[0]
    run = open_run(run_path)
    conversions = run.table("conversions").to_pylist()
    assert [row["window"] for row in conversions] == [0, 1, 2]
    assert [row["problem"] is None for row in conversions] == [True, False, True]
    assert [(row["events"], row["spans"]) for row in conversions] == [(4, 4), (0, 0), (4, 4)]
    assert all(row["convert_cost_ps"] > 0 for row in conversions)
    gap = next(g for g in run.table("gaps").to_pylist() if g["why"] == "lost-window")
    assert (gap["first_step"], gap["last_step"], gap["start_ps"], gap["dur_ps"]) == (2, 3, 1000 * US, 200 * US)
    spans = run.table("spans").to_pylist()
    assert [s["start_ps"] for s in spans if s["window"] == 2 and s["name"] == "dot.1"] == [2010 * US, 2110 * US]
    steps = {(r["window"], r["step"], r["op"]) for r in run.table("ops").to_pylist()}
    assert steps == {(0, 0, "dot.1"), (0, 1, "dot.1"), (2, 4, "dot.1"), (2, 5, "dot.1")}


def test_a_mark_of_a_step_that_was_none_takes_no_ops(tmp_path):
    """The loop asked for one more batch while a window was open, and there was none."""
    path = str(tmp_path / "run")
    create_run(path)
    row = {"step": 0, "start_ps": 0, "dur_ps": 100 * US, "input_ps": 0, "dispatch_ps": 0, "compile_ps": 0}
    shard = open_shard(path, 0, epoch_unix_ns=EPOCH_NS)
    shard.write_raw("raw/window-000000.xplane.pb.zst", capture(0))
    shard.append("steps", table_from_rows("steps", [row]))
    shard.append("windows", table_from_rows("windows", [window_row(0, last_step=0)]))
    shard.close()
    convert_windows(path)
    run = open_run(path)
    assert {r["step"] for r in run.table("breakdowns").to_pylist()} == {0}
    assert {r["step"] for r in run.table("ops").to_pylist()} <= {0, None}
    assert sum(r["count"] for r in run.table("ops").to_pylist() if r["op"] == "dot.1") == 2


def test_raw_captures_go_when_read_in_full_and_stay_otherwise(run_path):
    convert_windows(run_path)
    raw = Path(run_path) / "host=00000" / "raw"
    assert [p.name for p in sorted(raw.iterdir())] == ["window-000001.xplane.pb.zst"]


def test_converting_again_does_nothing(run_path):
    convert_windows(run_path)
    before = {name: open_run(run_path).table(name) for name in TABLES}
    result = convert_windows(run_path)
    assert (result.converted, result.failed, result.problems) == (0, 0, ())
    assert {name: open_run(run_path).table(name) for name in TABLES} == before


def test_an_interrupted_conversion_is_done_again(run_path, monkeypatch):
    """The converter dies after the ops of the first window were written."""

    def dies_after_ops(run, shard, name, part, table):
        size = write_part(run, shard, name, part, table)
        if name == "ops":
            raise KeyboardInterrupt
        return size

    monkeypatch.setattr(convert, "write_part", dies_after_ops)
    with pytest.raises(KeyboardInterrupt):
        convert_windows(run_path)
    monkeypatch.undo()
    assert open_run(run_path).table("conversions").num_rows == 0
    convert_windows(run_path)
    ops = open_run(run_path).table("ops")
    assert ops.num_rows == 4
    assert open_run(run_path).table("conversions").num_rows == 3


def test_two_converters_that_see_the_same_window_do_no_harm(run_path, monkeypatch):
    """The other converter finishes everything while this one is about to read its first capture."""
    read_raw = type(open_run(run_path)).read_raw

    def slow(run, shard, path):
        monkeypatch.undo()
        convert_windows(run_path)
        return read_raw(run, shard, path)

    monkeypatch.setattr(type(open_run(run_path)), "read_raw", slow)
    result = convert_windows(run_path)
    assert (result.converted, result.failed) == (0, 0)
    assert [c["problem"] is None for c in open_run(run_path).table("conversions").to_pylist()] == [True, False, True]
    assert open_run(run_path).table("ops").num_rows == 4


def test_a_run_that_cannot_be_written_is_converted_in_memory(run_path, monkeypatch):
    from phasepoint.core.errors import StoreError

    def refuse(*_):
        raise StoreError("read-only file system")

    monkeypatch.setattr(convert, "write_part", refuse)
    result = convert_windows(run_path)
    assert (result.converted, result.failed, result.written) == (2, 1, False)
    run = open_run(run_path)
    assert run.table("ops").num_rows == 0
    over = result.over(run)
    assert over.table("ops", columns=["window", "op"]).to_pylist() == [
        {"host": 0, "attempt": 0, "window": w, "op": "dot.1"} for w in (0, 0, 2, 2)
    ]
    assert over.table("conversions").num_rows == 3
    assert len(list((Path(run_path) / "host=00000" / "raw").iterdir())) == 3


def test_steps_of_the_clock_are_used_where_the_trace_has_no_marks(tmp_path):
    path = str(tmp_path / "run")
    create_run(path)
    space = new_space()
    environment(space, EPOCH_NS + 1000)
    PlaneBuilder(space, "/host:CPU").event("pool", "dot.1", 0, 50 * US, hlo_op="dot.1", program_id=4)
    shard = open_shard(path, 0, epoch_unix_ns=EPOCH_NS)
    shard.write_raw("raw/window-000000.xplane.pb.zst", space.SerializeToString())
    steps = {"step": [0, 1, 2], "start_ps": [0, 10 * US, 40 * US], "dur_ps": [10 * US, 30 * US, 60 * US]}
    shard.append("steps", table_from_columns("steps", steps))
    shard.append("windows", table_from_rows("windows", [window_row(0, first_step=0, last_step=1)]))
    shard.close()
    convert_windows(path)
    busy = [r for r in open_run(path).table("breakdowns").to_pylist() if r["category"] == "compute"]
    assert [(r["step"], r["wall_ps"]) for r in busy] == [(0, 9 * US), (1, 30 * US)]


def test_parts_of_steps_are_read_once_for_all_windows(tmp_path, monkeypatch):
    """A job of ten million steps has hundreds of windows."""
    path = str(tmp_path / "run")
    create_run(path)
    shard = open_shard(path, 0, epoch_unix_ns=EPOCH_NS)
    for part in range(5):
        numbers = range(20 * part, 20 * part + 20)
        rows = [{"step": n, "start_ps": n * 500 * US, "dur_ps": 500 * US} for n in numbers]
        shard.append("steps", table_from_rows("steps", rows))
        shard.flush()
    windows = [0, 3, 30]
    shard.append("windows", table_from_rows("windows", [window_row(window) for window in windows]))
    for window in windows:
        shard.write_raw(window_row(window)["raw"], capture(window))
    shard.close()
    decoded, decode = [], shard_table.decode_part

    def decode_part(spec, data):
        decoded.append(spec.name)
        return decode(spec, data)

    monkeypatch.setattr(shard_table, "decode_part", decode_part)
    assert convert_windows(path).converted == 3
    assert decoded.count("steps") == 5
    run = open_run(path)
    assert sorted(set(run.table("ops").column("step").to_pylist())) == [0, 1, 6, 7, 60, 61]
    wanted = run.rows("steps", shard="host=00000", keep=lambda part: part.slice(0, 1))
    assert wanted.column("step").to_pylist() == [0, 20, 40, 60, 80]
    assert "host" not in wanted.column_names


def test_a_format_of_tomorrow_is_said_and_skipped(tmp_path):
    path = str(tmp_path / "run")
    create_run(path)
    with_shard(path, [window_row(0, format="tomorrow")], {0: b"x"})
    result = convert_windows(path)
    assert result.failed == 1
    assert "no reader for captures of format 'tomorrow'; there are readers for xplane, kineto" in result.problems[0]


@pytest.mark.jax
def test_programs_are_written_once_however_many_windows_carry_them(tmp_path):
    from recorded_jax import record

    path = str(tmp_path / "run")
    create_run(path)
    data = record(wait_each_step=True)
    with_shard(path, [window_row(0), window_row(1)], {0: data, 1: data})
    convert_windows(path)
    run = open_run(path)
    programs = run.table("programs").column("program").to_pylist()
    assert programs
    assert len(programs) == len(set(programs))
    assert set(run.table("programs").column("first_window").to_pylist()) == {0}
    layers = [
        pa.table({"x": run.table("ops").filter(pa.compute.field("window") == w).column("category")}) for w in (0, 1)
    ]
    assert layers[0].to_pylist() == layers[1].to_pylist()


@pytest.mark.jax
def test_ops_have_their_layer_in_windows_that_carry_no_programs(tmp_path):
    from recorded_jax import record_twice

    path = str(tmp_path / "run")
    create_run(path)
    with_programs, without = record_twice()
    with_shard(path, [window_row(0), window_row(1)], {0: with_programs, 1: without})
    convert_windows(path)
    run = open_run(path)
    assert set(run.table("programs").column("first_window").to_pylist()) == {0}
    ops = run.table("ops").to_pylist()
    layers = [{row["op"]: row["layer"] for row in ops if row["window"] == w and row["level"] == "op"} for w in (0, 1)]
    assert layers[0] == layers[1]
    assert "Encoder" in layers[1].values()


def test_kept_windows_are_few_and_spread():
    kept = [w for w in range(1_000_000) if keeps_spans(w, 64)]
    assert kept[:64] == list(range(64))
    assert len(kept) == 64 + 32 * 13 + 30
    assert max(b - a for a, b in pairwise(kept)) <= 16384
    assert keeps_spans(12345, None)
    assert not keeps_spans(0, 0)


def test_spans_are_only_written_for_kept_windows(run_path):
    convert_windows(run_path, keep_spans=1)
    run = open_run(run_path)
    assert set(run.table("spans").column("window").to_pylist()) == {0}
    assert set(run.table("ops").column("window").to_pylist()) == {0, 2}


def test_the_converter_process_converts(run_path):
    command = [sys.executable, "-m", "phasepoint.sources.ingest.convert", run_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert open_run(run_path).table("conversions").num_rows == 3


def test_the_converter_process_says_what_is_wrong(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(convert, "_yield_cores", lambda: None)
    assert main([str(tmp_path)]) == 4
    assert str(tmp_path) in capsys.readouterr().err
    assert main([]) == 2
    shutil.rmtree(tmp_path)
