"""How much a batch holds, counted without touching it."""

from collections import UserDict, namedtuple

import numpy as np
import pytest
from recorder_fakes import FakeClock, FakeSession, fake_record

from phasepoint.recorder.clock.batch_size import count_elements
from phasepoint.recorder.clock.step_clock import NOT_KNOWN
from phasepoint.store import open_run

Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (np.zeros((4, 3)), 12),
        ((np.zeros((4, 3)), np.zeros(4)), 16),
        ({"x": np.zeros(5), "y": [np.zeros(2), np.zeros(3)]}, 10),
        (UserDict(x=np.zeros(5)), 5),
        (Pair(np.zeros(2), np.zeros(3)), 5),
        (np.float32(1), 1),
        ("a name", NOT_KNOWN),
        (None, NOT_KNOWN),
        (range(7), NOT_KNOWN),
        ((np.zeros(0),), NOT_KNOWN),
        ([np.zeros(1)] * 65, NOT_KNOWN),
        ([[[[np.zeros(1)]]]], NOT_KNOWN),
    ],
)
def test_numbers_in_the_arrays_of_a_batch(batch, count):
    assert count_elements(batch) == count


def test_arrays_of_the_frameworks():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    assert count_elements((torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))) == 16
    assert count_elements({"x": jnp.zeros((4, 3))}) == 12


def test_nothing_of_the_jobs_own_is_run():
    class Lazy(dict):
        def values(self):
            raise AssertionError("loads from a disk")

        def __getitem__(self, key):
            raise AssertionError("loads from a disk")

    class Fetched(list):
        def __iter__(self):
            raise AssertionError("loads from a disk")

    class Sized:
        @property
        def size(self):
            raise AssertionError("waits for a device")

    assert count_elements(Lazy(x=np.zeros(3))) == 3
    assert count_elements([Sized(), Fetched([np.zeros(2)]), np.zeros(2)]) == 2


def test_a_step_knows_how_much_its_batch_held(tmp_path):
    clock = FakeClock()
    batches = [np.zeros(8)] * 40 + ["text"] * 3 + [np.zeros(12)] * 20 + [np.zeros(8)] * 5
    with fake_record(tmp_path / "run", clock, FakeSession(clock)) as run:
        for _ in run.steps(batches):
            clock.tick(10)
    found = open_run(tmp_path / "run").table("steps").column("batch_elements").to_pylist()
    assert found == [8] * 40 + [None] * 3 + [12] * 20 + [8] * 5
