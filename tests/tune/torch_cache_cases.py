"""Results that are kept between epochs of PyTorch's loader: the same batches, sooner.

Run by test_torch_loader.py, as the cases of torch_loader_cases.py are.
"""

import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402
from torch_loader_fixtures import nothing_is_left_running, short_looks  # noqa: E402, F401
from tuned_jobs import SlowSamples, both, torch_factory, train  # noqa: E402

import phasepoint as pp  # noqa: E402
from phasepoint.tune.limits import tree_bytes  # noqa: E402

pytestmark = pytest.mark.torch


def test_whole_samples_are_kept_where_that_is_allowed_and_pays():
    factory = torch_factory(SlowSamples(8 * 20, sample_s=0.006))
    plain, tuned, loader = both(factory, epochs=25, body_s=0.024, cpus=1, allow=["cache"])
    assert tuned == plain
    assert loader.verdict == "tuned", loader.reason
    assert loader.state.chosen["cache"]
    taken = next(end for end in loader.trials if end.accepted and end.knobs["cache"])
    assert taken.predicted_gain == pytest.approx(taken.gain.value, rel=0.25)
    assert loader._tuner.source.cache_bytes() > 0
    assert not any(end.knobs["cache"] for end in both(factory, epochs=15, cpus=1)[2].trials)


def test_samples_that_are_made_by_chance_are_not_kept():
    factory = torch_factory(SlowSamples(8 * 20, fault="random", sample_s=0.002))
    loader = pp.tune.loader(factory, cpus=1, allow=["cache", "changes random numbers"])
    train(loader, epochs=20)
    refused = [end.reason for end in loader.trials if end.knobs["cache"]]
    assert len(refused) == 1
    assert "do not make the same batches" in refused[0]
    assert not loader.state.chosen["cache"]
    assert not loader._tuner.source.cache_bytes()


class Augmented(SlowSamples):
    """Reads a sample, which may be kept, and changes it by chance, which may not."""

    def __init__(self, size, sample_s):
        super().__init__(size, sample_s=sample_s)
        self.read = pp.tune.Cached(super().__getitem__)

    def __getitem__(self, index):
        value, index = self.read(index)
        return value + torch.rand(4), index


@pytest.mark.parametrize("n_workers", [0, 2])
def test_what_the_user_marks_is_kept_and_chance_stays(n_workers):
    data = Augmented(8 * 20, sample_s=0.004)
    plain, tuned, loader = both(
        lambda: DataLoader(data, batch_size=8, shuffle=True, num_workers=n_workers), epochs=30, cpus=2
    )
    assert tuned == plain
    assert loader.state.chosen["cache"], loader.reason


def test_nothing_is_kept_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(SlowSamples, "__getitem__", lambda self, index: (torch.zeros(1 << 20), time.sleep(0.005))[0])
    factory = torch_factory(SlowSamples(8 * 20), batch_size=4)
    loader = pp.tune.loader(factory, allow=["cache"], cpus=1, memory=tree_bytes() + (400 << 20))
    for _ in range(6):
        for _batch in loader:
            time.sleep(0.001)
    assert not any(end.knobs["cache"] for end in loader.trials)
    assert loader._tuner.watch.most_bytes < loader._tuner.watch.limit_bytes
