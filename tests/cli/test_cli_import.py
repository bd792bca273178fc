"""`phasepoint import`: files become a run that every other command reads; bad ones end with a message."""

import gzip
import json

import pytest

from phasepoint.store import open_run

US = 10**6


def event(name, cat, ts, dur, **more):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **more}


def trace(*, rank=None, marks=True, first_us=0):
    """Four steps of a GPU job: a launch and a kernel each, and one kernel without a launch."""
    events = []
    for step in range(4):
        at = first_us + 1000 * step
        if marks:
            events.append(event(f"ProfilerStep#{step}", "user_annotation", at, 1000))
        events += [
            event("aten::mm", "cpu_op", at + 10, 50),
            event("cudaLaunchKernel", "cuda_runtime", at + 20, 10, args={"correlation": step + 1}),
            event("gemm", "kernel", at + 100, 600, tid=7, args={"correlation": step + 1, "device": 0, "stream": 7}),
        ]
    events.append(event("lost", "kernel", first_us + 3800, 100, tid=7, args={"correlation": 99, "device": 0}))
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    if rank is not None:
        head["distributedInfo"] = {"rank": rank}
    return json.dumps({**head, "baseTimeNanoseconds": 1_700_000_000 * 10**9, "traceEvents": events}).encode()


def test_a_trace_becomes_a_run_that_closes(phasepoint, tmp_path):
    file, out = tmp_path / "anything", tmp_path / "run"
    file.write_bytes(gzip.compress(trace()))
    done = phasepoint("import", file, "--out", out)
    assert done.code == 0, done.err
    assert "kineto, host 0, 4 steps; 17 events = 17 spans + 0 ignored + 0 dropped; 1 without a launch" in done.out
    run = open_run(out)
    assert run.manifest.devices == ("gpu:0 NVIDIA H100 80GB HBM3",)
    assert run.table("steps").column("dur_ps").to_pylist() == [1000 * US] * 4
    walls = {}
    for row in run.table("breakdowns").to_pylist():
        walls[row["step"]] = walls.get(row["step"], 0) + row["wall_ps"]
    assert walls == dict.fromkeys(range(4), 1000 * US)
    (window,) = run.table("windows").to_pylist()
    assert (window["reason"], window["first_step"], window["last_step"]) == ("imported", 0, 3)
    for command in ("summary", "phases", "findings"):
        assert phasepoint(command, out).code == 0


def test_a_trace_without_steps_is_one(phasepoint, tmp_path):
    (tmp_path / "t.json").write_bytes(trace(marks=False, first_us=50))
    done = phasepoint("import", tmp_path / "t.json", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    (file,) = json.loads(done.out)["files"]
    assert (file["steps"], file["events"], file["spans"], file["orphans"]) == (0, 13, 13, 1)
    (step,) = open_run(tmp_path / "run").table("steps").to_pylist()
    assert step["dur_ps"] == (3900 - 10) * US


def test_ranks_are_shards(phasepoint, tmp_path):
    for rank in (3, 1):
        (tmp_path / f"{rank}.json").write_bytes(trace(rank=rank))
    done = phasepoint("import", tmp_path / "3.json", tmp_path / "1.json", "--out", tmp_path / "run", "--json")
    assert [one["host"] for one in json.loads(done.out)["files"]] == [3, 1]
    assert sorted(set(open_run(tmp_path / "run").table("steps").column("host").to_pylist())) == [1, 3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("the file is empty",)),
        (b"step,loss\n1,2\n", ("no trace that is known", "step,loss", "torch.profiler")),
        (b"SQLite format 3\x00" + b"\x00" * 80, ("an SQLite file that cannot be read", "nsys export")),
        (json.dumps({"schemaVersion": 1, "traceEvents": []}).encode(), ("no event in it is a stretch of work",)),
    ],
)
def test_files_that_are_no_trace(phasepoint, tmp_path, content, words):
    (tmp_path / "t").write_bytes(content)
    done = phasepoint("import", tmp_path / "t", "--out", tmp_path / "run")
    assert done.code == 7, done.err
    assert done.err.startswith(f"error: {tmp_path / 't'}: ")
    for word in words:
        assert word in done.err
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there(phasepoint, tmp_path):
    done = phasepoint("import", tmp_path / "nowhere", "--out", tmp_path / "run")
    assert done.code == 7, done.err
    assert "nowhere: cannot be read: No such file or directory" in done.err


def test_a_truncated_file_gives_what_it_holds(phasepoint, tmp_path):
    data = trace()
    (tmp_path / "t.json").write_bytes(data[: len(data) * 2 // 3])
    done = phasepoint("import", tmp_path / "t.json", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    (file,) = json.loads(done.out)["files"]
    assert "damaged JSON" in file["problem"]
    assert 5 < file["spans"] < 17


def test_nothing_is_written_over(phasepoint, tmp_path, fresh_run):
    (tmp_path / "t.json").write_bytes(trace())
    done = phasepoint("import", tmp_path / "t.json", "--out", fresh_run)
    assert done.code == 12, done.err
    assert "a run is there already; give --force to replace it" in done.err
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    refused = phasepoint("import", tmp_path / "t.json", "--out", tmp_path / "notes", "--force")
    assert refused.code == 12, refused.err
    assert "exists and is no run" in refused.err
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"


def test_a_run_is_replaced_where_that_is_asked_for_and_the_new_one_is_whole(phasepoint, tmp_path, fresh_run):
    (tmp_path / "bad.json").write_bytes(b"no trace")
    before = sorted(path.relative_to(fresh_run) for path in fresh_run.rglob("*"))
    assert phasepoint("import", tmp_path / "bad.json", "--out", fresh_run, "--force").code == 7
    assert sorted(path.relative_to(fresh_run) for path in fresh_run.rglob("*")) == before
    (tmp_path / "t.json").write_bytes(trace())
    done = phasepoint("import", tmp_path / "t.json", "--out", fresh_run, "--force")
    assert done.code == 0, done.err
    assert open_run(fresh_run).table("steps").num_rows != 200
    assert [path.name for path in tmp_path.iterdir() if "replaced" in path.name] == []


def test_two_files_of_one_rank(phasepoint, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(trace(rank=2))
    done = phasepoint("import", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "run")
    assert done.code == 2, done.err
    assert "both are of rank 2" in done.err


def test_ranks_are_on_one_clock(phasepoint, tmp_path):
    for rank, first_us in ((0, 250), (1, 100)):
        (tmp_path / f"{rank}.json").write_bytes(trace(rank=rank, first_us=first_us))
    assert phasepoint("import", tmp_path / "0.json", tmp_path / "1.json", "--out", tmp_path / "run").code == 0
    run = open_run(tmp_path / "run")
    epochs = {shard.host: shard.session.epoch_unix_ns for shard in run.shards}
    base_ns = 1_700_000_000 * 10**9
    assert epochs == {0: base_ns + 250_000, 1: base_ns + 100_000}
    for shard in run.shards:
        assert min(run.table("spans", shard=shard.name)["start_ps"].to_pylist()) == 0


def test_a_chrome_trace_becomes_a_run(phasepoint, tmp_path):
    events = [{"ph": "B", "name": "load", "pid": 1, "tid": 1, "ts": 5}, {"ph": "E", "pid": 1, "tid": 1, "ts": 8}]
    (tmp_path / "t.json").write_text(json.dumps(events))
    done = phasepoint("import", tmp_path / "t.json", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    (file,) = json.loads(done.out)["files"]
    assert (file["format"], file["events"], file["spans"], file["ignored"]) == ("chrome", 2, 1, 1)
    assert open_run(tmp_path / "run").table("accounts")["events"].to_pylist() == [1, 1]
    assert phasepoint("summary", tmp_path / "run").code == 0
