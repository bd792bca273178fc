"""Collecting, from the programs of a file to a corpus that is read."""

import json

import pytest

pytestmark = pytest.mark.jax


def test_what_fails_is_kept_with_its_reason(collected):
    folder, found = collected
    assert (found.programs, found.measured, found.already) == (3, 2, 0)
    (failure,) = found.failed
    assert failure.name == "c.broken"
    stored = json.loads((folder / "programs" / "c.broken" / "program.json").read_text())
    assert (stored["status"], stored["mode"], stored["reason"]) == ("failed", "train", failure.reason)
    assert "contracting dimensions" in failure.reason


def test_a_loops_kernels_run_as_often_as_the_loop(collected):
    from phasepoint.learn.corpus.corpus import read_corpus

    corpus = read_corpus(collected[0])
    softmax, scan = corpus.programs
    assert (softmax.name, scan.family) == ("a.softmax", "b")
    assert set(softmax.executions.tolist()) == {1}
    assert set(scan.executions.tolist()) == {1, 5}
    for program in corpus.programs:
        kernels_ps = int((program.measured_ps * program.executions).sum())
        assert 0 < kernels_ps < 2 * program.wall_median_ps


def test_what_is_there_is_not_measured_again_and_rounds_are_added(collected, names, tmp_path):
    import shutil

    import pyarrow.parquet as pq

    from phasepoint.learn.corpus.collect import collect

    folder = tmp_path / "corpus"
    shutil.copytree(collected[0], folder)
    shutil.rmtree(folder / "programs" / "b.scan")  # as if broken off before it
    kernels = folder / "programs" / "a.softmax" / "kernels.parquet"
    before, bytes_before = pq.read_table(kernels).to_pylist(), kernels.read_bytes()

    again = collect(folder, names, rounds=2, repeats=3)
    assert (again.measured, again.already, again.failed) == (1, 2, ())
    assert kernels.read_bytes() == bytes_before

    more = collect(folder, names, rounds=3, repeats=3)
    assert (more.measured, more.already) == (2, 1)
    after = pq.read_table(kernels).to_pylist()
    assert after[: len(before)] == before
    assert {row["round"] for row in after[len(before) :]} == {2}
    assert json.loads((folder / "programs" / "a.softmax" / "program.json").read_text())["runs"] == 9


def test_a_program_that_kills_its_process_does_not_end_the_collection(crashing_file, tmp_path):
    from phasepoint.learn.corpus.collect import collect, names_in_file
    from phasepoint.learn.corpus.corpus import read_corpus

    found = collect(tmp_path / "corpus", names_in_file(crashing_file), rounds=1, repeats=3)
    (failure,) = found.failed
    assert (failure.name, found.measured) == ("crash", 1)
    assert failure.reason == "the process was killed by SIGKILL while compiling"
    corpus = read_corpus(tmp_path / "corpus")
    assert [program.name for program in corpus.programs] == ["whole"]
    assert corpus.notes == ("1 programs failed and are left out; their program.json says why",)


def test_another_device_or_jax_goes_into_another_corpus(collected, names, tmp_path):
    import shutil

    from phasepoint.core.errors import ModelError
    from phasepoint.learn.corpus.collect import collect

    folder = tmp_path / "corpus"
    shutil.copytree(collected[0], folder)
    head = json.loads((folder / "corpus.json").read_text())
    head["versions"]["jax"] = "0.1"
    (folder / "corpus.json").write_text(json.dumps(head))
    with pytest.raises(ModelError, match=r"was collected with jax '0\.1', here it is .*: give --out a folder"):
        collect(folder, names, rounds=2)


def test_the_span_cost_is_taken_off_down_to_the_resolution():
    import numpy as np

    from phasepoint.learn.corpus.measure import RESOLUTION_PS, SpanCost

    times_ps = np.array([10_000, 210_000, 400_000], np.int64)
    assert SpanCost(200_000).taken_off(times_ps).tolist() == [RESOLUTION_PS, RESOLUTION_PS, 200_000]
    assert SpanCost().taken_off(times_ps).tolist() == times_ps.tolist()


def test_times_are_averaged_within_a_run_and_by_instruction():
    from phasepoint.core.tables import table_from_rows
    from phasepoint.learn.corpus.measure import times_of_ops

    def row(step, op, count, self_ps):
        fixed = {"window": 0, "device": "cpu:0", "program": 1, "level": "op", "category": "compute"}
        return {**fixed, "step": step, "op": op, "count": count, "total_ps": self_ps, "self_ps": self_ps}

    ops = table_from_rows("ops", [row(0, "dot", 2, 100), row(1, "dot", 2, 61), row(1, "copy", 1, 7)])
    times_ps, executions = times_of_ops(ops)
    assert {name: times.tolist() for name, times in times_ps.items()} == {"dot": [50, 31], "copy": [7]}
    assert executions == {"dot": 2, "copy": 1}


def test_a_core_is_claimed_once():
    from phasepoint.learn.corpus.child import claim_core

    with claim_core((901, 902)) as first, claim_core((901, 902)) as second:
        assert {first, second} == {901, 902}
    with claim_core((901,)) as again:
        assert again == 901
    with claim_core(()) as none:
        assert none is None


def test_workers_fill_one_corpus(names, tmp_path):
    from phasepoint.learn.corpus.collect import collect

    found = collect(tmp_path / "corpus", names[:2], rounds=1, repeats=3, batch=1, workers=2)
    _two_programs(found, tmp_path / "corpus")


# Starting a node forks this process, into which other tests have loaded JAX; what is started is another program.
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_machines_of_a_ray_cluster_fill_one_corpus(names, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (extra `cluster`)")
    from phasepoint.learn.corpus.collect import collect
    from ray_cluster import ray_cluster

    with ray_cluster(monkeypatch) as (cluster, _nodes):
        found = collect(tmp_path / "corpus", names[:2], rounds=1, repeats=3, batch=1, ray_address=cluster.address)
    _two_programs(found, tmp_path / "corpus")


def _two_programs(found, folder):
    from phasepoint.learn.corpus.corpus import read_corpus

    assert (found.measured, found.failed) == (2, ())
    assert [program.name for program in read_corpus(folder).programs] == ["a.softmax", "b.scan"]
