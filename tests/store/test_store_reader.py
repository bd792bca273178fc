"""Reading: order, history, what is broken, and what must not be trusted."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_builders import STEP_PS, gap, kill_writer, new_run, parts_of, run_with_steps, steps

from phasepoint.core.errors import StoreError, TableError
from phasepoint.core.tables import TABLES, table_from_rows, table_spec
from phasepoint.store import drop_raw, open_run, open_shard, parts, raw, shard_table, write_part
from phasepoint.summary.analysis import analyse_run


def conversion(window: int, events: int) -> dict[str, int]:
    counts = ("spans", "ignored_events", "dropped_events", "misnested_events", "orphan_events", "convert_cost_ps")
    return {"window": window, "events": events} | dict.fromkeys(counts, 0)


def program(number: int, name: str, window: int) -> dict[str, object]:
    return {"program": number, "name": name, "first_window": window, "instructions": 1, "transcendentals": 0}


def instruction(number: int, op: str, shape: str) -> dict[str, object]:
    row: dict[str, object] = {"program": number, "op": op, "shape": shape, "computation": "main", "opcode": "dot"}
    return row | {"category": "compute", "operands": [], "calls": [], "is_root": False, "is_entry": True}


def flip_a_bit(file: Path, position: int, bit: int = 0x10) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= bit
    file.write_bytes(data)


def test_every_table_is_there_and_empty_in_a_new_run(tmp_path: Path):
    run = open_run(new_run(tmp_path))
    for name, spec in TABLES.items():
        table = run.table(name)
        assert table.num_rows == 0
        assert table.schema.names == ["host", "attempt", *spec.schema.names]
        assert table.schema.field("host").type == pa.int64()
        assert table.select(spec.schema.names).schema == spec.schema
    assert (run.shards, run.problems, run.notes) == ((), (), ())


def test_rows_come_by_host_and_in_the_declared_order_whatever_the_order_of_writing(tmp_path: Path):
    path = new_run(tmp_path)
    writers = {host: open_shard(path, host, epoch_unix_ns=0) for host in (10, 2, 0)}
    for first in (6, 0, 3):
        for host, writer in writers.items():
            writer.append("steps", steps(first, 3, kind=f"host {host}"))
            writer.flush()
    run = open_run(path)
    table = run.table("steps")
    assert table["host"].to_pylist() == [0] * 9 + [2] * 9 + [10] * 9
    assert table["step"].to_pylist() == list(range(9)) * 3
    assert table["kind"].to_pylist() == ["host 0"] * 9 + ["host 2"] * 9 + ["host 10"] * 9
    assert run.table("steps", shard="host=00002")["host"].to_pylist() == [2] * 9
    assert len(run.hostnames) == 1


def test_columns_are_chosen_by_name(tmp_path: Path):
    run = open_run(run_with_steps(tmp_path))
    table = run.table("steps", columns=["dur_ps", "kind"])
    assert table.schema.names == ["host", "attempt", "dur_ps", "kind"]
    assert table.num_rows == 12
    assert run.table("steps", columns=["host"]).schema.names == ["host", "attempt"]
    with pytest.raises(TableError, match="table 'steps' has no column dur; it has step, start_ps") as caught:
        run.table("steps", columns=["dur"])
    assert caught.value.exit_code == 8
    with pytest.raises(TableError, match="no table named 'stops'; the tables are steps, windows"):
        run.table("stops")
    with pytest.raises(StoreError, match="no shard named 'host=00009'; there are: host=00000"):
        run.table("steps", shard="host=00009")


def test_ties_keep_the_order_of_writing(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    for start, why in [(5, "a"), (None, "b"), (5, "c"), (1, "d"), (5, "e")]:
        writer.append("gaps", table_from_rows("gaps", [{"why": why, "start_ps": start, "unknown": ""}]))
        writer.flush()
    assert open_run(path).table("gaps")["why"].to_pylist() == ["d", "a", "c", "e", "b"]


def test_the_history_is_the_newest_attempt_and_those_before_it_that_did_not_end_well(tmp_path: Path):
    path = new_run(tmp_path)
    for attempt, status in enumerate(["failed", "ok", None, "failed", "ok"]):
        writer = open_shard(path, 0, epoch_unix_ns=attempt)
        writer.append("steps", steps(10 * attempt, 1))
        writer.flush()
        if status is None:
            kill_writer(path, writer.shard)
        else:
            writer.close(status)
    open_shard(path, 1, epoch_unix_ns=4 * 10**18).close()
    run = open_run(path)
    assert [s.name for s in run.shards] == ["host=00000.2", "host=00000.3", "host=00000.4", "host=00001"]
    assert [s.name for s in run.other_shards] == ["host=00000", "host=00000.1"]
    assert run.notes[1] == f"{path}/host=00000.1: part of an earlier recording; kept, not mixed in"
    assert run.notes[0].startswith(f"{path}/host=00000: ")
    table = run.table("steps")
    assert table["attempt"].to_pylist() == [2, 3, 4]
    assert table["step"].to_pylist() == [20, 30, 40]
    assert run.table("steps", shard="host=00000")["step"].to_pylist() == [0]


def test_ranks_of_an_earlier_larger_recording_are_not_mixed_in(tmp_path: Path):
    """Two ranks record and close; then one alone; then both again, the second a moment before the first."""
    path = new_run(tmp_path)

    def record(host: int, start: int, end: int, status: str = "ok") -> None:
        open_shard(path, host, epoch_unix_ns=start, clock=lambda: end).close(status)

    def history() -> list[str]:
        return [s.name for s in open_run(path).shards]

    record(0, 100, 200)
    record(1, 101, 205, "failed")
    assert history() == ["host=00000", "host=00001"]
    record(0, 300, 400)
    assert history() == ["host=00000.1"]
    assert [s.name for s in open_run(path).other_shards] == ["host=00000", "host=00001"]
    record(1, 299, 405)
    assert history() == ["host=00000.1", "host=00001", "host=00001.1"]
    record(1, 500, 600)
    record(0, 501, 601)
    assert history() == ["host=00000.2", "host=00001.2"]


def test_a_run_is_read_while_it_is_written(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    run = open_run(path)
    for n in range(5):
        writer.append("steps", steps(n, 1))
        writer.flush()
        assert run.table("steps")["step"].to_pylist() == list(range(n + 1))
    assert run.shards[0].state == "live"


def test_a_half_written_part_is_passed_over(tmp_path: Path):
    path = run_with_steps(tmp_path)
    whole = parts_of(path, "steps")[0]
    whole.with_name(".tmp-part-00000003.parquet-77-1").write_bytes(whole.read_bytes()[:100])
    run = open_run(path)
    assert run.table("steps").num_rows == 12
    assert run.table("gaps").num_rows == 0
    assert run.problems == ()


@pytest.mark.parametrize("damage", ["empty", "truncated", "text", "page", "footer"])
def test_a_lost_part_is_skipped_named_and_a_gap(tmp_path: Path, damage: str):
    path = run_with_steps(tmp_path)
    file = parts_of(path, "steps")[1]
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "truncated":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "text":
        file.write_text("not a table")
    else:
        column = pq.read_metadata(file).row_group(0).column(2)
        end_of_page = column.data_page_offset + column.total_compressed_size - 1
        flip_a_bit(file, end_of_page if damage == "page" else file.stat().st_size - 6)
    run = open_run(path)
    gaps = run.table("gaps").to_pylist()
    assert run.table("steps")["step"].to_pylist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert len(gaps) == 1
    assert gaps[0]["why"] == "lost-part"
    assert (gaps[0]["host"], gaps[0]["first_step"], gaps[0]["last_step"]) == (0, 4, 7)
    assert (gaps[0]["start_ps"], gaps[0]["dur_ps"]) == (4 * STEP_PS, 4 * STEP_PS)
    assert gaps[0]["unknown"].startswith(f"rows of steps in {file}, which cannot be read: ")
    assert len(run.problems) == 1
    assert run.problems[0].startswith(f"{file}: ")
    assert run.problems[0].endswith("its rows are missing")


@pytest.mark.parametrize(("lost", "first", "last"), [(0, None, 3), (2, 8, None)])
def test_a_lost_part_at_an_end_has_one_known_side(tmp_path: Path, lost: int, first: int | None, last: int | None):
    path = run_with_steps(tmp_path)
    parts_of(path, "steps")[lost].write_bytes(b"")
    row = open_run(path).table("gaps").to_pylist()[0]
    assert (row["first_step"], row["last_step"], row["dur_ps"]) == (first, last, None)


def test_a_lost_part_stands_among_the_recorded_gaps(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    for n in range(3):
        writer.append("steps", steps(n, 1))
        writer.append("gaps", gap(n * 5 * STEP_PS // 2))
        writer.flush()
    parts_of(path, "steps")[1].write_bytes(b"")
    run = open_run(path)
    assert [(g["why"], g["start_ps"]) for g in run.table("gaps").to_pylist()] == [
        ("outside-steps", 0),
        ("lost-part", STEP_PS),
        ("outside-steps", 5 * STEP_PS // 2),
        ("outside-steps", 5 * STEP_PS),
    ]
    assert run.table("gaps").num_rows == 4


def test_any_flipped_bit_is_seen_or_harmless():
    """Two bits of every 5th byte: the rows come back as they were, or the part is refused; never other rows."""
    rows, spec = steps(0, 4), table_spec("steps")
    data = parts.encode_part(rows).to_pybytes()
    refused = 0
    for position in range(0, len(data), 5):
        for bit in (0x10, 0x01):
            damaged = bytearray(data)
            damaged[position] ^= bit
            try:
                read = parts.decode_part(spec, pa.py_buffer(bytes(damaged)))
            except TableError:
                refused += 1
            else:
                assert read.to_pylist() == rows.to_pylist(), position
    assert refused > len(data) // 10


def test_a_column_that_an_older_writer_did_not_know_is_null_and_a_newer_one_is_passed_over(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=2)
    older, newer = parts_of(path, "steps")
    pq.write_table(pq.ParquetFile(older).read().drop_columns(["kind", "compile_ps"]), older)
    pq.write_table(pq.ParquetFile(newer).read().append_column("mood", pa.array(["good"] * 4)), newer)
    run = open_run(path)
    assert run.table("steps")["kind"].to_pylist() == [None] * 4 + ["train"] * 4
    assert run.table("steps")["compile_ps"].to_pylist()[:4] == [None] * 4
    assert run.table("steps")["step"].to_pylist() == list(range(8))
    assert run.problems == ()


def test_a_column_of_texts_that_an_older_writer_did_not_know_is_null(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=5_000)
    row = {"path": "step-5.pt", "start_ps": 1, "dur_ps": 2, "framework": "torch"}
    writer.append("checkpoints", table_from_rows("checkpoints", [row]))
    writer.close()
    (part,) = parts_of(path, "checkpoints")
    pq.write_table(pq.ParquetFile(part).read().drop_columns(["iterator_state"]), part)
    assert open_run(path).table("checkpoints")["iterator_state"].to_pylist() == [None]
    pq.write_table(pq.ParquetFile(part).read().drop_columns(["path"]), part)
    run = open_run(path)
    assert run.table("checkpoints").num_rows == 0
    assert "lacks column 'path'" in run.problems[0]


def test_a_column_that_stands_there_twice_is_damage(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=1)
    (part,) = parts_of(path, "steps")
    table = pq.ParquetFile(part).read()
    pq.write_table(table.append_column("step", table["step"]), part)
    run = open_run(path)
    assert run.table("steps").num_rows == 0
    assert "a column stands there twice" in run.problems[0]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_counter_without_a_number_is_left_out_and_told(tmp_path: Path, value: float):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=5_000)
    row = {"name": "recorder.cost.total", "unit": "ps", "device": "host", "time_ps": 1, "value": value}
    writer.append("counters", table_from_rows("counters", [row]))
    writer.close()
    run = open_run(path)
    assert run.table("counters").num_rows == 0
    assert "column 'value' holds infinity, or no number" in run.problems[0]


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("dur_ps", -5, "column 'dur_ps' holds -5: it is never negative"),
        ("start_ps", -1, "column 'start_ps' holds -1: it is never negative"),
        ("step", -1, "column 'step' holds -1: it is never negative"),
        ("dur_ps", 2**62 + 1, "more than 53 days"),
        ("start_ps", 2**62, "more than 53 days"),
        ("dur_ps", 2**62 - 1, "last longer than 106 days"),
        ("step", 2**63 - 1, "column 'step' holds 9223372036854775807: no job has such a number"),
    ],
)
def test_times_that_no_job_has_are_left_out_and_told(tmp_path: Path, column: str, value: int, why: str):
    path = run_with_steps(tmp_path, parts=2)
    older, _ = parts_of(path, "steps")
    rows = pq.ParquetFile(older).read()
    index = rows.schema.get_field_index(column)
    values = [value] * 4 if value == 2**62 - 1 else [value, *rows.column(column).to_pylist()[1:]]
    pq.write_table(rows.set_column(index, rows.schema.field(index), pa.array(values, pa.int64())), older)
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [4, 5, 6, 7]
    assert len(run.problems) == 1
    assert why in run.problems[0]


def test_parts_whose_steps_together_last_longer_than_64_bits_hold_are_left_out_and_told(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=3)
    for part in parts_of(path, "steps"):
        rows = pq.ParquetFile(part).read()
        index = rows.schema.get_field_index("dur_ps")
        values = [2**62 - 1, *rows.column("dur_ps").to_pylist()[1:]]
        pq.write_table(rows.set_column(index, rows.schema.field(index), pa.array(values, pa.int64())), part)
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [0, 1, 2, 3]
    assert [problem.partition("its steps, ")[2].partition(";")[0] for problem in run.problems] == [
        "with those of the parts before, last longer than 106 days"
    ] * 2
    assert analyse_run(run).account.total_ps < 2**63


@pytest.mark.parametrize(
    ("table", "column", "value", "why"),
    [
        ("breakdowns", "category", "gpu:0", "column 'category' holds 'gpu:0'; expected compute, communication"),
        ("launches", "occupancy_ratio", 1e308, "holds a ratio that is none, or is not in 0 to"),
        ("launches", "occupancy_ratio", float("nan"), "column 'occupancy_ratio' holds a ratio that is none"),
        ("ops", "count", -7, "column 'count' holds -7: it is never negative"),
        ("spans", "parent", 2**63 - 1, "column 'parent' holds 9223372036854775807: no job has such a number"),
        ("spans", "span", 2**42, "column 'span' holds 4398046511104: no job has such a number"),
        ("spans", "launch", -2, "column 'launch' holds -2: no job has such a number"),
    ],
)
def test_values_that_no_writer_gives_are_left_out_and_told(tmp_path: Path, table, column, value, why: str):
    path = run_with_steps(tmp_path)
    run = open_run(path)
    rows = {
        "breakdowns": {"window": 0, "step": 0, "device": "cpu:0", "category": "compute", "wall_ps": 1},
        "launches": {"window": 0, "span": 0},
        "spans": {
            "window": 0,
            "span": 0,
            "parent": 0,
            "level": "op",
            "category": "compute",
            "name": "dot",
            "start_ps": 0,
        }
        | {"dur_ps": 1, "self_ps": 1, "device": "cpu:0", "track": "0", "launch": 0},
        "ops": {"window": 0, "device": "cpu:0", "op": "dot", "level": "op", "category": "compute", "count": 1}
        | {"total_ps": 1, "self_ps": 1},
    }
    write_part(run, "host=00000", table, "part-0", table_from_rows(table, [rows[table]]))
    write_part(run, "host=00000", table, "part-1", table_from_rows(table, [rows[table] | {column: value}]))
    run = open_run(path)
    assert run.table(table).num_rows == 1
    assert len(run.problems) == 1
    assert why in run.problems[0]


def test_of_steps_with_one_number_the_first_counts_and_the_others_are_told(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=2)
    older, newer = parts_of(path, "steps")
    rows = pq.ParquetFile(newer).read()
    index = rows.schema.get_field_index("step")
    pq.write_table(rows.set_column(index, rows.schema.field(index), pa.array([2, 3, 4, 4], pa.int64())), newer)
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [0, 1, 2, 3, 4]
    assert run.table("steps")["start_ps"].to_pylist()[:4] == pq.ParquetFile(older).read()["start_ps"].to_pylist()
    assert "3 of its steps have the number of another one" in run.problems[0]


def test_a_part_made_to_fill_the_memory_is_refused(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=1)
    (part,) = parts_of(path, "steps")
    schema = pq.ParquetFile(part).schema_arrow
    zeros, nothing = pa.array(np.zeros(8_000_000, np.int64)), pa.nulls(8_000_000)
    columns = [zeros if field.type == pa.int64() else nothing.cast(field.type) for field in schema]
    pq.write_table(pa.table(columns, schema=schema), part, compression="zstd")
    assert part.stat().st_size < 500_000
    run = open_run(path)
    assert run.table("steps").num_rows == 0
    assert "are not the data of a job" in run.problems[0]


def test_an_empty_folder_of_a_shard_is_no_attempt_and_is_told(tmp_path: Path):
    run_path = Path(run_with_steps(tmp_path))
    for host in range(1, 300):
        (run_path / f"host={host:05d}").mkdir()
    run = open_run(str(run_path))
    assert [shard.name for shard in run.shards] == ["host=00000"]
    assert len(run.problems) == 299
    assert run.problems[0].endswith("host=00001: empty; nothing of that attempt was written")


@pytest.mark.parametrize("change", ["missing", "renamed", "wrong type", "null", "not text", "name"])
def test_a_part_that_does_not_fit_is_lost(tmp_path: Path, change: str):
    path = run_with_steps(tmp_path, parts=1)
    file = parts_of(path, "steps")[0]
    table = pq.ParquetFile(file).read()
    if change == "missing":
        table = table.drop_columns(["dur_ps"])
    elif change == "renamed":
        table = table.rename_columns({"kind": "kinf"})
    elif change == "wrong type":
        table = table.set_column(2, "dur_ps", pa.array(["long"] * 4))
    elif change == "name":
        table = table.append_column("ordinary", table["step"])
    elif change == "null":
        table = table.set_column(2, "dur_ps", pa.array([1, None, 3, 4], pa.int64()))
    else:
        broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
        table = table.slice(0, 1).set_column(table.column_names.index("kind"), "kind", broken)
    pq.write_table(table, file)
    file.write_bytes(file.read_bytes().replace(b"ordinary", b"ord\x8anary"))
    run = open_run(path)
    assert run.table("steps").num_rows == 0
    assert len(run.problems) == 1
    said = dict.fromkeys(("not text", "name"), "not a readable Parquet file")
    said |= {"renamed": "'kinf' is unknown: the file is damaged"}
    assert said.get(change, "'dur_ps'") in run.problems[0]


def test_a_part_that_claims_too_much_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = run_with_steps(tmp_path, parts=1)
    monkeypatch.setattr(parts, "MAX_PART_ROWS", 3)
    run = open_run(path)
    assert run.table("steps").num_rows == 0
    assert "4 rows and" in run.problems[0]
    assert "more than a part may hold" in run.problems[0]


def test_rows_that_several_windows_repeat_count_once(tmp_path: Path):
    path = new_run(tmp_path)
    open_shard(path, 0, epoch_unix_ns=0).close()
    run = open_run(path)
    for window in (1, 0):
        rows = {
            "programs": [program(7, f"seen in {window}", window), program(8 + window, "own", window)],
            "instructions": [instruction(7, "dot.1", f"f32[{window}]"), instruction(7, f"add.{window}", "f32[]")],
            "conversions": [conversion(window, 10), conversion(5, 20 + window)],
        }
        for name, values in rows.items():
            table = table_from_rows(name, values)
            for _ in range(2):
                write_part(run, "host=00000", name, f"part-window-{window:06d}", table)
    assert [(p["program"], p["name"]) for p in run.table("programs").to_pylist()] == [
        (7, "seen in 0"),
        (8, "own"),
        (9, "own"),
    ]
    found = [(i["op"], i["shape"]) for i in run.table("instructions").to_pylist()]
    assert found == [("dot.1", "f32[0]"), ("add.0", "f32[]"), ("add.1", "f32[]")]
    assert [(c["window"], c["events"]) for c in run.table("conversions").to_pylist()] == [(0, 10), (1, 10), (5, 20)]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200])
def test_a_part_needs_a_plain_name(tmp_path: Path, name: str):
    run = open_run(run_with_steps(tmp_path))
    with pytest.raises(StoreError, match="is no name for a part"):
        write_part(run, "host=00000", "steps", name, steps(0, 1))


def test_a_part_that_goes_while_it_is_read_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = run_with_steps(tmp_path)
    run = open_run(path)
    real, calls = shard_table.read_file, []

    def merge_meanwhile(location, relative):
        calls.append(relative)
        if len(calls) == 2:
            from phasepoint.store import compact_run

            compact_run(path)
        return real(location, relative)

    monkeypatch.setattr(shard_table, "read_file", merge_meanwhile)
    assert run.table("steps")["step"].to_pylist() == list(range(12))
    assert any("merged-" in c for c in calls)


def test_a_listing_that_missed_a_merged_part_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A listing is no snapshot: it may miss both a part that was just deleted and what it was merged into."""
    path = run_with_steps(tmp_path)
    run = open_run(path)
    real, calls = shard_table.list_directory, []

    def list_meanwhile(location, relative):
        calls.append(relative)
        entries = real(location, relative)
        if len(calls) == 1:
            from phasepoint.store import compact_run

            compact_run(path)
            return entries[2:]
        return entries

    monkeypatch.setattr(shard_table, "list_directory", list_meanwhile)
    assert run.table("steps")["step"].to_pylist() == list(range(12))


def test_parts_that_never_settle_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = run_with_steps(tmp_path)
    run = open_run(path)

    def gone(location, relative):
        raise FileNotFoundError(relative)

    monkeypatch.setattr(shard_table, "read_file", gone)
    with pytest.raises(StoreError, match="host=00000/steps: its parts kept changing while they were read; try again"):
        run.table("steps")


def test_a_lost_session_is_named_and_its_rows_are_read(tmp_path: Path):
    deep = '{"a": ' + "[" * 20_000
    contents = [("{", "broken"), (json.dumps({"host": "x"}), "broken"), (deep, "broken"), (None, "missing")]
    for number, (content, said) in enumerate(contents):
        folder = tmp_path / f"{number}"
        path = run_with_steps(folder)
        file = Path(path) / "host=00000/session.json"
        file.unlink() if content is None else file.write_text(content)
        run = open_run(path)
        assert run.table("steps").num_rows == 12
        assert run.shards[0].state == "killed"
        assert run.shards[0].session.epoch_unix_ns == run.manifest.created_unix_ns
        assert len(run.problems) == 1
        assert run.problems[0].startswith(f"{file}: {said}")
        assert run.problems[0].endswith("its tables are read, its times count from the run's creation")


def test_other_things_in_the_directory_are_no_shards(tmp_path: Path):
    path = run_with_steps(tmp_path)
    for name in ["derived", "host=1", "host=00000.0", "host=00001.x", "host=00001.parquet"]:
        (Path(path) / name).mkdir()
    (Path(path) / "host=00002").write_text("")
    assert [s.name for s in open_run(path).shards] == ["host=00000"]


@pytest.mark.parametrize("data", [b"", b"abc" * 10_000, os.urandom(100_000)], ids=["empty", "text", "noise"])
@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_raw_captures_come_back(tmp_path: Path, data: bytes, suffix: str):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    name = f"raw/window-000000.xplane.pb{suffix}"
    stored = writer.write_raw(name, data)
    file = Path(path) / "host=00000" / name
    assert file.stat().st_size == stored
    run = open_run(path)
    assert run.read_raw("host=00000", name) == data
    drop_raw(run, "host=00000", name)
    drop_raw(run, "host=00000", name)
    with pytest.raises(StoreError, match=r"xplane\.pb.*: no such capture; it was dropped after conversion"):
        run.read_raw("host=00000", name)


@pytest.mark.parametrize(
    "path",
    ["../run.json", "/etc/passwd", "raw/../session.json", "session.json", "raw", "raw//x", "raw/./x", "raw\\..\\x", ""],
)
def test_a_raw_path_stays_below_raw(tmp_path: Path, path: str):
    run_path = new_run(tmp_path)
    writer = open_shard(run_path, 0, epoch_unix_ns=0)
    run = open_run(run_path)
    for use in (
        lambda: writer.write_raw(path, b""),
        lambda: run.read_raw("host=00000", path),
        lambda: drop_raw(run, "host=00000", path),
    ):
        with pytest.raises(StoreError) as caught:
            use()
        assert f"the path {path!r} of a raw capture leads out of raw/" in str(caught.value)
        assert caught.value.exit_code == 3


def test_a_link_out_of_the_run_is_not_followed(tmp_path: Path):
    path = run_with_steps(tmp_path)
    (tmp_path / "secret").write_text("s")
    folder = Path(path) / "host=00000/raw"
    folder.mkdir()
    (folder / "x").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="leads out of raw/"):
        open_run(path).read_raw("host=00000", "raw/x")
    (folder / "circle").symlink_to("circle")
    with pytest.raises(StoreError, match=r"raw/circle cannot be read"):
        open_run(path).read_raw("host=00000", "raw/circle")


@pytest.mark.parametrize("cut", [0, 1, 10, -1, -20])
def test_a_truncated_capture_is_named(tmp_path: Path, cut: int):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.write_raw("raw/w.zst", os.urandom(1000))
    file = Path(path) / "host=00000/raw/w.zst"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(StoreError, match=r"raw/w\.zst: the capture is truncated or corrupt") as caught:
        open_run(path).read_raw("host=00000", "raw/w.zst")
    assert "Its window cannot be converted; the other windows can" in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_535, 65_536, 65_791, 65_792, 1_000_000])
def test_a_capture_of_any_size_comes_back(tmp_path: Path, size: int):
    path = new_run(tmp_path)
    data = random.Random(size).randbytes(size)
    open_shard(path, 0, epoch_unix_ns=0).write_raw("raw/w.zst", data)
    assert open_run(path).read_raw("host=00000", "raw/w.zst") == data


def test_any_flipped_bit_of_a_capture_is_seen_or_harmless(tmp_path: Path):
    path = new_run(tmp_path)
    data = b"events " * 40
    open_shard(path, 0, epoch_unix_ns=0).write_raw("raw/w.zst", data)
    file = Path(path) / "host=00000/raw/w.zst"
    whole, refused = file.read_bytes(), 0
    for position in range(6):
        for bit in range(8):
            file.write_bytes(whole)
            flip_a_bit(file, position, 1 << bit)
            try:
                found = open_run(path).read_raw("host=00000", "raw/w.zst")
            except StoreError:
                refused += 1
            else:
                assert found == data
    assert refused > 40


@pytest.mark.parametrize("name", ["raw/w.zst", "raw/w"])
def test_a_capture_that_grows_too_large_is_refused(tmp_path: Path, name: str):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.write_raw(name, bytes(1_000_000))
    with pytest.raises(StoreError, match=r"the capture is larger than the 999999 bytes that are read"):
        raw.read_raw_file(open_run(path).location, "host=00000", name, max_bytes=999_999)
    assert len(raw.read_raw_file(open_run(path).location, "host=00000", name, max_bytes=1_000_000)) == 1_000_000


def test_the_declared_order_is_by_columns_that_exist():
    for spec in TABLES.values():
        assert set(spec.order_by) <= set(spec.schema.names)
    for name, keys in shard_table.REPEATED.items():
        assert set(keys) <= set(table_spec(name).schema.names)


@pytest.mark.parametrize(
    ("window", "span", "expected"),
    [
        ([0, 0, 1], [1, 2, 0], True),
        ([0, 0, 1], [2, 1, 3], False),
        ([0, 0, 1], [1, 1, 1], True),
        ([1, 0], [0, 0], False),
    ],
)
def test_rows_in_order_of_several_keys_are_known_as_such(window, span, expected):
    from phasepoint.store.shard_table import _is_sorted

    table = pa.table({"window": window, "span": span, "name": ["a"] * len(span)})
    assert _is_sorted(table, ("window", "span")) is expected
    assert not _is_sorted(table, ("window", "name"))
    assert not _is_sorted(pa.table({"window": [None, 1], "span": [0, 1]}), ("window", "span"))


def test_one_shard_of_a_run_is_read_apart_with_its_own_problems(tmp_path: Path):
    path = run_with_steps(tmp_path)
    other = open_shard(path, 1, epoch_unix_ns=5_000)
    other.append("steps", steps(0, 2))
    other.close()
    parts_of(path, "steps")[0].write_bytes(b"damaged")
    run = open_run(path)
    first, second = (run.only(shard.name) for shard in run.shards)
    assert first.table("steps")["host"].to_pylist() == [0] * 8
    assert second.table("steps")["host"].to_pylist() == [1] * 2
    assert [len(one.problems) for one in (first, second, run)] == [1, 0, 0]
    with pytest.raises(StoreError, match="no shard named"):
        run.only("host=00007")
