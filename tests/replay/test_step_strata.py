"""Strata: phases, and within them classes of step time."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from phasepoint.replay.compact.choice import LEAST_SAMPLE, allot_sample, stratify_steps


@st.composite
def populations(draw):
    n = draw(st.integers(1, 60))
    clock = draw(arrays(np.float64, (n, 2), elements=st.integers(0, 30).map(float)))
    phase = draw(arrays(np.int64, n, elements=st.integers(0, 3)))
    return clock, phase, draw(st.integers(1, n))


@given(populations())
def test_every_step_has_a_stratum_and_the_sample_suffices_for_all(population):
    clock, phase, sample = population
    stratum = stratify_steps(clock, phase, sample)
    size = np.bincount(stratum)
    assert size.min() > 0
    assert np.minimum(size, LEAST_SAMPLE).sum() <= max(sample, LEAST_SAMPLE)
    allotted = allot_sample(clock, stratum, sample)
    assert allotted.sum() == sample
    assert (allotted <= size).all()
    if sample >= LEAST_SAMPLE:
        assert (allotted >= np.minimum(size, LEAST_SAMPLE)).all()


@given(populations())
def test_equal_steps_of_one_phase_are_never_cut_apart(population):
    clock, phase, sample = population
    stratum = stratify_steps(clock, phase, sample)
    rows = np.column_stack([clock, phase])
    for row in np.unique(rows, axis=0):
        assert len(np.unique(stratum[(rows == row).all(axis=1)])) == 1


def test_rare_long_steps_become_a_class_that_is_taken_whole():
    clock = np.concatenate([np.linspace(9, 11, 200), [500.0, 800.0, 2000.0]])[:, None]
    stratum = stratify_steps(clock, np.zeros(203, np.int64), 40)
    allotted, size = allot_sample(clock, stratum, 40), np.bincount(stratum)
    for long in stratum[-3:].tolist():
        assert allotted[long] == size[long]
        assert size[long] <= 2


def test_phases_are_kept_apart_where_the_sample_allows_it():
    phase = np.repeat([0, 1, 2], 100)
    clock = np.random.default_rng(0).normal(10, 1, (300, 1))
    stratum = stratify_steps(clock, phase, 60)
    assert all(len(np.unique(phase[stratum == one])) == 1 for one in np.unique(stratum))
    assert len(np.unique(stratify_steps(clock, phase, 3))) == 1


def test_the_first_cut_is_the_best_of_all_cuts():
    values = np.random.default_rng(1).lognormal(0, 1, 40)
    stratum = stratify_steps(values[:, None], np.zeros(40, np.int64), 4)
    ranked = np.sort(values)
    losses = [at * ranked[:at].std() + (40 - at) * ranked[at:].std() for at in range(1, 40)]
    at = int(np.argmin(losses)) + 1
    assert sorted(np.bincount(stratum).tolist()) == sorted([at, 40 - at])


def test_neyman_allots_by_size_times_scatter():
    rng = np.random.default_rng(2)
    clock = np.concatenate([rng.normal(10, 1, 1000), rng.normal(50, 4, 500)])[:, None]
    stratum = np.repeat([0, 1], [1000, 500])
    wanted = np.array([1000 * clock[:1000].std(), 500 * clock[1000:].std()])
    assert allot_sample(clock, stratum, 90).tolist() == pytest.approx((90 * wanted / wanted.sum()).tolist(), abs=1)


def test_the_allotment_is_the_best_there_is():
    """Against all allotments of a small sample."""
    rng = np.random.default_rng(3)
    clock = np.concatenate([rng.normal(0, s, 12) for s in (1, 3, 8)])[:, None]
    stratum = np.repeat([0, 1, 2], 12)

    def variance(counts):
        return sum(12**2 * (1 - n / 12) * clock[stratum == i].var() / n for i, n in enumerate(counts))

    every = [c for c in itertools.product(range(2, 13), repeat=3) if sum(c) == 18]
    best = min(map(variance, every))
    assert variance(allot_sample(clock, stratum, 18).tolist()) <= 1.05 * best
