"""Every process finds a shard of its own: by rank where one is known, else the first number that is free."""

import pytest

from phasepoint.core.errors import ShardBusyError
from phasepoint.recorder.process.identity import known_rank, open_ranked_shard, rank
from phasepoint.store import create_run, open_run


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
