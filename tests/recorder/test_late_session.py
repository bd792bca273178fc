"""A job may begin its recording before it imports its framework."""

import subprocess
import sys

import pytest

from phasepoint.store import open_run

JOB = """
import sys
from phasepoint.recorder import record
with record(sys.argv[1], budget=None) as run:
    import torch
    weights = torch.ones(64, 64)
    for _ in run.steps(range(12)):
        weights = torch.tanh(weights @ weights)
"""


BOTH = """
import sys
import jax, torch
from phasepoint.recorder import record
with record(sys.argv[1], budget=None) as run:
    if sys.argv[2] == "torch":
        step, value = torch.tanh, torch.ones(64, 64)
    else:
        step, value = jax.jit(jax.numpy.tanh), jax.numpy.ones((64, 64))
    for _ in run.steps(range(12)):
        value = step(value)
"""


@pytest.mark.jax
@pytest.mark.torch
@pytest.mark.parametrize(("framework", "capture_format"), [("torch", "kineto"), ("jax", "xplane")])
def test_of_two_imported_frameworks_the_one_that_works_is_captured(tmp_path, framework, capture_format):
    command = [sys.executable, "-c", BOTH, str(tmp_path / "run"), framework]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    run = open_run(str(tmp_path / "run"))
    assert run.table("steps").num_rows == 12
    assert set(run.table("windows")["format"].to_pylist()) == {capture_format}


@pytest.mark.torch
def test_windows_open_when_the_framework_is_imported_later(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "run")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    run = open_run(str(tmp_path / "run"))
    assert run.table("steps").num_rows == 12
    assert set(run.table("windows")["format"].to_pylist()) == {"kineto"}
    assert "recorder-off" not in run.table("gaps")["why"].to_pylist()
