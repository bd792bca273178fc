"""While the recorder is imported and assembled the collector rests; then young collections look at what it made."""

import gc
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import pytest

from phasepoint.recorder.clock.importing import collector_paused


@contextmanager
def collections():
    """Generations collected inside."""
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)


def test_one_young_collection_however_much_is_made():
    assert gc.isenabled()
    with collections() as seen:
        with collector_paused():
            kept = [[] for _ in range(20_000)]
        after = list(seen)
    assert after == [0]
    assert gc.isenabled()
    assert len(kept) == 20_000


def test_a_job_that_switched_the_collector_off_keeps_it_off():
    gc.disable()
    try:
        with collections() as seen, collector_paused():
            assert not gc.isenabled()
        assert seen == []
        assert not gc.isenabled()
    finally:
        gc.enable()


JOB = """
import gc, sys, torch
layer = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    layer(torch.ones(3, 2)).sum().backward()
    optimizer.step()

step()
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]) if phase == "start" else None)
step()  # the recording is opened here
print(seen, "phasepoint.recorder.recording" in sys.modules)
for _ in range(30):
    step()
"""


def test_opening_a_recording_collects_only_what_is_young(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    command = [sys.executable, "-m", "phasepoint", "record", "--out", str(tmp_path / "run"), "--", sys.executable]
    done = subprocess.run([*command, str(tmp_path / "job.py")], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["[0,", "0]", "True"], done.stdout
