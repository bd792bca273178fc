"""`phasepoint learn`, `learn train`, `learn evaluate`: documents, and what they say to wrong input."""

import json

import numpy as np
import pytest

from phasepoint.learn.models.model_file import StoredModel, builtin_models, write_model
from phasepoint.learn.tasks import TASKS


def test_models_and_tasks_are_listed(phasepoint):
    outcome = phasepoint("learn", "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["version"], found["kind"]) == (0, 1, "learn")
    assert [model["name"] for model in found["models"]] == list(builtin_models())
    assert [task["name"] for task in found["tasks"]] == [task.name for task in TASKS]


@pytest.mark.parametrize("command", [("train", "folder", "--out", "model"), ("evaluate", "builtin", "folder")])
def test_an_unknown_task_is_refused(phasepoint, command):
    outcome = phasepoint("learn", *command, "--task", "nothing")
    assert outcome.code == 2
    assert "there is no task 'nothing'; there are runtime, rank, gpu_ops" in outcome.err


def test_a_model_that_is_there_is_not_trained_over(phasepoint, tmp_path):
    write_model(StoredModel("m", "kernels", {"w": np.zeros(1)}), tmp_path / "m")
    outcome = phasepoint("learn", "train", str(tmp_path / "none"), "--task", "gpu_ops", "--out", str(tmp_path / "m"))
    assert outcome.code == 12
    assert "--force" in outcome.err


def test_a_folder_without_a_model_is_refused(phasepoint, tmp_path):
    outcome = phasepoint("learn", "evaluate", str(tmp_path), str(tmp_path), "--task", "gpu_ops")
    assert outcome.code == 18
    assert "card.json is missing" in outcome.err


def test_a_model_that_did_not_come_with_the_package_is_refused(phasepoint, tmp_path):
    outcome = phasepoint("learn", "evaluate", "builtin:nothing", str(tmp_path), "--task", "gpu_ops")
    assert outcome.code == 18
    assert "no model called 'nothing' came with the package" in outcome.err
