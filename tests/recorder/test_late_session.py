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
import os, sys
import jax, torch

child = os.fork()  # before either has started anything
framework = "jax" if child else "torch"
from phasepoint.recorder import record
with record(f"{sys.argv[1]}/{framework}", budget=None) as run:
    if framework == "torch":
        step, value = torch.tanh, torch.ones(64, 64)
    else:
        step, value = jax.jit(jax.numpy.tanh), jax.numpy.ones((64, 64))
    for _ in run.steps(range(12)):
        value = step(value)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Runs of two processes that have imported JAX and PyTorch; each is named by the one it uses."""
    folder = tmp_path_factory.mktemp("both")
    command = [sys.executable, "-c", BOTH, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.jax
@pytest.mark.torch
@pytest.mark.parametrize(("framework", "capture_format"), [("torch", "kineto"), ("jax", "xplane")])
def test_of_two_imported_frameworks_the_one_that_works_is_captured(both, framework, capture_format):
    run = open_run(str(both / framework))
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
