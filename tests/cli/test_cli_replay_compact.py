"""`phasepoint replay compact`: its document, and what it says to wrong input."""

import json

import pytest
from made_run import WINDOW_STEPS, WINDOWS, step_rows

from phasepoint.core.units import PS_PER_S
from phasepoint.store import create_run

CONTRACT = ("version", "steps_used", "steps_total", "estimate_s", "low_s", "high_s", "actual_s", "by_category")


def test_the_document_keeps_its_contract(phasepoint, run_path):
    outcome = phasepoint("replay", "compact", run_path, "--budget", "50%", "--json")
    found = json.loads(outcome.out)
    assert outcome.code == 0
    assert found["kind"] == "replay compact"
    assert found["version"] == 1
    assert set(CONTRACT) <= set(found)
    assert (found["steps_used"], found["steps_total"]) == (100, 200)
    actual_ps = sum(row["dur_ps"] for row in step_rows())
    assert found["actual_ps"] == actual_ps
    assert found["actual_s"] == actual_ps / PS_PER_S
    assert found["low_s"] <= found["estimate_s"] <= found["high_s"]
    for part in found["by_category"]:
        assert {"category", "estimate_s", "low_s", "high_s"} <= set(part)
    assert sum(part["estimate_ps"] for part in found["by_category"]) == found["estimate_ps"]
    assert sum(part["estimate_ps"] for part in found["by_phase"]) == found["estimate_ps"]
    captured = [window for window in found["windows"] if window["captured"]]
    steps = {(w["first_step"] + i) for w in captured for i in range(w["last_step"] - w["first_step"] + 1)}
    assert steps == {first + i for first in WINDOWS for i in range(WINDOW_STEPS)}


def test_percent_and_ratio_are_one(phasepoint, run_path):
    percent, ratio = (phasepoint("replay", "compact", run_path, "--budget", text, "--json") for text in ("20%", "0.2"))
    assert percent.out == ratio.out


def test_another_seed_chooses_other_steps(phasepoint, run_path):
    found = [
        json.loads(phasepoint("replay", "compact", run_path, "--seed", seed, "--budget", "30%", "--json").out)
        for seed in (0, 0, 1)
    ]
    assert found[0] == found[1]
    assert found[0]["windows"] != found[2]["windows"]


def test_the_terminal_shows_whole_categories_and_windows(phasepoint, run_path):
    outcome = phasepoint("replay", "compact", run_path, "--budget", "50%")
    assert outcome.code == 0
    for word in ("100 of 200 steps (50.0 %)", "compute", "stands for", "outside steps"):
        assert word in outcome.out


@pytest.mark.parametrize("text", ["0", "-1%", "101%", "much", "nan", "5"])
def test_a_budget_that_is_none_is_refused(phasepoint, run_path, text):
    outcome = phasepoint("replay", "compact", run_path, f"--budget={text}")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"--budget {text}: expected a share " in outcome.err


def test_a_budget_below_one_step_says_what_is_needed(phasepoint, run_path):
    outcome = phasepoint("replay", "compact", run_path, "--budget", "0.4%")
    assert outcome.code == 2
    assert "0.4 % of 200 steps is less than one step; give at least 0.5 %" in outcome.err


def test_a_run_without_steps_is_refused(phasepoint, tmp_path):
    create_run(tmp_path / "empty", command=("python", "train.py"), frameworks={}, devices=("cpu",))
    outcome = phasepoint("replay", "compact", tmp_path / "empty")
    assert outcome.code == 9
    assert "no steps were recorded" in outcome.err


def test_no_run_at_the_path(phasepoint, tmp_path):
    assert phasepoint("replay", "compact", tmp_path / "nothing").code == 4
