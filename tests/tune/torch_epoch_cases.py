"""PyTorch's loader tuned in whole epochs: workers that outlive one, short ones, and streams.

Run by test_torch_loader.py, as the cases of torch_loader_cases.py are.
"""

import os
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import IterableDataset, get_worker_info  # noqa: E402
from torch.utils.data._utils import signal_handling  # noqa: E402
from torch_loader_fixtures import nothing_is_left_running, short_looks  # noqa: E402, F401
from tuned_jobs import SlowSamples, both, seed, torch_factory, train  # noqa: E402

import phasepoint as pp  # noqa: E402
from phasepoint.tune.live import tuner  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_that_outlive_an_epoch_go_on(workers):
    """As written, they serve all epochs: the same processes."""

    class Named(SlowSamples):
        def __getitem__(self, index):
            value, index = super().__getitem__(index)
            return value, index, os.getpid()

    fixed = {"num_workers": workers, "persistent_workers": bool(workers)}
    loader = pp.tune.loader(torch_factory(Named(8 * 40, sample_s=0.0), shuffle=False, **fixed), cpus=2)
    seen = [[tuple(part.tolist()) for part in batch[1:]] for _ in range(3) for batch in loader]
    assert [index for indices, _ in seen for index in indices] == 3 * list(range(8 * 40))
    assert len({pid for _, pids in seen for pid in pids}) == max(workers, 1)
    del loader


def test_epochs_too_short_for_a_trial_are_compared_as_wholes():
    """Twelve batches of 4 ms: the workers that are started for each epoch would cost more than they win."""
    plain, tuned, loader = both(torch_factory(SlowSamples(8 * 12)), epochs=90, cpus=3)
    assert tuned == plain
    assert loader.verdict == "tuned", loader.reason
    assert loader.state.chosen["num_workers"] >= 1
    assert loader.state.chosen["persistent_workers"]
    taken_up = [trial for trial in loader.trials if trial.accepted]
    assert taken_up
    assert all(trial.pairs >= 3 for trial in taken_up)


def test_a_factory_that_makes_the_loader_as_written_only_once_costs_the_trial():
    def once():
        left = [1]

        def make_loader(**knobs):
            if not knobs and not left:
                raise OSError("the archive is open already")
            return torch_factory(SlowSamples(8 * 12))(**(knobs or {"num_workers": left.pop() - 1}))

        return make_loader

    seed()
    plain = train(once()(), epochs=20)
    seed()
    loader = pp.tune.loader(once(), cpus=3)
    assert train(loader, epochs=20) == plain
    assert loader.state.chosen == loader.state.as_written
    assert "OSError: the archive is open already" in loader.trials[0].reason


@pytest.mark.parametrize("fault", ["raise", "exit", "hang"])
def test_in_such_a_trial_too_a_fault_costs_the_trial_and_no_batch(fault, monkeypatch):
    monkeypatch.setattr(tuner, "LEAST_SILENT_S", 1.0)
    plain, tuned, loader = both(torch_factory(SlowSamples(8 * 12, fault, at=8 * 6)), epochs=40, cpus=3)
    assert tuned == plain
    assert loader.state.chosen == loader.state.as_written
    assert loader.trials, loader.reason


def test_workers_of_a_trial_are_not_watched(monkeypatch):
    """PyTorch raises when one dies that it watches, wherever the job is: inside of a queue, the lock stayed locked."""
    watched, watch = [], signal_handling._set_worker_pids

    def spy(key, pids):
        watched.append(pids)
        watch(key, pids)

    monkeypatch.setattr(signal_handling, "_set_worker_pids", spy)
    plain, tuned, _ = both(torch_factory(SlowSamples(8 * 12)), epochs=20, cpus=3)
    assert tuned == plain
    assert watched
    assert set(watched) == {()}
    assert signal_handling._set_worker_pids is spy


class Shards(IterableDataset):
    """A stream of samples that take a while; each worker takes every n-th, or all where `shared` says so."""

    def __init__(self, size, *, sample_s=0.0005, shared=False):
        self.size, self.sample_s, self.shared = size, sample_s, shared

    def __iter__(self):
        worker = get_worker_info()
        first, each = (worker.id, worker.num_workers) if worker and not self.shared else (0, 1)
        for index in range(first, self.size, each):
            time.sleep(self.sample_s)
            yield torch.full((4,), float(index)), index


def test_a_stream_is_made_ahead_on_a_thread_in_its_order():
    plain, tuned, loader = both(torch_factory(Shards(8 * 400), shuffle=False), cpus=3)
    assert tuned == plain
    assert loader.state.kind == "torch DataLoader of a stream"
    assert (loader.state.chosen["num_workers"], loader.state.chosen["prefetch"] > 0) == (0, True), loader.reason


def test_where_the_order_may_change_a_stream_gets_workers_between_epochs():
    factory = torch_factory(Shards(8 * 30, sample_s=0.002), shuffle=False)
    loader = pp.tune.loader(factory, cpus=3, allow=["changes order"])
    indices = train(loader, epochs=24)[1]
    assert loader.state.chosen["num_workers"] >= 1, list(loader.trials)
    assert sorted(indices) == sorted(24 * list(range(8 * 30)))


def test_a_stream_that_gives_each_worker_everything_keeps_its_workers():
    factory = torch_factory(Shards(8 * 30, sample_s=0.002, shared=True), shuffle=False)
    loader = pp.tune.loader(factory, cpus=3, allow=["changes order"])
    train(loader, epochs=10)
    assert loader.state.chosen["num_workers"] == 0
    assert any("batches with it and 30 without" in trial.reason for trial in loader.trials), list(loader.trials)
