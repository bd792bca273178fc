"""A corpus on disk: what is wrong with it is said; labels and noise against a slow oracle."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phasepoint.core.errors import ModelError
from phasepoint.learn.corpus.corpus import kernels_of_split, manual_split, random_split, read_corpus
from phasepoint.learn.corpus.folder import KERNEL_ROWS, ProgramHead, read_hlo, read_program, replace_rounds
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.hlo_graph.locality import LOCALITY_NAMES, place_of

pytestmark = pytest.mark.jax


@pytest.fixture
def copied(collected, tmp_path):
    """A corpus of our own to damage."""
    import shutil

    shutil.copytree(collected[0], tmp_path / "corpus")
    return tmp_path / "corpus"


def _change(file, **fields):
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_folder_without_a_corpus(tmp_path):
    with pytest.raises(ModelError, match=r"holds no corpus: corpus\.json is missing; a corpus is made by"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 2}, r"corpus\.json: version 2 of the format, this release reads 1; collect the corpus anew"),
        ({"version": None}, r"version None of the format"),
        ({"featuriser": 99}, r"featuriser version 99, this release has \d+; collect the corpus anew"),
        ({"featuriser": "x"}, r"corpus\.json is damaged"),
        ({"device": {"name": "another"}}, r"a corpus holds one device: collect each device into a folder of its own"),
    ],
)
def test_another_head_is_refused(copied, fields, message):
    _change(copied / "corpus.json", **fields)
    with pytest.raises(ModelError, match=message):
        read_corpus(copied)


@pytest.mark.parametrize("name", ["program.json", "kernels.parquet", "program.hlo.pb.gz"])
@pytest.mark.parametrize("keep", [0, 20, None])
def test_a_damaged_file_is_named_with_what_to_do(copied, name, keep):
    file = copied / "programs" / "a.softmax" / name
    if keep is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match=rf"{name} .*; delete .*a\.softmax and collect again"):
        read_corpus(copied)


def test_a_kernel_that_the_program_does_not_have(copied):
    file = copied / "programs" / "a.softmax" / "kernels.parquet"
    rows = pq.read_table(file).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**row, "kernel": "other"} for row in rows], KERNEL_ROWS), file)
    with pytest.raises(ModelError, match=r"its program has no kernel 'other' of fingerprint"):
        read_corpus(copied)


def test_nothing_measured(copied):
    for name in ("a.softmax", "b.scan"):
        _change(copied / "programs" / name / "program.json", status="failed", reason="made up")
    with pytest.raises(ModelError, match=r"holds no measured kernel \(3 programs failed\)"):
        read_corpus(copied)


def test_what_is_being_written_is_no_program(copied):
    (copied / "programs" / ".d.new.1234").mkdir()
    assert len(read_corpus(copied).programs) == 2


def test_labels_and_noise_against_an_oracle(copied):
    """Times drawn at random, five rounds: each label is found again one kernel at a time."""
    generator = np.random.default_rng(3)
    for name in ("a.softmax", "b.scan"):
        folder = copied / "programs" / name
        one = [row for row in pq.read_table(folder / "kernels.parquet").to_pylist() if row["round"] == 0]
        rows = [
            {**row, "round": number, "time_min_ps": int(least), "time_median_ps": int(least) + 1000}
            for number in range(5)
            for row in one
            for least in generator.integers(10**5, 10**8, 1)
        ]
        replace_rounds(copied, read_program(folder), pa.Table.from_pylist(rows, KERNEL_ROWS))
    corpus = read_corpus(copied)
    times: dict[tuple[str, tuple[int, int]], list[tuple[int, int]]] = {}
    for name in ("a.softmax", "b.scan"):
        folder = copied / "programs" / name
        place = {kernel.name: place_of(kernel.locality) for kernel in kernels_of_module(read_hlo(folder)).kernels}
        for row in pq.read_table(folder / "kernels.parquet").to_pylist():
            times.setdefault((row["fingerprint"], place[row["kernel"]]), []).append((row["round"], row["time_min_ps"]))
    noises = []
    for i, graph in enumerate(corpus.kernels.graphs):
        own = times.pop((graph.fingerprint, place_of(tuple(map(graph.feature, LOCALITY_NAMES)))))
        assert corpus.kernels.time_min_ps[i] == min(time for _, time in own)
        assert corpus.kernels.time_median_ps[i] == sorted(time for _, time in own)[(len(own) - 1) // 2] + 1000
        a = min(time for number, time in own if number % 2 == 0)
        b = min(time for number, time in own if number % 2 == 1)
        noises.append(abs(a - b) / min(a, b))
        assert corpus.kernels.noise_ratio[i] == pytest.approx(noises[-1])
    assert times == {}
    assert corpus.noise_floor_ratio == pytest.approx(sum(noises) / len(noises))
    long = [noise for noise, time in zip(noises, corpus.kernels.time_min_ps, strict=True) if time >= 5_000_000]
    assert corpus.noise_floor_long_ratio == pytest.approx(sum(long) / len(long))


def test_one_round_has_no_noise(copied):
    for name in ("a.softmax", "b.scan"):
        folder = copied / "programs" / name
        rows = pq.read_table(folder / "kernels.parquet")
        replace_rounds(copied, read_program(folder), rows.filter(pa.compute.equal(rows["round"], 0)))
    corpus = read_corpus(copied)
    assert math.isnan(corpus.noise_floor_ratio)
    assert np.isnan(corpus.kernels.noise_ratio).all()


class _Programs:
    """As much of a corpus as the splits look at."""

    path = "made-up"

    def __init__(self, families, kernels, fingerprints=None):
        self.programs = [ProgramHead(f"p{i}", family, "", "", "") for i, family in enumerate(families)]
        names = fingerprints or [str(row) for row in range(len(kernels))]
        graphs = tuple(type("Graph", (), {"fingerprint": name}) for name in names)
        self.kernels = type("Kernels", (), {"programs": kernels, "graphs": graphs})


def test_a_random_split_is_by_program_and_seed():
    corpus = _Programs(["a"] * 50, ())
    split = random_split(corpus, seed=1)
    assert (len(split.train), len(split.calibrate), len(split.test)) == (35, 5, 10)
    assert sorted(split.train + split.calibrate + split.test) == list(range(50))
    assert split == random_split(corpus, seed=1) != random_split(corpus, seed=2)


def test_a_manual_split_holds_whole_families_out():
    from phasepoint.zoo import MANUAL_TEST_FAMILIES

    families = ["mlp", MANUAL_TEST_FAMILIES[0], "resnet", MANUAL_TEST_FAMILIES[1]] * 5
    split = manual_split(_Programs(families, ()))
    assert split.test == tuple(range(1, 20, 2))
    assert (len(split.train), len(split.calibrate)) == (8, 2)


def test_a_kernel_of_a_training_program_tests_nothing():
    from phasepoint.learn.corpus.corpus import Split

    corpus = _Programs("abc", ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)))
    train, calibrate, test = kernels_of_split(corpus, Split((0,), (1,), (2,)))
    assert (train.tolist(), calibrate.tolist(), test.tolist()) == ([0, 3, 5], [1, 4], [2])


def test_a_kernel_of_a_training_program_tests_nothing_in_another_place():
    from phasepoint.learn.corpus.corpus import Split

    corpus = _Programs("abc", ((0,), (2,), (2,)), ["same", "same", "other"])
    train, calibrate, test = kernels_of_split(corpus, Split((0,), (1,), (2,)))
    assert (train.tolist(), calibrate.tolist(), test.tolist()) == ([0, 1], [], [2])


def test_too_few_programs_are_refused():
    with pytest.raises(ModelError, match=r"2 programs leave none to train; collect more programs"):
        random_split(_Programs("ab", ()))
    with pytest.raises(ModelError, match=r"leave none to test"):
        manual_split(_Programs("abc", ()))
