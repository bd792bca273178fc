"""A folder of per-rank traces becomes one run, whoever reads which file and whoever dies while reading."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from rank_traces import STOPPED_HOST, rank_folder, rank_trace, stopping_import_shard

from phasepoint.core.errors import SourceError, UsageError
from phasepoint.core.tables import TABLES
from phasepoint.sources.ingest import import_run as import_shards
from phasepoint.sources.ingest.import_run import import_traces
from phasepoint.stack.analyses.table import analyse
from phasepoint.store import open_run

N_RANKS = 4
COSTS = {"convert_cost_ps"}


def content(run):
    """All rows of a run, less what its making took."""
    found = {}
    for name in TABLES:
        table = open_run(run).table(name)
        found[name] = table.drop_columns(list(COSTS.intersection(table.column_names))).to_pylist()
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return rank_folder(tmp_path_factory.mktemp("ranks") / "in", N_RANKS)


@pytest.fixture(scope="module")
def sequential(ranks, tmp_path_factory):
    """The run that one process makes, file after file."""
    out = tmp_path_factory.mktemp("sequential") / "run"
    import_traces([ranks], out, workers=1)
    return out


def kill_the_stopped(place, kill):
    """Wait, aside, until a worker says that it stopped, and kill it."""
    os.mkfifo(place / "fifo")

    def wait():
        kill(**json.loads((place / "fifo").read_text()))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def assert_whole(out, sequential):
    assert content(out) == content(sequential)
    assert sorted(path.name for path in out.iterdir()) == [*(f"host={rank:05d}" for rank in range(N_RANKS)), "run.json"]
    assert not list(out.rglob(".*"))
    assert [shard.state for shard in open_run(out).shards] == ["closed"] * N_RANKS


def test_each_rank_is_a_shard(sequential):
    run = open_run(sequential)
    assert [(shard.name, shard.session.notes["imported"][-10:]) for shard in run.shards] == [
        (f"host={rank:05d}", f"job.{rank}.json") for rank in range(N_RANKS)
    ]
    busy = {row["host"]: row["busy_ps"] for row in analyse(run, "device-time").rows.to_pylist()}
    assert busy == {rank: 3 * (600 + rank) * 10**6 for rank in range(N_RANKS)}


def test_workers_make_the_same_run(ranks, sequential, tmp_path):
    said = []
    import_traces([ranks], tmp_path / "run", workers=2, progress=lambda *now: said.append(now))
    assert_whole(tmp_path / "run", sequential)
    assert said[-1] == (N_RANKS, N_RANKS)


def test_a_worker_that_is_killed_half_way_leaves_nothing(ranks, sequential, tmp_path, monkeypatch):
    monkeypatch.setattr(import_shards, "import_shard", stopping_import_shard)
    killed = []

    def kill(pid, node):
        half = list((tmp_path / "run").glob(f".staging/{STOPPED_HOST:05d}-*/host=*/spans/*.parquet"))
        killed.append((pid, len(half), (tmp_path / "run" / "run.json").exists()))
        os.kill(pid, signal.SIGKILL)

    killer = kill_the_stopped(tmp_path, kill)
    import_traces([ranks], tmp_path / "run", workers=2)
    killer.join()
    assert [row[1:] for row in killed] == [(1, False)]
    assert_whole(tmp_path / "run", sequential)


# Starting a node forks this process, into which other tests have loaded JAX; what is started is another program.
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_on_a_ray_cluster_a_machine_that_dies_half_way_leaves_nothing(ranks, sequential, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (extra `cluster`)")
    from ray_cluster import ray_cluster

    monkeypatch.setattr(import_shards, "import_shard", stopping_import_shard)
    with ray_cluster(monkeypatch) as (cluster, nodes):
        killed = []

        def kill(pid, node):
            killed.append(node)
            os.kill(pid, signal.SIGKILL)
            cluster.remove_node(nodes[node], allow_graceful=False)

        killer = kill_the_stopped(tmp_path, kill)
        import_traces([ranks], tmp_path / "run", ray_address=cluster.address)
        killer.join()
        assert killed[0] in nodes
        assert_whole(tmp_path / "run", sequential)
        table = analyse(open_run(tmp_path / "run"), "device-time", ray_address=cluster.address)
    assert table.rows.equals(analyse(open_run(sequential), "device-time", workers=1).rows)


def test_a_folder_gives_its_traces_and_names_the_rest(phasepoint_import, tmp_path):
    folder = rank_folder(tmp_path / "in", 2)
    (folder / "deep").mkdir()
    (folder / "deep" / "more").write_bytes(rank_trace(7))
    (folder / "log.txt").write_text("loss 3.2\n")
    (folder / ".hidden.json").write_bytes(rank_trace(9))
    done, run = phasepoint_import(folder)
    assert [(Path(one.path).name, one.host) for one in done.files] == [
        ("more", 7),
        ("job.0.json", 0),
        ("job.1.json", 1),
    ]
    assert [Path(one.path).name for one in done.others] == ["log.txt"]
    assert "no trace that is known" in done.others[0].reason
    assert [shard.host for shard in run.shards] == [0, 1, 7]


@pytest.fixture
def phasepoint_import(tmp_path):
    def call(*places):
        done = import_traces(places, tmp_path / "run")
        return done, open_run(tmp_path / "run")

    return call


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        (("rank3.json", "rank0.json"), [3, 0]),
        (("trace_rank_12.json.gz", "trace_rank_2.json.gz"), [12, 2]),
        (("t1v-w-3.json", "t1v-w-1.json"), [3, 1]),
        (("host_71234.1700.pt.trace.json", "host_71301.1700.pt.trace.json"), [0, 1]),
        (("node0/rank0.json", "node1/rank0.json"), [0, 1]),
        (("rank1.json", "frank7.json"), [0, 1]),
    ],
)
def test_ranks_stand_in_names_where_they_tell_files_apart(phasepoint_import, tmp_path, names, hosts):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(rank_trace(0, says_rank=False))
    done, _ = phasepoint_import(*(tmp_path / name for name in names))
    assert [one.host for one in done.files] == hosts


def test_what_a_file_says_goes_before_names(phasepoint_import, tmp_path):
    (tmp_path / "rank1.json").write_bytes(rank_trace(0))
    (tmp_path / "rank2.json").write_bytes(rank_trace(0, says_rank=False))
    (tmp_path / "rank0.json").write_bytes(rank_trace(0, says_rank=False))
    done, _ = phasepoint_import(*(tmp_path / f"rank{n}.json" for n in (1, 2, 0)))
    assert [one.host for one in done.files] == [0, 1, 2]


def test_a_rank_at_the_end_of_a_file_is_found(phasepoint_import, tmp_path):
    words = json.loads(rank_trace(5))
    words["distributedInfo"] = words.pop("distributedInfo")
    words["traceEvents"] *= 2000
    (tmp_path / "a.json").write_text(json.dumps(words))
    done, _ = phasepoint_import(tmp_path / "a.json")
    assert [one.host for one in done.files] == [5]


def test_a_trace_that_cannot_be_read_is_named_and_the_others_are_there(ranks, tmp_path):
    places = [ranks, tmp_path / "empty.json"]
    places[1].write_text('{"schemaVersion": 1, "distributedInfo": {"rank": 9}, "traceEvents": []}')
    done = import_traces(places, tmp_path / "run", workers=2)
    assert [(one.path, "no event in it is a stretch of work" in one.reason) for one in done.unread] == [
        (str(places[1]), True)
    ]
    assert [shard.host for shard in open_run(tmp_path / "run").shards] == list(range(N_RANKS))


@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_left_of_an_import_that_fails(tmp_path, there):
    (tmp_path / "empty.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    out = tmp_path / "run"
    if there:
        out.mkdir()
    with pytest.raises(SourceError, match="no event in it"):
        import_traces([tmp_path / "empty.json"], out)
    assert out.exists() == there
    assert not there or not list(out.iterdir())


def test_folders_without_a_trace(tmp_path):
    (tmp_path / "notes").write_text("nothing")
    with pytest.raises(SourceError, match=r"no trace in this folder; 1 files were looked at, such as .*notes"):
        import_traces([tmp_path], tmp_path / "run")
    with pytest.raises(UsageError, match="no file to import"):
        import_traces([], tmp_path / "run")
