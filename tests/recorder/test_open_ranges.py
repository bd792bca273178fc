"""Captures that follow one another inside the job's own ranges: PyTorch's profiler must never damage the job."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

BACK_TO_BACK = """
import sys, torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from phasepoint.recorder.profilers.torch.session import TorchSession
from phasepoint.recorder.seam.session import ProfilerBusyError

net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
optimizer, x, session = torch.optim.Adam(net.parameters()), torch.randn(8, 64), TorchSession()
counts = {"steps": 0, "captures": 0, "refused": 0}
is_on = False

def boundary(*_):  # inside the range `Optimizer.step`
    global is_on
    counts["steps"] += 1
    if is_on and counts["steps"] % 3 == 0:
        session.stop()
        is_on = False
    if not is_on:
        try:
            session.start(with_programs=False)
        except ProfilerBusyError as error:
            assert "record_function" in str(error), error
            counts["refused"] += 1
        else:
            is_on = True
            counts["captures"] += 1

register_optimizer_step_post_hook(boundary)
for _ in range(300):
    with torch.profiler.record_function("mine"):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
if is_on:
    session.stop()
print(counts)
"""


def test_a_capture_waits_for_the_ranges_that_the_one_before_saw_begin():
    done = subprocess.run(
        [sys.executable, "-c", BACK_TO_BACK], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == str({"steps": 300, "captures": 100, "refused": 100})


def test_ranges_are_looked_at_during_captures_alone():
    import torch

    from phasepoint.recorder.profilers.torch.open_ranges import OpenRanges

    kind = torch.autograd.profiler.record_function
    own = (kind.__enter__, kind.__exit__)
    ranges = OpenRanges()
    with kind("before"):
        ranges.capture_begins()
        assert ranges.are_left, "what began before the capture is no part of it"
    with kind("inside"):
        assert not ranges.are_left
        ranges.capture_ends()
        assert not ranges.are_left
        assert kind.__enter__ is not own[0]
    assert ranges.are_left
    assert (kind.__enter__, kind.__exit__) == own


def test_a_range_that_is_never_left_is_forgotten_with_its_object():
    import torch

    from phasepoint.recorder.profilers.torch.open_ranges import OpenRanges

    ranges = OpenRanges()
    ranges.capture_begins()
    lost = torch.autograd.profiler.record_function("lost")
    lost.__enter__()
    ranges.capture_ends()
    assert not ranges.are_left
    del lost
    assert ranges.are_left
    ranges.capture_begins()
    ranges.capture_ends()


def test_no_capture_begins_in_a_backward_pass():
    import torch

    from phasepoint.recorder.profilers.torch.session import TorchSession
    from phasepoint.recorder.seam.session import ProfilerBusyError

    session, told = TorchSession(), []

    def hook(gradient):
        with pytest.raises(ProfilerBusyError, match="a backward pass was running") as refused:
            session.start(with_programs=False)
        told.append(str(refused.value))

    x = torch.ones(3, requires_grad=True)
    x.register_hook(hook)
    (2 * x).sum().backward()
    assert len(told) == 1
