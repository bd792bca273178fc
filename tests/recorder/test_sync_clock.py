"""How long calls that wait took: the outermost of them, on one thread, those in progress too."""

import sys
import threading
import types

import pytest
from recorder_fakes import FakeClock, FakeSession, fake_record

from phasepoint.recorder.clock.sync_clock import SyncClock
from phasepoint.store import open_run


class Clock:
    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns


@pytest.fixture
def framework(monkeypatch):
    """A module as the hooks look for it: a backward pass that waits inside, and a property that waits."""
    clock = Clock()

    def run_backward(ns, inside=None):
        if inside is not None:
            inside()
        clock.ns += ns
        return "gradients"

    class ArrayImpl:
        def block_until_ready(self):
            clock.ns += 10
            return self

        @property
        def _value(self):
            self.block_until_ready()
            clock.ns += 1
            return 7

    torch, jax = types.ModuleType("torch.autograd"), types.ModuleType("jax._src.array")
    torch._engine_run_backward, jax.ArrayImpl = run_backward, ArrayImpl
    for name in ("jax", "torch._C._distributed_c10d"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch.autograd", torch)
    monkeypatch.setitem(sys.modules, "jax._src.array", jax)
    return clock, torch, ArrayImpl


def test_time_in_calls_that_wait_is_added_up(framework):
    clock, torch, array = framework
    sync = SyncClock(clock)
    assert sync.total_ps() is None
    assert sync.install()
    assert torch._engine_run_backward(50) == "gradients"
    clock.ns += 1000
    assert array()._value == 7
    assert array().block_until_ready().__class__ is array
    assert sync.total_ps() == (50 + 11 + 10) * 1000


def test_a_call_inside_another_counts_once_and_one_in_progress_up_to_now(framework):
    clock, torch, array = framework
    sync, seen = SyncClock(clock), []
    sync.install()

    def inside():
        array().block_until_ready()
        clock.ns += 5
        seen.append(sync.total_ps())

    torch._engine_run_backward(100, inside)
    assert seen == [15_000]
    assert sync.total_ps() == 115_000


def test_other_threads_and_calls_that_fail(framework):
    clock, torch, _ = framework
    sync = SyncClock(clock)
    sync.install()
    other = threading.Thread(target=torch._engine_run_backward, args=(70,))
    other.start()
    other.join()
    assert sync.total_ps() == 0

    def fail():
        clock.ns += 3
        raise KeyError("of the job")

    with pytest.raises(KeyError, match="of the job"):
        torch._engine_run_backward(1, fail)
    assert sync.total_ps() == 3000


def test_everything_is_put_back(framework):
    _, torch, array = framework
    before = torch._engine_run_backward, array.__dict__["_value"], array.block_until_ready
    sync = SyncClock()
    sync.install()
    assert torch._engine_run_backward is not before[0]
    sync.remove()
    assert (torch._engine_run_backward, array.__dict__["_value"], array.block_until_ready) == before


def test_a_framework_that_refuses_is_not_measured_and_harms_nothing(monkeypatch):
    class Refuses(types.ModuleType):
        def __setattr__(self, name, value):
            raise TypeError(name)

    module = Refuses("torch.autograd")
    module.__dict__["_engine_run_backward"] = lambda: None
    for name in ("jax", "torch._C._distributed_c10d", "jax._src.array"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch.autograd", module)
    sync = SyncClock()
    assert not sync.install()
    assert sync.total_ps() is None


@pytest.mark.parametrize(("ranks", "is_known"), [("2", True), ("1", False)])
def test_jobs_of_several_ranks_write_it_with_the_looks_at_the_machine(tmp_path, monkeypatch, ranks, is_known):
    module = types.ModuleType("torch.autograd")  # jax stays as it is: what records may import it
    module._engine_run_backward = lambda: None
    monkeypatch.setitem(sys.modules, "torch.autograd", module)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", ranks)
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock=clock, session=FakeSession(clock)) as run:
        for _ in run.steps(range(5)):
            clock.tick(10)
    machine = open_run(tmp_path / "run").table("machine")
    assert machine.num_rows
    assert (machine["sync_ps"].null_count == 0) == is_known
