"""PyTorch's loader, tuned in a real loop: faster, the same batches in the same order, whatever workers do.

Run by test_torch_loader.py in a process of its own: workers are forked, which a process that has used JAX must not do.
"""

import os
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    DataLoader,
    WeightedRandomSampler,
)
from torch_loader_fixtures import nothing_is_left_running, short_looks  # noqa: E402, F401
from tuned_jobs import SlowSamples, both, seed, torch_factory, train  # noqa: E402

import phasepoint as pp  # noqa: E402
from phasepoint.tune import choose  # noqa: E402
from phasepoint.tune.adapters.torch.feed import end_workers  # noqa: E402
from phasepoint.tune.journal import TuneState  # noqa: E402
from phasepoint.tune.limits import tree_bytes  # noqa: E402
from phasepoint.tune.live import tuner  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 700


def test_a_loop_that_waits_for_its_loader_gets_workers_and_sees_the_same():
    plain, tuned, loader = both(torch_factory(SlowSamples(8 * STEPS)), cpus=4)
    assert tuned == plain
    assert loader.verdict == "tuned", loader.reason
    assert loader.state.chosen["num_workers"] >= 1
    assert loader.state.chosen != loader.state.as_written


class LateSlow(SlowSamples):
    """Samples that take little at first, and then much: a store that has gone away."""

    def __getitem__(self, index):
        self.sample_s = 0.0003 if index < 8 * 120 else 0.012
        return super().__getitem__(index)


def test_when_the_bottleneck_moves_the_job_gets_its_own_workers_back(monkeypatch):
    """One worker was enough for the first batches, two are what the job is written with."""
    went_back, go_back = [], TuneState.go_back

    def noted(state, steps):
        went_back.append(steps)
        go_back(state, steps)

    monkeypatch.setattr(TuneState, "go_back", noted)
    monkeypatch.setattr(choose, "LEAST_PREDICTED_GAIN", 0.5)  # nothing to try before
    data = LateSlow(8 * 240)
    make_loader = torch_factory(data, shuffle=False)

    def written(**knobs):
        return make_loader(**{"num_workers": 2, **knobs})

    seed()
    plain = train(written(), body_s=0.04)
    seed()
    loader = pp.tune.loader(written, cpus=4)
    loader._tuner.setting = {**loader._tuner.setting, "num_workers": 1}
    assert train(loader, body_s=0.04) == plain
    assert len(went_back) == 1
    assert 120 <= went_back[0] < 200


def test_order_and_random_numbers_are_kept_over_epochs_and_samplers():
    data = SlowSamples(8 * 300)

    def make_loader(**knobs):
        sampler = WeightedRandomSampler([1.0, 2.0] * 1200, num_samples=8 * 150, replacement=True)
        return DataLoader(data, batch_size=8, sampler=sampler, drop_last=True, **knobs)

    plain, tuned, loader = both(make_loader, epochs=8, cpus=3)
    assert tuned == plain
    assert loader.state.chosen != loader.state.as_written, loader.reason


def test_a_generator_of_the_users_own_is_left_as_without_tuning():
    def run(tune):
        seed()
        generator = torch.Generator().manual_seed(5)
        factory = torch_factory(SlowSamples(8 * 300), generator=generator)
        loader = pp.tune.loader(factory, cpus=3) if tune else factory()
        return train(loader, epochs=2), generator.get_state().tolist()

    assert run(tune=True) == run(tune=False)


def test_a_loop_that_never_waits_is_left_alone():
    """Its steps are long: a stall of the machine in one of them is no share of the time that is worth a trial."""
    plain, tuned, loader = both(torch_factory(SlowSamples(60, sample_s=0.0), batch_size=1), body_s=0.15)
    assert tuned == plain
    assert loader.verdict == "nothing to tune"
    assert "waits for data" in loader.reason
    assert loader.state.chosen == loader.state.as_written


@pytest.mark.parametrize(("epochs", "batches"), [(1, 300), (20, 12)])
@pytest.mark.parametrize("n_workers", [0, 1, 2])
def test_random_numbers_drawn_in_workers_keep_the_tuner_from_changing_them(n_workers, epochs, batches):
    data = SlowSamples(8 * batches, fault="random", sample_s=0.002)

    def make_loader(num_workers=n_workers, **knobs):
        return DataLoader(data, batch_size=8, shuffle=True, num_workers=num_workers, **knobs)

    plain, tuned, loader = both(make_loader, epochs=epochs, cpus=3)
    assert tuned == plain
    assert loader.verdict == "nothing to tune"
    assert not loader.trials
    assert "changes random numbers" in loader.reason


def test_workers_are_watched_whatever_the_loop_itself_has_made_before():
    """A fork takes over what its parent counted."""
    train(pp.tune.loader(torch_factory(SlowSamples(8 * 20))))
    test_random_numbers_drawn_in_workers_keep_the_tuner_from_changing_them(2, epochs=20, batches=12)


def test_each_batch_may_be_given_random_numbers_of_its_own(monkeypatch):
    factory = torch_factory(SlowSamples(8 * STEPS, fault="random"))
    seen = []
    for switch in ("", "off"):
        monkeypatch.setenv("PHASEPOINT_TUNE", switch)
        seed()
        loader = pp.tune.loader(factory, cpus=4, allow=["changes random numbers"])
        seen.append(train(loader))
        assert (loader.state.chosen == loader.state.as_written) == (switch == "off"), loader.reason
    assert seen[0] == seen[1]


@pytest.mark.parametrize("fault", ["raise", "exit", "hang"])
@pytest.mark.parametrize("at", [0, 8 * 600], ids=["in the trial", "after it"])
def test_a_worker_that_fails_costs_the_trial_and_no_batch(fault, at, tmp_path, monkeypatch):
    monkeypatch.setattr(tuner, "LEAST_SILENT_S", 1.0)
    factory = torch_factory(SlowSamples(8 * 800, fault, at, str(tmp_path)), shuffle=False)
    unstruck = []
    while not any(tmp_path.iterdir()):  # a busy machine may leave the trial undecided, and the job without workers
        assert len(unstruck) < 4, f"the fault has not struck: {unstruck}"
        plain, tuned, loader = both(factory, cpus=3)
        assert tuned == plain
        unstruck.append(loader.reason)
    assert loader.state.chosen == loader.state.as_written
    assert loader.verdict in {"undecided", "nothing to tune"}, loader.reason


@pytest.mark.filterwarnings("ignore:This DataLoader will create 8 worker processes")
def test_workers_that_hang_are_ended_together():
    iterator = iter(torch_factory(SlowSamples(8 * 8, fault="hang"), num_workers=8)())
    workers, began = list(iterator._workers), time.monotonic()
    end_workers(iterator)
    while any(worker.is_alive() for worker in workers):
        assert time.monotonic() - began < 20  # one after another gets five seconds
        time.sleep(0.1)


def test_memory_near_its_limit_ends_the_trial():
    limit = tree_bytes() + (600 << 20)
    factory = torch_factory(SlowSamples(8 * 300, fault="leak", sample_s=0.001))
    seed()
    loader = pp.tune.loader(factory, cpus=2, memory=limit)
    train(loader)
    assert loader.state.chosen == loader.state.as_written
    assert loader._tuner.watch.most_bytes < limit


def test_a_fault_of_the_users_own_passes():
    class Broken(SlowSamples):
        def __getitem__(self, index):
            if index == 77:
                raise KeyError("no such picture")
            return super().__getitem__(index)

    loader = pp.tune.loader(torch_factory(Broken(400), shuffle=False), cpus=2)
    with pytest.raises(KeyError, match="no such picture"):
        train(loader)


def test_a_pass_that_is_left_and_one_inside_another_lose_nothing():
    factory = torch_factory(SlowSamples(8 * 60), shuffle=False)
    tuned = pp.tune.loader(factory, cpus=2)
    train(tuned, most=10)
    outer, inner = iter(tuned), None
    first = [next(outer)[1].tolist() for _ in range(5)]
    inner = [index.tolist() for _, index in tuned]
    rest = [index.tolist() for _, index in outer]
    expected = [list(range(i, i + 8)) for i in range(0, 480, 8)]
    assert inner == expected
    assert first + rest == expected


def test_a_mistake_of_ours_ends_the_tuning_and_not_the_job(monkeypatch):
    monkeypatch.setattr(tuner, "lay_out", lambda *_, **__: 1 / 0)
    plain, tuned, loader = both(torch_factory(SlowSamples(8 * 500)), cpus=2)
    assert tuned == plain
    assert "the tuner failed and was switched off: ZeroDivisionError" in loader.reason


def test_length_and_attributes_are_the_loaders():
    loader = pp.tune.loader(torch_factory(SlowSamples(83), drop_last=True))
    assert len(loader) == 10
    assert loader.batch_size == 8
    with pytest.raises(AttributeError):
        loader.nonsense  # noqa: B018
    with pytest.raises(TypeError, match="give each knob a default"):
        pp.tune.loader(lambda workers: None)
    with pytest.raises(ValueError, match="allow names 'everything'"):
        pp.tune.loader(torch_factory(SlowSamples(83)), allow=["everything"])
    with pytest.raises(ValueError, match="cpus is 0"):
        pp.tune.loader(torch_factory(SlowSamples(83)), cpus=0)


@pytest.mark.parametrize("seed_of_blocks", range(4))
def test_a_trial_that_is_lost_leaves_the_order_alone(seed_of_blocks):
    """Samples that take no time: workers only cost, and the loop's own thread takes over at once."""
    factory = torch_factory(SlowSamples(8 * 250, sample_s=0.00002))
    plain, tuned, loader = both(factory, body_s=0.004, seed=seed_of_blocks)
    assert tuned == plain
    assert "is not the next one" not in loader.reason


def test_in_a_replay_and_on_several_ranks_nothing_is_tried(monkeypatch):
    factory = torch_factory(SlowSamples(8 * 150))
    monkeypatch.setenv("PHASEPOINT_REPLAY", "{}")
    assert not pp.tune.loader(factory)._tuner.is_on
    monkeypatch.delenv("PHASEPOINT_REPLAY")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = pp.tune.loader(factory, cpus=2)
    train(loader)
    assert (loader.verdict, list(loader.trials)) == ("undecided", [])
    assert "the job has 2 ranks" in loader.reason


def test_memory_that_fills_up_after_the_trial_brings_the_old_setting_back(monkeypatch):
    loader = pp.tune.loader(torch_factory(SlowSamples(8 * STEPS), shuffle=False), cpus=3)
    seen = []
    for _, index in loader:
        seen += index.tolist()
        time.sleep(0.002)
        if loader.state.chosen != loader.state.as_written:
            monkeypatch.setattr(type(loader._tuner.watch), "is_full", True)
            monkeypatch.setattr(type(loader._tuner.watch), "start", lambda *_, **__: None)
    assert seen == list(range(8 * STEPS))
    assert loader.state.chosen == loader.state.as_written
    assert "memory came near the limit" in loader.reason


def test_a_factory_that_sets_a_knob_itself_costs_the_trial():
    data = SlowSamples(8 * 300)
    plain, tuned, loader = both(lambda **knobs: DataLoader(data, batch_size=8, num_workers=0, **knobs), cpus=3)
    assert tuned == plain
    assert "got multiple values for keyword argument 'num_workers'" in loader.trials[0].reason
    assert loader.state.chosen == loader.state.as_written


def test_where_jax_runs_threads_no_worker_is_forked(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", os)
    plain, tuned, loader = both(torch_factory(SlowSamples(8 * STEPS)), cpus=3)
    assert tuned == plain
    assert "num_workers" not in loader.state.as_written
    assert loader.state.chosen["prefetch"] >= 1
