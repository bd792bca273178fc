from dataclasses import replace

import numpy as np
import pytest
from made_kernels import made_corpus

from phasepoint.core.errors import ModelError
from phasepoint.learn.corpus.corpus import kernels_of_split, random_split
from phasepoint.learn.kernels import task as kernel_tasks
from phasepoint.learn.kernels.fit import FitSettings
from phasepoint.learn.kernels.task import Overhead, fit_overhead, program_times

TREES = FitSettings(members=0, tree_rounds=150)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def result(corpus):
    return kernel_tasks.evaluate_split(corpus, random_split(corpus, seed=1), seed=1, settings=TREES)


def test_rows_of_a_split(corpus, result):
    rows = {row.group: row for row in result.rows}
    *_, test = kernels_of_split(corpus, random_split(corpus, seed=1))
    long = int((corpus.kernels.time_min_ps[test] >= 5_000_000).sum())
    assert rows["kernels ≥ 5 µs"].n == rows["analytic: kernels ≥ 5 µs"].n == rows["loop-fusion"].n == long
    assert rows["kernels < 5 µs"].n == len(test) - long
    assert rows["kernels ≥ 5 µs"].mape < 0.08 < rows["analytic: kernels ≥ 5 µs"].mape
    assert rows["kernels ≥ 5 µs"].tau > 0.95
    assert rows["programs"].n == 8
    assert rows["programs"].mape < 0.05
    assert rows["analytic: programs"].n == 8
    assert rows["kernels ≥ 5 µs, order within a program"].tau > 0.9
    assert 0.7 < result.coverage <= 1.0


def test_the_card_says_what_it_must(corpus, result):
    card = result.model.card
    assert card["device"] == {"name": "made", "kind": "cpu", "cores": 1}
    assert card["corpus"]["programs"] == 40
    assert card["corpus"]["test"] == {"programs": 8, "kernels": 80}
    assert card["noise_floor_ratio"] == 0.02
    assert card["seed"] == 1
    assert {"featuriser", "date", "versions", "errors", "overhead"} <= card.keys()


def test_an_evaluation_leaves_out_what_was_trained_on(corpus, result, monkeypatch):
    monkeypatch.setattr(kernel_tasks, "read_corpus", lambda folder, **_: corpus)
    told = kernel_tasks.evaluate(result.model, "corpus")
    learn, *_ = kernels_of_split(corpus, random_split(corpus, seed=1))
    rest = np.setdiff1d(np.arange(400), learn)
    assert told.rows[0].group == "kernels ≥ 5 µs"
    assert told.rows[0].n == int((corpus.kernels.time_min_ps[rest] >= 5_000_000).sum())
    assert f"trained on {len(learn)} of these 400 kernels" in told.notes[0]
    assert "noise floor of the labels of kernels ≥ 5 µs: 2.0%" in told.notes


def test_a_model_of_another_featuriser_is_refused(corpus, result, monkeypatch):
    monkeypatch.setattr(kernel_tasks, "read_corpus", lambda folder, **_: corpus)
    old = replace(result.model, card={**result.model.card, "featuriser": 0})
    with pytest.raises(ModelError, match="version 0, this release has"):
        kernel_tasks.evaluate(old, "corpus")


def test_a_folder_that_is_no_corpus(tmp_path):
    with pytest.raises(ModelError, match="corpus"):
        kernel_tasks.train(tmp_path)


def test_what_lies_between_kernels_is_found_again(corpus):
    time_ps = corpus.kernels.time_min_ps.astype(np.float64)
    overhead = fit_overhead(corpus.programs, time_ps)
    assert overhead.launch_ps == pytest.approx(200_000, rel=1e-3)
    assert overhead.program_ps == pytest.approx(3_000_000, rel=1e-3)
    told, walls = program_times(corpus.programs, time_ps, overhead)
    np.testing.assert_allclose(told, walls, rtol=1e-6)


def test_programs_without_a_wall_time_teach_nothing(corpus):
    bare = [replace(program, wall_min_ps=None) for program in corpus.programs]
    assert fit_overhead(bare, corpus.kernels.time_min_ps.astype(np.float64)) == Overhead(0.0, 0.0)
