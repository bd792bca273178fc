"""Which stretches of a PyTorch job become steps, without a word in the job's code."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from phasepoint.recorder.autosteps.sources.torch.clock import OPTIMIZER_STEP, TorchClock  # noqa: E402
from phasepoint.recorder.autosteps.sources.torch.updates import ParameterUpdates  # noqa: E402
from phasepoint.recorder.seam.guard import Guard  # noqa: E402

pytestmark = pytest.mark.torch


BATCH = ["a batch"]


class FakeLate:
    """Notes what a recording would be told."""

    def __init__(self):
        self.is_open = False
        self.is_optimizing = False
        self.leader = None
        self.guard = Guard()
        self.told = []
        self.batches = []

    def source_guard(self):
        return self.guard

    def admits(self, evidence):
        return self.leader in {None, evidence}

    def open(self, evidence, past, *, finish):
        self.is_open, self.leader, self.finish = True, evidence, finish
        assert all(step.asked_ns <= (step.got_ns or step.asked_ns) <= step.end_ns for step in past)
        self.told.append(f"open {len(past)}")

    def ask(self):
        self.told.append("ask")

    def got(self, *, waited=True):
        self.told.append("got" if waited else "begin")

    def take_batch(self, batch):
        self.batches.append(batch)

    def mark(self):
        self.told += ["ask", "begin"]

    def end_loop(self):
        self.told.append("end")

    def end_loop_at(self, end_ns):
        self.told.append("end at optimizer")

    def end_step_at(self, end_ns):
        self.told.append("end at optimizer, begin")

    def recall(self, past):
        assert all(before.end_ns == after.asked_ns for before, after in pairwise(past))
        assert all(step.asked_ns < step.end_ns for step in past)
        self.told.append(f"recall {len(past)}")

    def drop_step(self):
        self.told.append("drop")


class Job:
    """Drives a clock as a job would: loaders are plain objects, batches come from `batch`."""

    def __init__(self):
        self.late = FakeLate()
        self.clock = TorchClock(self.late)
        self.optimizer = Loader()

    def batch(self, loader):
        self.clock._ask(loader)
        self.clock._got(loader, BATCH)

    def stop(self, loader):
        self.clock._ask(loader)
        self.clock._stop(loader)

    def optimize(self, optimizer=None):
        self.clock._optimizer_stepped(optimizer or self.optimizer)

    def told(self):
        assert self.late.guard.reason is None
        assert self.late.batches == [BATCH] * self.late.told.count("got")
        told, self.late.told, self.late.batches = self.late.told, [], []
        return told


class Loader:
    """Anything that can be referred to weakly."""


def test_each_batch_with_an_optimizer_step_is_a_step():
    job, loader = Job(), Loader()
    for _ in range(3):
        job.batch(loader)
        job.optimize()
    job.stop(loader)
    assert job.told() == ["open 1", "ask", "got", "ask", "got", "ask", "end"]


def test_an_evaluation_between_is_no_step():
    job, train, validation = Job(), Loader(), Loader()
    for _ in range(2):
        job.batch(train)
        job.optimize()
    job.told()
    for _ in range(5):
        job.batch(validation)
    job.stop(validation)
    assert job.told() == ["end"]
    job.batch(train)
    assert job.told() == ["ask", "got"]


def test_an_evaluation_before_training_is_no_step():
    job, train, validation = Job(), Loader(), Loader()
    job.batch(validation)
    job.stop(validation)
    job.batch(train)
    job.optimize()
    assert job.told() == []
    job.batch(train)
    assert job.told() == ["open 1", "ask", "got"]


def test_accumulated_gradients_are_one_step():
    job, loader = Job(), Loader()
    for _ in range(3):
        for _ in range(4):
            job.batch(loader)
        job.optimize()
    job.stop(loader)
    assert job.told() == ["open 1", "ask", "got", "ask", "got", "ask", "end"]


def test_of_two_optimizers_the_first_is_the_clock():
    job, loader, generator = Job(), Loader(), Loader()
    for _ in range(3):
        job.batch(loader)
        job.optimize()
        job.optimize(generator)
    assert job.told() == ["open 1", "ask", "got", "ask", "got"]


def test_the_clock_passes_to_the_optimizer_of_the_next_stage():
    job, loader, second = Job(), Loader(), Loader()
    for _ in range(2):
        job.batch(loader)
        job.optimize()
    for _ in range(20):
        job.batch(loader)
        job.optimize(second)
    told = job.told()
    assert told[:7] == ["open 1", "ask", "got", "ask", "got", "end at optimizer", "recall 15"]
    assert told.count("ask") == 2 + 4


def test_steps_of_the_next_stage_count_from_its_first_batch():
    job, loader, loader_of_second, second = Job(), Loader(), Loader(), Loader()
    for _ in range(3):
        job.batch(loader)
        job.optimize()
    job.stop(loader)
    job.told()
    for _ in range(20):
        job.batch(loader_of_second)
        job.optimize(second)
    assert job.told() == ["recall 16", *["ask", "got"] * 4]


def test_a_stage_without_batches_follows_another():
    job, second = Job(), Loader()
    for _ in range(3):
        job.optimize()
    job.told()
    for _ in range(20):
        job.optimize(second)
    assert job.told() == ["end at optimizer", "recall 15", *["ask", "begin"] * 5]


def test_a_new_loader_every_epoch():
    job = Job()
    for _ in range(3):
        loader, validation = Loader(), Loader()
        for _ in range(4):
            job.batch(loader)
            job.optimize()
        job.stop(loader)
        job.batch(validation)
    told = job.told()
    assert told.count("recall 1") == 2
    assert told.count("got") + told.count("recall 1") == 3 * 4 - 1
    assert told[0] == "open 1"


def test_without_a_loader_steps_go_from_optimizer_step_to_optimizer_step():
    job = Job()
    for _ in range(4):
        job.optimize()
    assert job.told() == ["open 1", "ask", "begin", "ask", "begin", "ask", "begin"]
    job.late.finish()
    assert job.told() == ["drop"]


def test_one_batch_used_again_and_again():
    job, loader = Job(), Loader()
    job.batch(loader)
    for _ in range(2):
        job.optimize()
    assert job.told() == ["open 2", "ask", "begin"]
    for _ in range(3):
        job.optimize()
    assert job.told() == ["ask", "begin"] * 3


def test_one_batch_used_again_after_others():
    job, loader = Job(), Loader()
    for _ in range(3):
        job.batch(loader)
        job.optimize()
    job.told()
    job.optimize()
    job.optimize()
    assert job.told() == ["end at optimizer, begin", "ask", "begin", "ask", "begin"]
    job.batch(loader)
    assert job.told() == []  # the step under way waits for it
    job.optimize()
    assert job.told() == ["ask", "begin"]


def test_the_first_step_without_a_batch_begins_when_the_optimizer_was_made():
    job = Job()
    job.clock._made()
    for _ in range(4):
        job.optimize()
    assert job.told() == ["open 2", "ask", "begin", "ask", "begin", "ask", "begin"]


def test_one_step_without_a_batch():
    job = Job()
    job.clock._made()
    job.optimize()
    job.clock._exit()
    assert job.told() == ["open 1"]


def test_a_loader_that_fetches_ahead_ends_with_its_last_optimizer_step():
    job, loader = Job(), Loader()
    job.batch(loader)
    job.optimize()
    job.batch(loader)
    job.optimize()
    job.batch(loader)
    job.told()
    job.clock._stop(loader)  # the batch after the last was asked for too early
    job.optimize()
    assert job.told() == ["end"]


def test_a_loop_left_early_ends_with_its_last_optimizer_step():
    job, loader = Job(), Loader()
    for _ in range(2):
        job.batch(loader)
        job.optimize()
    job.told()
    job.late.finish()
    assert job.told() == ["end at optimizer"]


def test_a_single_step_is_recorded_at_exit():
    job, loader = Job(), Loader()
    job.batch(loader)
    job.optimize()
    job.clock._exit()
    assert job.told() == ["open 1"]


def test_a_process_that_only_loads_data_opens_nothing():
    job, loader = Job(), Loader()
    for _ in range(10):
        job.batch(loader)
    job.stop(loader)
    job.clock._exit()
    assert job.told() == []


def test_batches_of_another_thread_are_left_alone():
    import threading

    job, loader = Job(), Loader()
    job.batch(loader)
    job.optimize()
    job.batch(loader)
    job.told()
    thread = threading.Thread(target=lambda: job.batch(loader))
    thread.start()
    thread.join()
    assert job.told() == []


def test_backward_passes_are_let_alone_once_an_optimizer_leads():
    runs = []
    autograd = SimpleNamespace(_engine_run_backward=runs.append)
    engine, late = autograd._engine_run_backward, FakeLate()
    updates = ParameterUpdates(late, autograd)
    assert autograd._engine_run_backward is not engine
    late.leader = OPTIMIZER_STEP
    autograd._engine_run_backward(())
    assert autograd._engine_run_backward is engine
    updates.reset()  # as in a forked child, whose steps nobody leads
    assert autograd._engine_run_backward is not engine
    autograd._engine_run_backward(())
    assert runs == [(), ()]
