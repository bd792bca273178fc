"""`phasepoint replay estimate`: the answer, the JSON contract, bad input."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "replay"))  # change_runs.py
from change_runs import MS, usual_job, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A job at 20 ms a step, a replay at 15, a baseline at 20, and one whose steps scatter."""
    folder = tmp_path_factory.mktemp("estimate")
    write_run(folder / "job", usual_job(), outside_ps=100 * MS)
    for name, ms in (("fast", 15), ("base", 20)):
        write_run(folder / name, np.full(60, ms * MS), first_step=100, record={})
    write_run(folder / "noisy", MS * np.random.default_rng(0).integers(14, 27, 60), first_step=100, record={})
    return folder


def text(done):
    return " ".join(done.out.split())


def test_the_answer_comes_first(phasepoint, runs):
    done = phasepoint("replay", "estimate", runs / "job", "--change", runs / "fast", "--price-per-hour", "3.90")
    assert done.code == 0
    first, second = done.out.splitlines()[:2]
    assert first == "The run would take 7.20 s instead of 9.50 s (7.20 s to 7.20 s, 95 %)."
    assert second == "It saves 2.30 s (24.2 %), 2.30 s to 2.30 s."
    assert "host-hours: 0.002639 → 0.002 (1 × the run's time)" in text(done)
    assert "at 3.90 an hour for each host; saved 0.00" in text(done)
    assert "exchanged: train, 460 steps" in text(done)
    assert "step: 20.0 ms → 15.0 ms, × 0.750 (0.750 to 0.750, 95 %)" in text(done)
    assert "kept as it was: eval 200 ms, outside steps 100 ms" in text(done)
    assert "note: no --baseline replay" in done.err


def test_an_interval_that_holds_no_change_is_said(phasepoint, runs):
    done = phasepoint("replay", "estimate", runs / "job", "--change", runs / "noisy", "--baseline", runs / "base")
    assert "the interval holds no change at all" in text(done)
    assert "machine: a step of the baseline took × 1.000 of the original's" in text(done)


def test_json_keeps_the_contract(phasepoint, runs):
    words = ("--change", runs / "fast", "--batch", "32:64", "--devices", "8", "--json")
    document = json.loads(phasepoint("replay", "estimate", runs / "job", *words).out)
    assert (document["version"], document["kind"], document["hosts"]) == (1, "replay estimate", 1)
    assert document["before_ps"] == 9500 * MS
    assert document["after"]["value_ps"] == 9500 * MS - 460 * 20 * MS + 230 * 15 * MS
    (one,) = document["exchanges"]
    assert (one["phases"], one["steps_ratio"], one["ratio"]) == (["train"], 0.5, 0.75)
    assert document["cost"]["unit"] == "device-hours"
    assert document["cost"]["before"] == pytest.approx(8 * 9.5 / 3600)


def test_without_a_change_it_is_the_run_itself(phasepoint, runs):
    done = phasepoint("replay", "estimate", runs / "job")
    assert done.code == 0
    assert done.out.startswith("The run takes 9.50 s, 9.40 s of it in steps.")
    assert "Its representatives, 25 of 500 steps, say 9.40 s in steps" in text(done)
    assert "host-hours: 0.002639" in done.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--change", "missing"), 4, "no such directory"),
        (("--change", "job2"), 9, "none in common, so it is no replay of that run"),
        (("--baseline", "base"), 2, "--baseline needs --change"),
        (("--change", "fast", "--like", "x"), 2, "no phase 'x'; its phases"),
        (("--change", "fast", "--batch", "32"), 2, "--batch 32: expected two sizes, old:new, such as 32:64"),
        (("--change", "fast", "--batch", "0:4"), 2, "--batch 0:4: expected two sizes"),
        (("--price-per-hour=-1",), 2, "price per hour -1: expected 0 or more"),
        (("--devices", "0"), 2, "0 devices: expected 1 or more"),
        (("--method", "guess"), 2, "no phase method named 'guess'"),
    ],
)
def test_bad_input(phasepoint, runs, words, code, message):
    if not (runs / "job2").exists():
        write_run(runs / "job2", np.full(9, MS), first_step=9000)
    places = [runs / word if word in {"missing", "job2", "base", "fast"} else word for word in words]
    done = phasepoint("replay", "estimate", runs / "job", *places)
    assert done.code == code
    assert message in " ".join(done.err.split())
