"""A run on an object store: a real S3 server on the loopback interface, reached through pyarrow's own client."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_builders import gap, steps

from phasepoint.core.errors import FormatVersionError, NotARunError, ShardBusyError, StoreError
from phasepoint.store import compact_run, create_run, drop_raw, open_run, open_shard, run_sql, write_part
from phasepoint.store.compact import compaction_lock
from phasepoint.store.filesystem import list_directory, open_location, write_file
from phasepoint.store.writer import (
    discard_shards,
    discard_staging,
    is_vacant,
    new_staging,
    publish_shard,
    published_sessions,
)

moto_server = pytest.importorskip("moto.server", reason="needs moto[server]")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield f"endpoint_override=http://{host}:{port}&scheme=http&allow_bucket_creation=true"
        finally:
            server.stop()


@pytest.fixture
def url(endpoint: str, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
    bucket = open_location(f"s3://runs?{endpoint}")
    assert bucket.filesystem is not None
    bucket.filesystem.create_dir("runs")
    return f"s3://runs/{name}/?{endpoint}"


def test_write_read_live_close(url: str):
    path = create_run(url, command=["x"], created_unix_ns=3)
    assert create_run(url, created_unix_ns=4) == path
    writer = open_shard(path, 0, epoch_unix_ns=5)
    run = open_run(path)
    assert (run.manifest.created_unix_ns, run.shards[0].state) == (3, "live")
    for n in range(3):
        writer.append("steps", steps(2 * n, 2))
        writer.flush()
        assert run.table("steps")["step"].to_pylist() == list(range(2 * n + 2))
    writer.write_raw("raw/w.zst", b"capture" * 100)
    assert run.read_raw("host=00000", "raw/w.zst") == b"capture" * 100
    writer.append("gaps", gap(1))
    writer.close()
    run = open_run(run.path)
    assert run.shards[0].state == "closed"
    assert run.table("gaps")["start_ps"].to_pylist() == [1]
    assert run_sql(run, "SELECT sum(step) AS s FROM steps").to_pylist() == [{"s": 15}]
    drop_raw(run, "host=00000", "raw/w.zst")
    drop_raw(run, "host=00000", "raw/w.zst")
    with pytest.raises(StoreError, match=r"raw/w\.zst: no such capture"):
        run.read_raw("host=00000", "raw/w.zst")
    assert run.problems == ()


def test_compaction(url: str):
    path = create_run(url)
    writer = open_shard(path, 0, epoch_unix_ns=5)
    for n in range(6):
        writer.append("steps", steps(n, 1))
        writer.flush()
    before = open_run(path).table("steps")
    result = compact_run(path)
    assert (result.parts_before, result.parts_after) == (6, 1)
    assert result.bytes_after < result.bytes_before
    run = open_run(path)
    assert run.table("steps").equals(before)
    write_part(run, "host=00000", "steps", "part-00000003", steps(3, 1))
    assert run.table("steps").equals(before)
    assert [e.name for e in list_directory(run.location)] == ["host=00000", "run.json"]


def test_compaction_is_kept_out_by_another(url: str):
    path = create_run(url)
    location = open_run(path).location
    with (
        compaction_lock(location),
        pytest.raises(StoreError, match=r"compacting\.json: process \d+ on .* is compacting this run; wait"),
    ):
        compact_run(path)
    write_file(location, "compacting.json", b"{")
    assert compact_run(path).parts_after == 0
    assert [e.name for e in list_directory(location)] == ["run.json"]


def test_a_lost_part_is_a_gap(url: str):
    path = create_run(url)
    writer = open_shard(path, 0, epoch_unix_ns=5)
    for n in range(3):
        writer.append("steps", steps(n, 1))
        writer.flush()
    run = open_run(path)
    write_file(run.location, "host=00000/steps/part-00000001.parquet", b"PAR1")
    assert run.table("steps")["step"].to_pylist() == [0, 2]
    (row,) = run.table("gaps").to_pylist()
    assert (row["why"], row["first_step"], row["last_step"]) == ("lost-part", 1, 1)
    assert run.problems[0].startswith(f"{url.partition('/?')[0]}/host=00000/steps/part-00000001.parquet: ")


def test_a_second_live_writer_and_the_next_attempt(url: str):
    path = create_run(url)
    writer = open_shard(path, 0, epoch_unix_ns=5)
    with pytest.raises(ShardBusyError, match=r"^s3://runs/[\w-]+/host=00000: process \d+ on .* is writing rank 0"):
        open_shard(path, 0, epoch_unix_ns=5)
    writer.close("failed")
    assert open_shard(path, 0, epoch_unix_ns=5).shard == "host=00000.1"
    assert [s.state for s in open_run(path).shards] == ["closed", "live"]


def test_a_killed_writer(url: str):
    path = create_run(url)
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from store_builders import steps\n"
        "from phasepoint.store import open_shard\n"
        "writer = open_shard(sys.argv[1], 0, epoch_unix_ns=0)\n"
        "for n in range(10**6):\n"
        "    writer.append('steps', steps(n, 1)); writer.flush(); print(n, flush=True)\n"
    )
    command = [sys.executable, "-c", script, path, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(7):
            last = int(process.stdout.readline())
        process.kill()
        last = max([last, *(int(line) for line in process.stdout.read().split())])
    run = open_run(path)
    assert run.shards[0].state == "killed"
    found = run.table("steps")["step"].to_pylist()
    assert found[: last + 1] == list(range(last + 1))
    assert len(found) <= last + 2
    assert open_shard(path, 0, epoch_unix_ns=0).session.restart_of == "host=00000"


def test_what_is_no_run(url: str):
    name = url.partition("/?")[0]
    with pytest.raises(NotARunError, match=r"no such directory; record a run into it"):
        open_run(url)
    write_file(open_location(url), "notes.txt", b"x")
    with pytest.raises(NotARunError) as caught:
        open_run(url)
    assert str(caught.value) == f"{name}: no run here: run.json is missing; found notes.txt"
    write_file(open_location(url), "run.json", b'{"format_version": "2.0"}')
    with pytest.raises(FormatVersionError, match=r"run\.json: the run has format version 2\.0"):
        open_run(url)


def test_a_bucket_that_is_not_there_names_the_remedy(endpoint: str):
    with pytest.raises(StoreError, match=r"s3://no-such/run/run\.json cannot be .*check the address, the credentials"):
        create_run(f"s3://no-such/run?{endpoint.partition('&allow')[0]}")


def test_shards_written_aside_are_moved_into_the_run(url: str):
    assert is_vacant(url)
    tries = [new_staging(url, 3) for _ in range(2)]
    for n, staging in enumerate(tries):
        create_run(staging)
        writer = open_shard(staging, 3, epoch_unix_ns=5)
        writer.append("steps", steps(0, 4))
        writer.flush()
        if n == 1:
            writer.close()
    publish_shard(url, tries[1], 3)
    discard_staging(url)
    assert [session.host for session in published_sessions(url)] == [3]
    with pytest.raises(NotARunError):
        open_run(url)
    run = open_run(create_run(url))
    assert [(shard.name, shard.state) for shard in run.shards] == [("host=00003", "closed")]
    assert run.table("steps")["step"].to_pylist() == list(range(4))
    assert not is_vacant(url)
    assert not list_directory(open_location(url), ".staging")
    discard_shards(url)
    assert published_sessions(url) == ()
