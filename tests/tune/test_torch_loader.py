"""The cases of a tuned PyTorch loader, in processes that have never imported JAX: forking one that has may deadlock."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.torch
@pytest.mark.parametrize("cases", ["torch_loader_cases.py", "torch_epoch_cases.py", "torch_cache_cases.py"])
def test_every_case_of_a_tuned_loader_holds(cases):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command.append(str(Path(__file__).with_name(cases)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " failed" not in done.stdout
