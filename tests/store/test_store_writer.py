"""The writer: what was flushed is on disk, what failed is kept, and a rank has one live writer."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_builders import gap, kill_writer, new_run, parts_of, steps

from phasepoint.core.errors import ShardBusyError, StoreError, TableError
from phasepoint.store import open_run, open_shard
from phasepoint.store import writer as store_writer
from phasepoint.store.session import HEARTBEAT_LIMIT_NS


def test_rows_are_there_after_a_flush_and_not_before(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 3, epoch_unix_ns=5, framework="jax", devices=["cpu:0"], notes={"budget": "0.01"})
    writer.append("steps", steps(0, 2))
    assert open_run(path).table("steps").num_rows == 0
    assert writer.flush() > 0
    assert open_run(path).table("steps")["step"].to_pylist() == [0, 1]
    assert writer.flush() == 0
    writer.append("steps", steps(2, 1))
    writer.append("gaps", gap(9))
    writer.close()
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [0, 1, 2]
    assert run.table("gaps")["start_ps"].to_pylist() == [9]
    session = run.shards[0].session
    assert (session.host, session.attempt, session.restart_of, session.epoch_unix_ns) == (3, 0, None, 5)
    assert (session.framework, session.devices, session.notes) == ("jax", ("cpu:0",), {"budget": "0.01"})
    assert (session.status, run.shards[0].state, run.shards[0].name) == ("ok", "closed", "host=00003")
    assert [p.name for p in parts_of(path, "steps", "host=00003")] == ["part-00000000.parquet", "part-00000001.parquet"]


@pytest.mark.parametrize(("rows", "codec"), [(100, "LZ4"), (10_000, "ZSTD")])
def test_small_parts_are_packed_with_what_is_cheap(tmp_path: Path, rows: int, codec: str):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.append("steps", steps(0, rows))
    writer.close()
    [part] = parts_of(path, "steps", "host=00000")
    assert pq.read_metadata(part).row_group(0).column(0).compression == codec
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(rows))


def test_chunks_with_different_dictionaries_make_one_part(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    for n, kind in enumerate(["train", "eval", None, "eval", "train"]):
        writer.append("steps", steps(n, 1, kind))
    writer.flush()
    assert len(parts_of(path, "steps")) == 1
    assert open_run(path).table("steps")["kind"].to_pylist() == ["train", "eval", None, "eval", "train"]


def test_rows_that_do_not_fit_are_refused_at_once(tmp_path: Path):
    writer = open_shard(new_run(tmp_path), 0, epoch_unix_ns=0)
    with pytest.raises(TableError, match="table 'steps' lacks column 'step'") as caught:
        writer.append("steps", pa.table({"a": [1]}))
    assert caught.value.exit_code == 8
    with pytest.raises(TableError, match="no table named 'stops'"):
        writer.append("stops", steps(0, 1))


def test_a_closed_shard_takes_nothing_more(tmp_path: Path):
    writer = open_shard(new_run(tmp_path), 0, epoch_unix_ns=0)
    writer.close("failed")
    writer.close("ok")
    assert writer.session.status == "failed"
    for use in (writer.flush, lambda: writer.append("steps", steps(0, 1)), lambda: writer.write_raw("raw/x", b"")):
        with pytest.raises(StoreError, match="host=00000: the shard is closed; open the run again"):
            use()


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.append("steps", steps(0, 2))
    writer.flush()
    real, failures = os.fsync, iter([None, errno.ENOSPC, errno.ENOSPC, errno.ENOSPC])

    def fail_after_one(descriptor: int) -> None:
        code = next(failures, None) if os.fstat(descriptor).st_mode & 0o100000 else None
        if code is not None:
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_after_one)
    writer.append("steps", steps(2, 2))
    writer.append("gaps", gap(1))
    with pytest.raises(StoreError, match=r"host=00000/gaps/part-00000000.parquet cannot be written: the disk is full"):
        writer.flush()
    assert open_run(path).table("steps")["step"].to_pylist() == [0, 1, 2, 3]
    writer.append("steps", steps(4, 1))
    writer.append("gaps", gap(2))
    with pytest.raises(StoreError, match=r"host=00000/steps/part-00000002.parquet cannot be written: the disk is full"):
        writer.close()
    assert not list(Path(path).rglob(".tmp-*"))
    with pytest.raises(StoreError, match="the disk is full"):
        writer.flush()
    assert open_run(path).problems == ()
    writer.close()
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [0, 1, 2, 3, 4]
    assert run.table("gaps")["start_ps"].to_pylist() == [1, 2]
    assert run.shards[0].state == "closed"


def test_a_real_file_size_limit_loses_nothing_that_was_written(tmp_path: Path):
    path = new_run(tmp_path)
    script = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from store_builders import steps
from phasepoint.core.errors import StoreError
from phasepoint.store import open_shard
writer = open_shard({path!r}, 0, epoch_unix_ns=0)
writer.append("steps", steps(0, 3)); writer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
writer.append("steps", steps(3, 3))
try:
    writer.flush()
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "part-00000001.parquet cannot be written: the file-size limit is reached" in done.stdout
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(6))


def test_where_writing_is_slow_the_last_parts_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    real, threads, meeting = store_writer.write_table_part, [], threading.Barrier(2, timeout=30)

    def write_slowly(location, shard, name, part, table):
        threads.append(threading.current_thread())
        if len(threads) == 1:
            time.sleep(store_writer.SLOW_WRITE_NS / 1e9)
        elif threads[-1] is not threading.main_thread():
            meeting.wait()  # two of them are under way
            if name == "gaps" and not failed:
                failed.append(name)
                raise StoreError("planted")
        return real(location, shard, name, part, table)

    failed: list[str] = []
    monkeypatch.setattr(store_writer, "write_table_part", write_slowly)
    writer.append("steps", steps(0, 1))
    writer.flush()
    writer.append("steps", steps(1, 1))
    writer.append("gaps", gap(5))
    with pytest.raises(StoreError, match="planted"):
        writer.flush(is_awaited=True)
    assert writer.waiting_rows("gaps") == 1
    assert writer.waiting_rows("steps") == 0
    writer.append("steps", steps(2, 1))
    writer.close()
    assert open_run(path).table("steps")["step"].to_pylist() == [0, 1, 2]
    assert open_run(path).table("gaps")["start_ps"].to_pylist() == [5]
    assert open_run(path).shards[0].state == "closed"
    assert len(threads) == 5


def test_an_interpreter_that_ends_starts_no_thread_and_writes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    monkeypatch.setattr(store_writer, "SLOW_WRITE_NS", 0)
    writer.append("steps", steps(0, 1))
    writer.flush()

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    writer.append("steps", steps(1, 1))
    writer.append("gaps", gap(5))
    writer.close()
    assert open_run(path).table("steps").num_rows == 2
    assert open_run(path).table("gaps").num_rows == 1


def test_threads_append_while_others_flush(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    done = threading.Event()

    def flush_on() -> None:
        while not done.is_set():
            writer.flush()

    flusher = threading.Thread(target=flush_on)
    flusher.start()
    appenders = [
        threading.Thread(target=lambda k=k: [writer.append("steps", steps(k * 50 + n, 1)) for n in range(50)])
        for k in range(4)
    ]
    for thread in appenders:
        thread.start()
    for thread in appenders:
        thread.join()
    done.set()
    flusher.join()
    writer.close()
    assert open_run(path).table("steps")["step"].to_pylist() == list(range(200))


def test_a_second_live_writer_is_refused(tmp_path: Path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    with pytest.raises(ShardBusyError) as caught:
        open_shard(path, 0, epoch_unix_ns=0)
    assert f"{path}/host=00000: process {os.getpid()} on " in str(caught.value)
    assert "Give each process its own rank, record into another directory, or end that process" in str(caught.value)
    assert caught.value.exit_code == 6
    open_shard(path, 1, epoch_unix_ns=0).close()
    writer.close()
    assert open_shard(path, 0, epoch_unix_ns=0).shard == "host=00000.1"


def test_of_many_claimants_one_writes(tmp_path: Path):
    path = new_run(tmp_path)
    writers, busy = [], []

    def claim() -> None:
        try:
            writers.append(open_shard(path, 0, epoch_unix_ns=0))
        except ShardBusyError as error:
            busy.append(error)

    threads = [threading.Thread(target=claim) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(writers), len(busy)) == (1, 11)
    assert writers[0].shard == "host=00000"
    assert [p.name for p in Path(path).iterdir() if p.is_dir()] == ["host=00000"]


def test_attempts_follow_one_another(tmp_path: Path):
    path = new_run(tmp_path)
    open_shard(path, 0, epoch_unix_ns=1)
    kill_writer(path)
    assert open_run(path).shards[0].state == "killed"
    second = open_shard(path, 0, epoch_unix_ns=2)
    assert (second.shard, second.session.attempt, second.session.restart_of) == ("host=00000.1", 1, "host=00000")
    second.close("failed")
    third = open_shard(path, 0, epoch_unix_ns=3)
    assert (third.shard, third.session.restart_of) == ("host=00000.2", "host=00000.1")
    assert [s.state for s in open_run(path).shards] == ["killed", "closed", "live"]


def test_a_broken_session_of_an_earlier_attempt_is_left_alone(tmp_path: Path):
    path = new_run(tmp_path)
    open_shard(path, 0, epoch_unix_ns=1).close()
    (Path(path) / "host=00000/session.json").write_text("{")
    assert open_shard(path, 0, epoch_unix_ns=2).shard == "host=00000.1"


def test_on_another_machine_the_heartbeat_decides(tmp_path: Path):
    path = new_run(tmp_path)
    now = [10**18]
    writer = open_shard(path, 0, epoch_unix_ns=now[0], clock=lambda: now[0])
    session = Path(path) / "host=00000/session.json"
    text = json.loads(session.read_text())
    text["owner"] |= {"machine": "elsewhere", "hostname": "node7"}
    session.write_text(json.dumps(text))
    limit = HEARTBEAT_LIMIT_NS
    assert open_run(path, now_unix_ns=now[0] + limit).shards[0].state == "live"
    assert open_run(path, now_unix_ns=now[0] + limit + 1).shards[0].state == "killed"
    now[0] += limit
    writer.flush()
    assert open_run(path, now_unix_ns=now[0] + limit).shards[0].state == "live"
    with pytest.raises(ShardBusyError, match=f"process {os.getpid()} on node7 is writing rank 0"):
        open_shard(path, 0, epoch_unix_ns=0, clock=lambda: now[0])
    for content in ("", '{"a": ' + "[" * 20_000):
        (Path(path) / "host=00000/heartbeat.json").write_text(content)
        assert open_run(path, now_unix_ns=now[0]).shards[0].state == "live"
        assert open_run(path, now_unix_ns=now[0] + 1).shards[0].state == "killed"
    assert open_shard(path, 0, epoch_unix_ns=0, clock=lambda: now[0] + 1).shard == "host=00000.1"


def test_the_heartbeat_is_renewed_no_oftener_than_needed_and_survives_a_clock_that_goes_back(tmp_path: Path):
    path = new_run(tmp_path)
    now = [10**18]
    writer = open_shard(path, 0, epoch_unix_ns=now[0], clock=lambda: now[0])
    seen = []
    for step_ns in (0, 10**9, 10**10, -(10**12), 10**9):
        now[0] += step_ns
        writer.flush()
        seen.append(json.loads((Path(path) / "host=00000/heartbeat.json").read_text())["unix_ns"] - 10**18)
    assert seen == [0, 0, 11 * 10**9, 11 * 10**9 - 10**12, 11 * 10**9 - 10**12]


def test_no_permission_to_create_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = new_run(tmp_path)

    def deny(self: Path, *args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", deny)
    with pytest.raises(StoreError, match=r"host=00000 cannot be created: permission denied: give this user access"):
        open_shard(path, 0, epoch_unix_ns=0)


def test_a_rank_is_not_negative(tmp_path: Path):
    with pytest.raises(ValueError, match="host is -1; expected a rank of 0 or more"):
        open_shard(new_run(tmp_path), -1, epoch_unix_ns=0)


def test_writing_imports_no_more_than_it_needs():
    script = (
        "import sys, phasepoint.store as s; s.open_shard; s.create_run\n"
        "heavy = {'duckdb', 'numba', 'sklearn', 'ruptures', 'pandas', 'jax', 'torch', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
