"""Work that a script does not mark: which calls and steps become regions."""

import contextlib

import pytest

from phasepoint.measure.automatic_regions import OutermostModule, StepRegions
from phasepoint.measure.regions import FORWARD, STEP
from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence


class FakeLaunched:
    def __init__(self):
        self.regions, self.kept, self.busy = [], [], False
        self.when_marked = lambda: None

    def begin(self):
        if self.busy:
            return False
        self.busy = True
        return True

    def end(self):
        self.busy = False

    @contextlib.contextmanager
    def taking(self, name):
        self.regions.append(name)
        yield
        self.kept.append(name)


def test_each_step_of_a_clock_is_a_region_and_the_one_without_an_end_is_none():
    launched = FakeLaunched()
    steps = StepRegions(launched)
    assert not steps.is_open
    steps.open(StepEvidence(Rank.REPEATED_PROGRAM, "jax", "executions"), [], finish=steps.drop_step)
    assert (steps.is_open, steps.framework) == (True, "jax")
    for _ in range(3):
        steps.ask()
        steps.got(waited=False)
    steps.close()
    assert launched.regions == [STEP] * 3
    assert launched.kept == [STEP] * 2
    assert not launched.busy
    assert steps.guard.reason is None


def test_a_step_inside_a_region_of_the_script_is_none():
    launched = FakeLaunched()
    steps = StepRegions(launched)
    launched.busy = True
    steps.ask()
    steps.end_loop()
    assert launched.regions == []
    assert launched.busy


@pytest.mark.torch
def test_the_outermost_module_that_is_called_again_is_measured_from_then_on():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(self.inner(x))

    launched, plain = FakeLaunched(), torch.nn.Module.__call__
    looking = OutermostModule(launched)
    looking.install()
    try:
        net, other, x = Net(), Net(), torch.ones(1, 2)
        expected = net(x)
        other(x)
        assert launched.kept == []
        assert torch.equal(net(x), expected)
        assert torch.nn.Module.__call__ is plain
        other(x)
        net(x)
        assert launched.kept == [FORWARD] * 2
        launched.when_marked()
        net(x)
        assert launched.kept == [FORWARD] * 2
        assert "__call__" not in vars(Net)
    finally:
        looking.remove()


@pytest.mark.torch
def test_a_script_that_marks_its_work_is_not_looked_at():
    torch = pytest.importorskip("torch")
    launched, plain = FakeLaunched(), torch.nn.Module.__call__
    OutermostModule(launched).install()
    launched.when_marked()
    assert torch.nn.Module.__call__ is plain
