"""A replay's slow stretches are left out; a pace that is the change's, or the data's, is not taken for one."""

import numpy as np
import pyarrow as pa

from phasepoint.phases.clock.steps import read_series
from phasepoint.replay.change.clean_steps import CleanSteps, StepMeans
from phasepoint.replay.change.ratio import without_slow


def kept(replay_ps, original_ps, clean=None):
    n = len(replay_ps)
    step = np.arange(100, 100 + n)
    clean = np.ones(n, bool) if clean is None else clean
    run = CleanSteps(read_series(pa.table({"step": step})), np.asarray(replay_ps, np.int64), clean, clean)
    return without_slow(run, StepMeans(step, np.asarray(original_ps, np.int64))).clean


def test_a_slow_stretch_is_left_out():
    replay = np.full(80, 600)
    replay[16:48] = 800
    expected = np.ones(80, bool)
    expected[16:48] = False
    assert (kept(replay, np.full(80, 1000)) == expected).all()


def test_steps_that_differ_by_their_data_are_kept():
    original = np.where(np.arange(80) // 16 % 2, 3000, 1000)
    assert kept(original * 6 // 10, original).all()


def test_a_slower_change_is_kept_and_so_is_the_scatter_of_steps():
    scatter = np.random.default_rng(0).normal(1, 0.05, 400)
    assert kept(1500 * scatter, np.full(400, 1000)).all()


def test_few_steps_are_kept_whatever_they_took():
    assert kept(np.array([600] * 20 + [900] * 19), np.full(39, 1000)).all()


def test_steps_that_were_not_clean_stay_so():
    clean = np.ones(80, bool)
    clean[:10] = False
    assert (kept(np.full(80, 600), np.full(80, 1000), clean) == clean).all()
