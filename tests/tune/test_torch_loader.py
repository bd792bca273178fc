"""The cases of a tuned PyTorch loader, in processes that have never imported JAX: forking one that has may deadlock."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.torch
@pytest.mark.parametrize(
    "cases",
    [
        "torch_loader_cases.py",
        "torch_epoch_cases.py",
        pytest.param("torch_cache_cases.py", marks=pytest.mark.alone),
    ],
)
def test_every_case_of_a_tuned_loader_holds(cases):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command.append(str(Path(__file__).with_name(cases)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E   "))]
    assert done.returncode == 0, "\n".join(failed[-100:])
    assert " failed" not in done.stdout
