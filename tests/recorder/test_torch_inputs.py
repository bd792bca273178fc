"""What a PyTorch model is called with: looked at once, of the same model each time, never in a job that compiles."""

import threading

import pytest

torch = pytest.importorskip("torch")

from phasepoint.recorder.clock.batch_size import count_elements  # noqa: E402
from phasepoint.recorder.profilers.torch.dynamo import before_compiling  # noqa: E402
from phasepoint.recorder.profilers.torch.inputs import MOST_CALLS, NextInputs  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Whatever other tests compiled in this process."""
    monkeypatch.setattr("phasepoint.recorder.profilers.torch.inputs.has_compiled", lambda: False)


@pytest.fixture
def asked():
    """A `NextInputs`, and what it took."""
    inputs, taken = NextInputs(), []
    yield inputs, lambda: inputs.wait(lambda what: taken.append(count_elements(what))), taken
    inputs.forget()
    assert not has_hook()


def has_hook():
    return bool(torch.nn.modules.module._global_forward_pre_hooks)


def network():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def test_the_next_call_is_taken_and_no_other(asked):
    _, ask, taken = asked
    net = network()
    ask()
    ask()
    net(torch.ones(4, 8))
    assert not has_hook()
    net(torch.ones(6, 8))
    assert taken == [32]


def test_calls_of_another_model_pass_by(asked):
    _, ask, taken = asked
    net, other = network(), torch.nn.Linear(8, 1)
    ask()
    net(torch.ones(4, 8))
    ask()
    for _ in range(MOST_CALLS - 1):
        other(torch.ones(2, 8))
    net(torch.ones(5, 8))
    assert taken == [32, 40]
    ask()
    for _ in range(MOST_CALLS):
        other(torch.ones(2, 8))
    assert not has_hook()
    net(torch.ones(6, 8))
    assert taken == [32, 40]


def test_a_model_that_is_gone_gives_way_to_the_next(asked):
    _, ask, taken = asked
    ask()
    network()(torch.ones(4, 8))
    ask()
    torch.nn.Linear(8, 1)(torch.ones(3, 8))
    assert taken == [32, 24]


def test_calls_on_another_thread_are_none_of_the_steps(asked):
    _, ask, taken = asked
    net = network()
    ask()
    thread = threading.Thread(target=net, args=(torch.ones(9, 8),))
    thread.start()
    thread.join()
    assert taken == []
    net(torch.ones(4, 8))
    assert taken == [32]


def test_what_goes_wrong_stays_here():
    inputs = NextInputs()

    def broken(what):
        raise RuntimeError("planted")

    inputs.wait(broken)
    assert network()(torch.ones(4, 8)).shape == (4, 1)
    assert inputs.is_over
    assert not has_hook()
    inputs.wait(broken)
    assert not has_hook()


def test_a_job_that_compiles_is_left_alone(asked):
    inputs, ask, taken = asked
    remove = before_compiling(inputs.end)
    try:
        ask()
        assert has_hook()
        compiled = torch.compile(network(), backend="eager")  # it would warn of hooks; warnings are errors here
        assert not has_hook()
        compiled(torch.ones(2, 8))
        ask()
        assert not has_hook()
        assert taken == []
    finally:
        remove()
        torch._dynamo.reset()


def test_tensors_of_a_tracer_are_not_counted(asked):
    from torch._subclasses.fake_tensor import FakeTensorMode

    _, ask, taken = asked
    with FakeTensorMode():
        net = network()
        ask()
        net(torch.ones(4, 8))
    assert taken == [-1]
