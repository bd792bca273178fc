"""The cases of torch_loader_cases.py, in a process that has never imported JAX: forking one that has may deadlock."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.torch
def test_every_case_of_a_tuned_loader_holds():
    cases = Path(__file__).with_name("torch_loader_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " failed" not in done.stdout
