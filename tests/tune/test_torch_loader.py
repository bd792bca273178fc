"""The cases of a tuned PyTorch loader, in processes that have never imported JAX: forking one that has may deadlock."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("cases", "these"),
    [
        ("torch_loader_cases.py", "worker_that_fails"),
        ("torch_loader_cases.py", "not worker_that_fails and not random_numbers"),
        ("torch_loader_cases.py", "random_numbers"),
        ("torch_epoch_cases.py", "fault"),
        ("torch_epoch_cases.py", "not fault"),
        pytest.param("torch_cache_cases.py", "test", marks=pytest.mark.alone),
    ],
)
def test_every_case_of_a_tuned_loader_holds(cases, these):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += [str(Path(__file__).with_name(cases)), "-k", these]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E   "))]
    assert done.returncode == 0, "\n".join(failed[-100:])
    assert " failed" not in done.stdout
