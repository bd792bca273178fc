"""Every process finds a shard of its own: by rank where one is known, else the first number that is free."""

import json
import time
from pathlib import Path

import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record

from phasepoint.core.errors import ShardBusyError
from phasepoint.recorder.process.identity import known_rank, open_ranked_shard, rank
from phasepoint.store import create_run, open_run, open_shard


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"RANK": "3", "SLURM_PROCID": "5"}, 3),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"PMIX_RANK": "7"}, 7),
        ({"PMI_RANK": "1"}, 1),
        ({"RANK": "", "PMI_RANK": "1"}, 1),
        ({"RANK": "-1"}, None),
        ({"RANK": "two"}, None),
        ({"RANK": "²"}, None),
    ],
)
def test_rank_from_the_launchers_environment(environ, expected):
    assert known_rank(environ) == expected
    assert rank(environ) == (expected or 0)


def test_several_processes_without_a_rank_take_the_free_numbers(tmp_path):
    run = create_run(tmp_path / "run")
    writers = [open_ranked_shard(run, environ={}, epoch_unix_ns=number) for number in (1, 2, 3)]
    assert [writer.session.host for writer in writers] == [0, 1, 2]
    writers[1].close()
    late = open_ranked_shard(run, environ={}, epoch_unix_ns=4)
    assert (late.session.host, late.session.attempt) == (3, 0)
    for writer in (writers[0], writers[2], late):
        writer.close()
    assert [shard.name for shard in open_run(run).shards] == ["host=00000", "host=00001", "host=00002", "host=00003"]


def test_processes_without_a_rank_that_start_again_take_their_numbers_again(tmp_path):
    run = create_run(tmp_path / "run")
    for started in (1, 3):
        writers = [open_ranked_shard(run, environ={}, epoch_unix_ns=started + number) for number in (0, 1)]
        for writer in writers:
            writer.close("failed")
    assert [(w.session.host, w.session.attempt) for w in writers] == [(0, 1), (1, 1)]


def test_a_sibling_of_the_same_launch_that_has_ended_keeps_its_number(tmp_path):
    run = create_run(tmp_path / "run")
    hosts = []
    for launch in ("a", "a", "b"):
        writer = open_ranked_shard(
            run, environ={"PHASEPOINT_LAUNCH": launch}, epoch_unix_ns=len(hosts), notes={"k": "v"}
        )
        hosts.append((writer.session.host, writer.session.attempt))
        assert writer.session.notes == {"k": "v", "launch": launch}
        writer.close()
    assert hosts == [(0, 0), (1, 0), (0, 1)]


def test_a_known_rank_is_never_given_away(tmp_path):
    run = create_run(tmp_path / "run")
    writer = open_ranked_shard(run, environ={"RANK": "4"}, epoch_unix_ns=1)
    with pytest.raises(ShardBusyError, match=r"rank 4"):
        open_ranked_shard(run, environ={"RANK": "4"}, epoch_unix_ns=2)
    writer.close()


@pytest.fixture
def elsewhere(tmp_path):
    """A run whose only shard was written until a moment ago, on another machine; gives its path and its heartbeat."""
    path = create_run(tmp_path / "requeued")
    open_shard(path, 0, epoch_unix_ns=time.time_ns()).flush()
    session = Path(path) / "host=00000" / "session.json"
    text = json.loads(session.read_text())
    text["owner"] |= {"machine": "another", "hostname": "node7"}
    session.write_text(json.dumps(text))
    return path, Path(path) / "host=00000" / "heartbeat.json"


def record_elsewhere(path, beat=None, *, seconds):
    """A job of steps of 10 ms that goes on elsewhere; `beat` is called at every step."""
    clock = FakeClock()
    with fake_record(path, clock, FakeSession(clock), budget=0) as run:
        for index, _ in enumerate(run.steps(range(100 * seconds))):
            clock.tick(10)
            if beat is not None:
                beat(index)
            StillFlusher.made.round()
    return run


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("seconds", [3, 59, 100])
def test_a_job_that_was_killed_and_goes_on_on_another_machine_is_recorded_whole(elsewhere, seconds, capsys):
    path, _ = elsewhere
    run = record_elsewhere(path, seconds=seconds)
    assert run.off_reason is None
    found = open_run(path)
    assert [shard.name for shard in found.shards] == ["host=00000", "host=00000.1"]
    steps = found.table("steps")
    assert steps["step"].to_pylist() == list(range(100 * seconds))
    assert set(steps["attempt"].to_pylist()) == {1}
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("still")
def test_steps_beyond_the_ring_wait_in_memory_until_the_shard_is_open(elsewhere):
    path, _ = elsewhere
    clock = FakeClock()
    with fake_record(path, clock, FakeSession(clock), budget=0) as run:
        for _ in run.steps(range(80_000)):
            clock.tick(1)
            StillFlusher.made.round()
    assert open_run(path).table("steps").column("step").to_pylist() == list(range(80_000))


@pytest.mark.usefixtures("still")
def test_a_job_beside_one_that_lives_elsewhere_says_so_and_leaves_it_alone(elsewhere, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    path, heartbeat = elsewhere
    run = record_elsewhere(
        path, lambda index: heartbeat.write_text(json.dumps({"unix_ns": time.time_ns()})), seconds=30
    )
    assert "node7 is writing rank 0" in run.off_reason
    assert [shard.name for shard in open_run(path).shards] == ["host=00000"]
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "record into another directory" in err
