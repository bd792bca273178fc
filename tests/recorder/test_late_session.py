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
