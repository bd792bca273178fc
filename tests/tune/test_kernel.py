"""Configurations of a kernel: the fastest is confirmed by turns; what fails, or gives something else, is not chosen."""

import random
import time

import numpy as np
import pytest

from phasepoint.tune.offline import kernel as module
from phasepoint.tune.offline.kernel import kernel

pytestmark = pytest.mark.alone
PARAMETERS = {"block": (1, 2, 4, 8), "stages": (1, 2)}
AS_WRITTEN = {"block": 1, "stages": 1}


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_S", 0.004)
    monkeypatch.setattr(module, "MEASURED_S", 0.01)


def sleeping(seconds):
    """Makes kernels that take so long with a configuration, and double what they are given."""

    def make(**config):
        def run(values):
            time.sleep(seconds(**config))
            return {"doubled": 2 * values, "count": (len(values),)}

        return run

    return make


def test_the_fastest_is_found_and_confirmed():
    make = sleeping(lambda block, stages: 0.008 / block + 0.001 * stages)
    found = kernel(make, PARAMETERS, [np.arange(4)], as_written=AS_WRITTEN)
    assert (found.verdict, found.chosen) == ("tuned", {"block": 8, "stages": 1}), found
    assert found.gain.value == pytest.approx(9 / 2 - 1, rel=0.2)
    assert found.gain.low > 0
    assert found.configs == len(found.trials) == 8
    assert found.difference == 0
    assert 0 < found.spent_s < 60


def test_what_fails_or_gives_something_else_is_not_chosen():
    def make(block, stages):
        if block == 8:
            raise MemoryError("too large a tile")
        wrong = {2: 1.01, 4: 1.0001}.get(block, 1.0)

        def run(values):
            time.sleep(0.002 / block)
            return wrong * values if stages == 1 else values[:-1]

        return run

    found = kernel(make, PARAMETERS, [np.arange(1.0, 5.0)], as_written=AS_WRITTEN, budget=8)
    assert found.chosen == {"block": 4, "stages": 1}
    assert found.difference == pytest.approx(1e-4)
    problems = {(trial.config["block"], trial.config["stages"]): trial.problem for trial in found.trials}
    assert problems[8, 1] == "MemoryError: too large a tile"
    assert problems[2, 1] == "its result differs by 0.01 of the largest value"
    assert problems[1, 2] == "its result differs by inf of the largest value"
    assert problems[4, 1] == ""


def test_where_nothing_is_faster_the_kernel_stays():
    found = kernel(sleeping(lambda block, stages: 0.001 * block), PARAMETERS, [np.arange(4)], as_written=AS_WRITTEN)
    assert (found.verdict, found.chosen) == ("nothing to tune", AS_WRITTEN)
    assert found.gain is None


def test_noise_is_not_taken_for_a_gain():
    wins = 0
    for seed in range(10):
        chance = random.Random(seed)
        make = sleeping(lambda chance=chance, **_: 0.0004 * chance.uniform(0.5, 1.5))
        found = kernel(make, PARAMETERS, [np.arange(4)], as_written=AS_WRITTEN, seed=seed)
        wins += found.verdict == "tuned"
    assert wins <= 1


def test_other_parameters_are_refused():
    with pytest.raises(ValueError, match=r"as_written has \['tile'\], and parameters are \['block', 'stages'\]"):
        kernel(sleeping(lambda **_: 0.0), PARAMETERS, [np.arange(4)], as_written={"tile": 1})
    with pytest.raises(ValueError, match="no combination"):
        kernel(sleeping(lambda **_: 0.0), PARAMETERS, [1], as_written=AS_WRITTEN, allowed=lambda _: False)


def test_tiles_of_a_pallas_kernel():
    """Interpreted, as there is no accelerator: every block is a turn of a loop, so the largest is the fastest."""
    jax = pytest.importorskip("jax")
    from jax.experimental import pallas

    def scale(x_ref, y_ref):
        y_ref[...] = x_ref[...] * 2.0 + 1.0

    def make(block):
        spec = pallas.BlockSpec((block,), lambda i: (i,))
        shape = jax.ShapeDtypeStruct((16384,), "float32")
        call = pallas.pallas_call(
            scale, grid=16384 // block, in_specs=[spec], out_specs=spec, out_shape=shape, interpret=True
        )
        return jax.jit(call)

    found = kernel(make, {"block": (16, 64, 1024, 16384)}, [jax.numpy.arange(16384.0)], as_written={"block": 16})
    assert found.verdict == "tuned", found
    assert found.chosen["block"] >= 1024
    assert found.difference < 1e-6
