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
    from phasepoint.learn.corpus import read_corpus

    corpus = read_corpus(collected[0])
    softmax, scan = corpus.programs
    assert (softmax.name, scan.family) == ("a.softmax", "b")
    assert set(softmax.executions.tolist()) == {1}
    assert set(scan.executions.tolist()) == {1, 5}
    for program in corpus.programs:
        kernels_ps = int((program.measured_ps * program.executions).sum())
        assert 0 < kernels_ps < 2 * program.wall_median_ps
