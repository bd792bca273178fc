"""The checkpoint index: which checkpoints a run wrote, in which phase, and what is left of them."""

import pickle

import msgspec
import numpy as np
import pytest

from phasepoint.core.tables import table_from_columns, table_from_rows
from phasepoint.replay.checkpoints import index_checkpoints
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run

MS = 10**9
EPOCH_NS = 1_700_000_000 * 10**9


def write_run(folder, rows, *, steps=400, hosts=1, attempts=1):
    """A run of short and long steps in turn (200 of 10 ms, 200 of 50 ms) and checkpoints `rows[(host, attempt)]`."""
    path = create_run(folder / "run", command=["python", "train.py"], created_unix_ns=EPOCH_NS)
    rng = np.random.default_rng(0)
    dur = np.asarray(
        np.where(np.arange(steps) < steps // 2, 10, 50) * MS * np.exp(0.02 * rng.normal(size=steps)), np.int64
    )
    columns = {"step": np.arange(steps), "start_ps": np.cumsum(dur) - dur, "dur_ps": dur}
    for host in range(hosts):
        for attempt in range(attempts):
            now_ns = EPOCH_NS + attempt * 3600 * 10**9
            writer = open_shard(path, host, epoch_unix_ns=now_ns)
            writer.append("steps", table_from_columns("steps", columns))
            some = rows.get((host, attempt), []) if isinstance(rows, dict) else rows
            writer.append("checkpoints", table_from_rows("checkpoints", some))
            writer.close("ok" if attempt == attempts - 1 else "failed")
    return path


def wrote(path, step, *, framework="user", start_ms=0, **more):
    return {
        "step": step,
        "path": str(path),
        "start_ps": start_ms * MS,
        "dur_ps": 7 * MS,
        "framework": framework,
        **more,
    }


def index_of(path):
    return index_checkpoints(analyse_run(open_run(path)))


def test_a_checkpoint_has_the_phase_of_its_step_and_what_was_noted(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"12345")
    rows = [
        wrote(tmp_path / "a", 50, start_ms=600, iterator_state='{"at": 51}'),
        wrote(tmp_path / "b", 300, start_ms=9000),
        wrote(tmp_path / "a2", None, start_ms=0),
    ]
    index = index_of(write_run(tmp_path, rows))
    first, second, third = index.checkpoints
    assert (first.step, first.phase, first.state) == (None, None, "missing")
    assert first.problem == "it is not there any more"
    assert (second.step, second.start_ps, second.dur_ps, second.size_bytes) == (50, 600 * MS, 7 * MS, 5)
    assert second.iterator_state == '{"at": 51}'
    assert (second.state, second.format) == ("unknown", "other")
    analysis = analyse_run(open_run(index.run))
    assert second.phase == analysis.names[int(analysis.labels[50])]
    assert third.phase == analysis.names[int(analysis.labels[300])]
    assert second.phase != third.phase


def test_a_path_written_again_holds_the_last_write_alone(tmp_path):
    (tmp_path / "last.pt").write_bytes(b"12345")
    rows = [wrote(tmp_path / "last.pt", step, start_ms=10 * step) for step in (10, 20, 30)]
    states = [(one.step, one.state, one.problem) for one in index_of(write_run(tmp_path, rows)).checkpoints]
    assert states[:2] == [
        (10, "missing", "overwritten: the same path was written again in step 30"),
        (20, "missing", "overwritten: the same path was written again in step 30"),
    ]
    assert states[2][:2] == (30, "unknown")


def test_files_saved_into_one_folder_in_one_step_are_one_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    rows = []
    for step in (50, 300):
        folder = tmp_path / f"step_{step}"
        folder.mkdir()
        (folder / "notes.txt").write_text("the job's own")
        for name, state in (("model", model), ("optim", torch.optim.Adam(model.parameters()))):
            torch.save(state.state_dict(), folder / f"{name}.pt")
            size = (folder / f"{name}.pt").stat().st_size
            rows.append(wrote(folder / f"{name}.pt", step, framework="torch", start_ms=len(rows) * 600, bytes=size))
    found = index_of(write_run(tmp_path, rows)).checkpoints
    assert [(one.step, one.path, one.state, one.format) for one in found] == [
        (step, str(tmp_path / f"step_{step}"), "whole", "files") for step in (50, 300)
    ]
    assert [(one.has_model, one.has_optimizer, one.has_prng) for one in found] == [(True, True, False)] * 2
    assert [one.dur_ps for one in found] == [607 * MS] * 2


def test_a_path_that_several_hosts_write_together_is_not_overwritten(tmp_path):
    (tmp_path / "shared").write_bytes(b"12345")
    rows = {
        (host, 0): [wrote(tmp_path / "shared", 10, start_ms=100 + host), wrote(tmp_path / "shared", 20, start_ms=200)]
        for host in (0, 1)
    }
    found = {(one.host, one.step): one.state for one in index_of(write_run(tmp_path, rows, hosts=2)).checkpoints}
    assert found == {(0, 10): "missing", (1, 10): "missing", (0, 20): "unknown", (1, 20): "unknown"}


def test_an_attempt_overwrites_what_the_one_before_wrote_in_the_same_step(tmp_path):
    (tmp_path / "c").write_bytes(b"12345")
    rows = {(0, attempt): [wrote(tmp_path / "c", 10, start_ms=100)] for attempt in (0, 1)}
    found = [(one.attempt, one.state) for one in index_of(write_run(tmp_path, rows, attempts=2)).checkpoints]
    assert found == [(0, "missing"), (1, "unknown")]


def test_a_missing_path_of_another_machine_is_not_known(tmp_path):
    path = write_run(tmp_path, [wrote(tmp_path / "gone", 10), wrote("relative/gone", 20, start_ms=5)])
    session = tmp_path / "run" / "host=00000" / "session.json"
    document = msgspec.json.decode(session.read_bytes())
    document["owner"]["hostname"] = "node-17"
    session.write_bytes(msgspec.json.encode(document))
    first, second = index_of(path).checkpoints
    assert (first.state, first.problem) == ("unknown", "not found here; it was written on the machine node-17")
    assert second.state == "unknown"
    assert "relative to the folder of the job" in second.problem


def test_an_empty_file_is_incomplete_and_a_place_that_cannot_be_opened_is_unknown(tmp_path):
    (tmp_path / "empty").touch()
    rows = [wrote(tmp_path / "empty", 1), wrote("nosuch://bucket/ckpt", 2, start_ms=5)]
    first, second = index_of(write_run(tmp_path, rows)).checkpoints
    assert (first.state, first.problem) == ("incomplete", "it is empty")
    assert second.state == "unknown"
    assert second.problem.startswith("it cannot be looked at: nosuch://bucket/ckpt")


def test_a_file_of_another_size_was_written_by_somebody_else(tmp_path):
    rows = [wrote(tmp_path / "a", 1, framework="torch")]
    rows += [wrote(tmp_path / "b", 2, framework="torch", start_ms=5, bytes=6_000)]
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(pickle.dumps({"model": name}))
    size_bytes = (tmp_path / "a").stat().st_size
    rows[0]["bytes"] = size_bytes
    first, second = index_of(write_run(tmp_path, rows)).checkpoints
    assert (first.state, first.size_bytes) == ("whole", size_bytes)
    assert (second.state, second.problem) == (
        "missing",
        f"overwritten: it has {size_bytes} bytes; when this run had written it, 6,000",
    )


def test_a_bucket_that_does_not_answer_is_asked_once(tmp_path, monkeypatch):
    asked = []

    def refuse(path):
        asked.append(path)
        raise OSError("no network")

    monkeypatch.setattr("phasepoint.checkpoints.formats.open_place", refuse)
    rows = [wrote(f"gs://bucket/{step}", step, start_ms=step) for step in (1, 2, 3)]
    found = index_of(write_run(tmp_path, [*rows, wrote("s3://other/4", 4, start_ms=4)])).checkpoints
    assert asked == ["gs://bucket/1", "s3://other/4"]
    assert {(one.state, one.problem) for one in found} == {("unknown", "it cannot be looked at: no network")}


@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_without_checkpoints_or_steps(tmp_path, steps):
    assert index_of(write_run(tmp_path, [], steps=steps)).checkpoints == ()
