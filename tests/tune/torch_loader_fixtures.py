"""For the cases of PyTorch's loader: short looks, and nothing that is left running."""

import gc
import os
import time

import pytest

from phasepoint.tune.limits import process_tree
from phasepoint.tune.live import trial, tuner


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    """Half a second in place of seconds: what is tested here is what the loop sees, not what is best."""
    monkeypatch.setattr(tuner, "OBSERVED_S", 0.2)
    monkeypatch.setattr(tuner, "LOOK_S", 0.0)
    monkeypatch.setattr(trial, "COUNTED_S", 0.04)
    monkeypatch.setattr(trial, "READY_S", 0.1)


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    before = set(process_tree(os.getpid()))
    yield
    gc.collect()  # workers that persist end with their loader
    limit = time.monotonic() + 20
    while set(process_tree(os.getpid())) - before and time.monotonic() < limit:
        time.sleep(0.1)
    assert not set(process_tree(os.getpid())) - before
