"""Any other iterable: batches made ahead on a thread, in their order, as long as nothing but their speed changes."""

import random
import threading
import time

import numpy as np
import pytest

import phasepoint as pp
from phasepoint.tune.adapters.stream import OneIterator
from phasepoint.tune.live import trial, tuner


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    monkeypatch.setattr(tuner, "OBSERVED_S", 0.2)
    monkeypatch.setattr(trial, "COUNTED_S", 0.04)
    monkeypatch.setattr(trial, "READY_S", 0.02)


class Numbers:
    def __init__(self, count, make_s, draw=None, error_at=None):
        self.count, self.make_s, self.draw, self.error_at = count, make_s, draw, error_at

    def __iter__(self):
        for number in range(self.count):
            time.sleep(self.make_s)
            if number == self.error_at:
                raise OSError("the line is cut")
            yield number + (0 if self.draw is None else self.draw())


def loop(loader, body_s=0.004):
    seen = []
    for batch in loader:
        seen.append((batch, random.random()))
        time.sleep(body_s)
    return seen


def gather(loader, seen):
    for batch in loader:
        seen.append(batch)
        time.sleep(0.003)


def test_a_slow_iterable_is_made_ahead_in_its_order():
    random.seed(3)
    plain = loop(Numbers(400, 0.004))
    random.seed(3)
    loader = pp.tune.loader(lambda **knobs: Numbers(400, 0.004))
    assert loop(loader) == plain
    assert loader.verdict == "tuned", loader.reason
    assert loader.state.chosen["prefetch"] >= 1
    assert not [thread for thread in threading.enumerate() if thread.name == "phasepoint-prefetch"]


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["python", "numpy"])
def test_one_that_draws_random_numbers_is_left_alone_and_told_why(draw):
    loader = pp.tune.loader(lambda **knobs: Numbers(150, 0.004, draw))
    loop(loader)
    assert loader.verdict == "nothing to tune"
    assert "should win" in loader.reason
    assert "allow=['changes random numbers']" in loader.reason


def test_an_error_comes_in_its_place():
    loader = pp.tune.loader(lambda **knobs: Numbers(400, 0.003, error_at=333))
    seen = []
    with pytest.raises(OSError, match="the line is cut"):
        gather(loader, seen)
    assert seen == list(range(333))


def test_knobs_of_the_users_own_are_turned_while_it_runs():
    delay = {"s": 0.006}
    turned = []

    def turn(readers):
        turned.append(readers)
        delay["s"] = 0.006 / readers

    class Remote(Numbers):
        def __iter__(self):
            for number in range(self.count):
                time.sleep(delay["s"])
                yield number

    knobs = [pp.tune.Knob("readers", (1, 2, 4), turn=pp.tune.Turn.LIVE, apply=turn, threads=True)]
    loader = pp.tune.loader(lambda **_: Remote(600, 0), knobs=knobs)
    assert [batch for batch, _ in loop(loader, body_s=0.001)] == list(range(600))
    assert loader.verdict == "tuned", loader.reason
    assert loader.state.chosen["readers"] > 1
    assert turned[-1] == loader.state.chosen["readers"]


def test_knobs_of_the_factory_are_turned_between_epochs():
    """What says that it is a number of workers can be predicted, and is tried; what does not is left alone."""

    def make_loader(workers=1, colour="red"):
        assert colour == "red"
        return Numbers(24, 0.004 / workers)

    knobs = [pp.tune.Knob("workers", (1, 2, 4), threads=True), pp.tune.Knob("colour", ("red", "blue"))]
    loader = pp.tune.loader(make_loader, knobs=knobs, cpus=4)
    for _ in range(60):
        assert [batch for batch, _ in loop(loader, body_s=0.001)] == list(range(24))
    assert loader.verdict == "tuned", loader.reason
    assert loader.state.chosen["workers"] > 1


@pytest.mark.parametrize("seed", range(4))
def test_how_many_may_wait_can_change_at_any_time(seed):
    chance = random.Random(seed)
    one = OneIterator(lambda: None)
    one.iterator = iter(range(300))
    for number in range(300):
        one.turn(chance.choice([0, 0, 1, 3]))
        assert one.take() == number
        time.sleep(chance.choice([0, 0, 0.001]))
    with pytest.raises(StopIteration):
        one.take()
    one.stop()


def test_without_length_or_kind_it_is_as_it_was():
    loader = pp.tune.loader(lambda **knobs: iter([1, 2]))
    assert list(loader) == [1, 2]
    with pytest.raises(TypeError, match="has no length"):
        len(loader)
    assert pp.tune.loader(lambda **knobs: 7).reason == "nothing is known to turn in a int"
