"""Merging parts changes their number and nothing else, wherever it is interrupted."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_builders import gap, kill_writer, new_run, parts_of, run_with_steps, steps

from phasepoint.core.errors import StoreError
from phasepoint.core.tables import table_from_rows
from phasepoint.store import CompactResult, compact, compact_run, open_run, open_shard, write_part
from phasepoint.store.compact import compaction_lock
from phasepoint.store.parts import encode_part, merged_metadata, merged_name, merged_sources, select_parts


class Interrupted(Exception):
    """Stands for the death of the merging process."""


def test_parts_become_one_and_rows_stay(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=20)
    before = open_run(path).table("steps")
    size = sum(p.stat().st_size for p in parts_of(path, "steps"))
    result = compact_run(path)
    (merged,) = parts_of(path, "steps")
    assert result == CompactResult(20, 1, size, merged.stat().st_size, ())
    assert result.bytes_after < result.bytes_before / 5
    assert open_run(path).table("steps").equals(before)
    assert compact_run(path) == CompactResult(1, 1, merged.stat().st_size, merged.stat().st_size, ())


def test_a_merged_part_is_merged_again(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    for n in range(12):
        writer.append("steps", steps(n, 1, kind=f"k{n}"))
        writer.flush()
        if n % 3 == 2:
            compact_run(path)
    writer.close()
    assert len(parts_of(path, "steps")) == 1
    table = open_run(path).table("steps")
    assert table["step"].to_pylist() == list(range(12))
    assert table["kind"].to_pylist() == [f"k{n}" for n in range(12)]
    name = parts_of(path, "steps")[0].stem
    assert name == merged_name([f"part-{n:08d}" for n in range(12)])


def test_every_shard_is_compacted_and_large_parts_are_left_alone(tmp_path: Path):
    path = new_run(tmp_path)
    for status in ("ok", "failed", "ok"):
        writer = open_shard(path, 0, epoch_unix_ns=0)
        for n in range(4):
            writer.append("steps", steps(n, 1))
            writer.append("gaps", gap(n))
            writer.flush()
        writer.close(status)
    assert compact_run(path, target_bytes=1).parts_after == 24
    assert compact_run(path, min_parts=5).parts_after == 24
    size = parts_of(path, "gaps")[0].stat().st_size
    assert compact_run(path, target_bytes=2 * size - 20).parts_after == 3 * (2 + 2)
    assert compact_run(path).parts_after == 6
    assert open_run(path).table("steps")["step"].to_pylist() == [0, 1, 2, 3] * 2
    assert open_run(path).table("steps", shard="host=00000")["step"].to_pylist() == [0, 1, 2, 3]


def test_a_part_that_is_converted_again_does_not_count_twice(tmp_path: Path):
    path = run_with_steps(tmp_path)
    run = open_run(path)
    row = {"window": 0, "device": "cpu:0", "op": "dot", "level": "op", "category": "compute", "count": 1}
    for window in range(3):
        ops = table_from_rows("ops", [row | {"window": window, "total_ps": 5, "self_ps": 5}])
        write_part(run, "host=00000", "ops", f"part-window-{window:06d}", ops)
    compact_run(path)
    write_part(run, "host=00000", "ops", "part-window-000002", ops)
    assert run.table("ops")["window"].to_pylist() == [0, 1, 2]
    write_part(run, "host=00000", "ops", "part-window-000003", ops)
    assert run.table("ops")["window"].to_pylist() == [0, 1, 2, 2]
    compact_run(path)
    assert run.table("ops")["window"].to_pylist() == [0, 1, 2, 2]
    assert len(parts_of(path, "ops")) == 1


def test_a_part_that_cannot_be_read_stays_and_is_named(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=5)
    lost = parts_of(path, "steps")[2]
    lost.write_bytes(b"")
    gaps = open_run(path).table("gaps").to_pylist()
    result = compact_run(path)
    assert result.skipped == (str(lost),)
    assert (result.parts_before, result.parts_after) == (5, 3)
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [*range(8), *range(12, 20)]
    assert run.table("gaps").to_pylist() == gaps
    assert (gaps[0]["first_step"], gaps[0]["last_step"]) == (8, 11)


def test_a_broken_merged_part_does_not_hide_its_sources(tmp_path: Path):
    path = run_with_steps(tmp_path)
    sources = {p: p.read_bytes() for p in parts_of(path, "steps")}
    compact_run(path)
    (merged,) = parts_of(path, "steps")
    for part, data in sources.items():
        part.write_bytes(data)
    merged.write_bytes(merged.read_bytes()[:-1])
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(12))
    result = compact_run(path)
    assert result.skipped == (str(merged),)
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(12))


def test_half_written_files_of_a_dead_writer_are_swept_and_those_of_a_live_one_are_not(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.append("steps", steps(0, 1))
    writer.flush()
    shard = Path(path) / "host=00000"
    halves = [shard / "steps/.tmp-part-00000001.parquet-7-0", shard / ".tmp-session.json-7-1"]
    for half in halves:
        half.write_bytes(b"half")
    compact_run(path)
    assert [h.exists() for h in halves] == [True, True]
    kill_writer(path)
    compact_run(path)
    assert [h.exists() for h in halves] == [False, False]


def test_a_second_compaction_is_kept_out(tmp_path: Path):
    path = run_with_steps(tmp_path)
    with compaction_lock(open_run(path).location):
        with pytest.raises(StoreError, match="another process is compacting this run; wait for it to end") as caught:
            compact_run(path)
        assert str(path) in str(caught.value)
        assert caught.value.exit_code == 3
    assert compact_run(path).parts_after == 1


def test_a_full_disk_leaves_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = run_with_steps(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match=r"steps/merged-\w+\.parquet cannot be written: the disk is full"):
            compact_run(path)
    assert len(parts_of(path, "steps")) == 3
    assert open_run(path).table("steps").num_rows == 12


def interrupt_after(patch: pytest.MonkeyPatch, operations: int) -> None:
    """Let the merging process die before its (operations + 1)-th change on disk."""
    left = [operations]

    def counted(function):
        def wrapper(*args, **options):
            if left[0] == 0:
                raise Interrupted
            left[0] -= 1
            return function(*args, **options)

        return wrapper

    patch.setattr(compact, "write_file", counted(compact.write_file))
    patch.setattr(compact, "delete_file", counted(compact.delete_file))


@pytest.mark.parametrize("operations", range(8))
def test_wherever_it_is_killed_nothing_is_lost_or_counted_twice(tmp_path: Path, operations: int):
    path = run_with_steps(tmp_path, parts=6)
    before = open_run(path).table("steps")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, operations)
        try:
            compact_run(path)
        except Interrupted:
            assert operations < 7
    assert open_run(path).table("steps").equals(before)
    compact_run(path)
    assert open_run(path).table("steps").equals(before)
    assert len(parts_of(path, "steps")) == 1


actions = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("convert"), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("compact"), st.integers(0, 6), st.sampled_from([1, 4_000, 12_000, 10**9])),
    st.tuples(st.just("restart"), st.integers(0, 2), st.just(0)),
)


@settings(max_examples=15)
@given(script=st.lists(actions, max_size=14))
def test_any_interleaving_of_hosts_restarts_and_interrupted_compactions_reads_right(script: list):
    """Against an oracle that keeps the rows in plain lists."""
    with tempfile.TemporaryDirectory() as folder:
        path = new_run(Path(folder))
        writers = {host: open_shard(path, host, epoch_unix_ns=0) for host in range(3)}
        expected: dict[tuple[int, int], list[int]] = {}
        windows: set[tuple[int, int, int]] = set()
        for action, host, number in script:
            writer = writers[host % 3]
            key = (host % 3, writer.session.attempt)
            if action == "write":
                rows = expected.setdefault(key, [])
                writer.append("steps", steps(len(rows), number))
                rows.extend(range(len(rows), len(rows) + number))
                writer.flush()
            elif action == "convert":
                gaps = table_from_rows("gaps", [{"why": "w", "start_ps": number, "unknown": ""}])
                write_part(open_run(path), writer.shard, "gaps", f"part-window-{number:06d}", gaps)
                windows.add((*key, number))
            elif action == "restart":
                writer.close("failed")
                writers[host] = open_shard(path, host, epoch_unix_ns=0)
            else:
                with pytest.MonkeyPatch.context() as patch:
                    interrupt_after(patch, host)
                    with contextlib.suppress(Interrupted):
                        compact_run(path, target_bytes=number)
            run = open_run(path)
            found = run.table("steps").select(["host", "attempt", "step"]).to_pylist()
            oracle = [(h, a, step) for (h, a), rows in sorted(expected.items()) for step in rows]
            assert [tuple(row.values()) for row in found] == oracle
            found = run.table("gaps").select(["host", "attempt", "start_ps"]).to_pylist()
            assert [tuple(row.values()) for row in found] == sorted(windows)
            assert run.problems == ()


def test_a_killed_compaction_process_loses_nothing(tmp_path: Path):
    path = run_with_steps(tmp_path, parts=30)
    before = open_run(path).table("steps")
    script = f"""
import os, signal
from phasepoint.store import compact, compact_run
real = compact.delete_file
deleted = []
def delete(*args):
    deleted.append(args)
    if len(deleted) == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args)
compact.delete_file = delete
compact_run({path!r})
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == -9
    assert len(parts_of(path, "steps")) == 23
    assert open_run(path).table("steps").equals(before)
    assert compact_run(path).parts_after == 1
    assert open_run(path).table("steps").equals(before)


part_names = st.one_of(
    st.from_regex(r"part-[0-9]{8}", fullmatch=True),
    st.from_regex(r"part-window-[0-9]{1,6}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_=-]{0,10}", fullmatch=True),
)


@given(names=st.frozensets(part_names))
def test_source_names_survive_the_metadata(names: frozenset[str]):
    data = encode_part(steps(0, 1), metadata=merged_metadata(names))
    assert merged_sources(data) == names


def test_the_sources_of_a_long_run_take_little_room():
    names = {f"part-{n:08d}" for n in range(200_000)} | {f"part-window-{n:06d}" for n in range(0, 3000, 2)}
    (encoded,) = merged_metadata(names).values()
    assert len(encoded) < 60_000
    assert len(merged_metadata({f"part-{n:08d}" for n in range(200_000)})[b"phasepoint.merged"]) < 100


def test_a_file_that_claims_countless_sources_covers_nothing():
    claim = b'{"ranges":[["part-",8,0,99999999999]],"others":[]}'
    data = encode_part(steps(0, 1), metadata={b"phasepoint.merged": claim})
    assert merged_sources(data) == frozenset()
    assert merged_sources(encode_part(steps(0, 1))) == frozenset()


@pytest.mark.parametrize(
    ("plain", "merged", "read"),
    [
        ("12", {}, "12"),
        ("123", {"A": "12"}, "A3"),
        ("", {"A": "12"}, "A"),
        ("123", {"A": "12", "B": "123"}, "B"),
        ("3", {"A": "12", "B": "23"}, "A3"),
        ("1", {"A": "12", "B": "23"}, "1B"),
        ("", {"A": "23", "B": "1"}, "BA"),
    ],
)
def test_each_source_is_read_once(plain: str, merged: dict[str, str], read: str):
    assert select_parts(list(plain), {name: frozenset(s) for name, s in merged.items()}) == list(read)
