"""The ratio of step times and its interval: exact values, a slow oracle, coverage over simulated runs."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import f as fisher
from scipy.stats import t as student

from phasepoint.replay.change.ratio import compare_steps, scatter_of_place

MS = 10**9


def steps(*ms):
    return np.array([round(m * MS) for m in ms], np.int64)


def test_constant_steps_have_an_exact_ratio_and_no_doubt():
    found = compare_steps(np.full(40, 3 * MS), np.full(40, 4 * MS), np.full(400, 4 * MS))
    assert (found.ratio, found.low, found.high) == (0.75, 0.75, 0.75)
    assert (found.steps, found.batches, found.within, found.place) == (40, 10, 0.0, 0.0)


def test_what_both_sides_share_leaves_no_doubt_within():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 50, 60) * MS
    found = compare_steps(2 * lengths, lengths, np.tile(lengths, 3))
    assert found.ratio == 2
    assert found.within == 0
    assert found.place == 0


def test_four_steps_by_hand():
    """y - 0.6 x is 0.4, -0.4, 0, 0: batch means of two 0 and 0; in the order 0.4, 0, -0.4, 0: 0.2 and -0.2."""
    found = compare_steps(steps(6.4, 6, 5.6, 6), steps(10, 10, 10, 10), steps(10, 10, 10, 10))
    assert found.ratio == pytest.approx(0.6)
    assert found.batches == 2
    sd = math.sqrt(2) * 0.2 / 6
    assert found.within == pytest.approx(sd / math.sqrt(2))
    assert found.place is None
    half = student.ppf(0.975, 1) * sd / math.sqrt(2)
    assert (found.low, found.high) == pytest.approx((0.6 * math.exp(-half), 0.6 * math.exp(half)))


def test_a_single_step_has_no_interval():
    found = compare_steps(steps(6), steps(10), steps(10, 10, 10))
    assert (found.ratio, found.low, found.high, found.within) == (0.6, None, None, None)


@pytest.mark.parametrize(
    ("changed", "reference"), [([], []), ([1, 2], [1]), ([1, 2], [0, 0])], ids=["none", "lengths", "no-time"]
)
def test_nothing_to_compare_is_refused(changed, reference):
    with pytest.raises(ValueError, match=r"expected|no time"):
        compare_steps(np.array(changed, np.int64), np.array(reference, np.int64), np.array([1], np.int64))


def slow_interval(changed, reference, phase, confidence=0.95):
    """The same in plain Python, from the formulas of the books."""
    n = len(changed)
    ratio = sum(changed) / sum(reference)
    batches = max(min(10, n // 4), 2)
    cut = [i * n // batches for i in range(batches)] + [n]

    def means(values):
        return [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(cut)]

    level = statistics.fmean(changed)
    rest = [(y - ratio * x) / level for y, x in zip(changed, reference, strict=True)]
    terms = [(statistics.variance(means(rest)) / batches, batches - 1)]
    blocks = [phase[i : i + n] for i in range(0, len(phase) - n + 1, n)]
    if len(blocks) >= 2:
        mean = statistics.fmean(phase)
        of_blocks = [means([x / mean for x in block]) for block in blocks]
        between = 2 * statistics.variance([statistics.fmean(block) for block in of_blocks])
        inside = 2 * statistics.fmean([statistics.variance(block) for block in of_blocks]) / batches
        freedom = len(blocks) - 1, len(blocks) * (batches - 1)
        if between > fisher.ppf(0.75, *freedom) * inside:
            terms += [(between, freedom[0]), (-inside, freedom[1])]
    variance = sum(v for v, _ in terms)
    free = variance**2 / sum(v**2 / f for v, f in terms)
    half = student.ppf((1 + confidence) / 2, max(free, 1)) * math.sqrt(variance)
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)


@given(seed=st.integers(0, 10**6), n=st.integers(4, 70), blocks=st.integers(1, 12), slow=st.sampled_from([0.0, 0.2]))
def test_the_interval_is_that_of_the_slow_oracle(seed, n, blocks, slow):
    rng = np.random.default_rng(seed)
    place = np.repeat(slow * rng.normal(size=blocks + 1), n)[: n * blocks + 3]
    phase = (MS * np.exp(0.1 * rng.normal(size=len(place)) + place)).astype(np.int64)
    changed = (0.8 * MS * np.exp(0.1 * rng.normal(size=n))).astype(np.int64)
    found = compare_steps(changed, phase[:n], phase)
    expected = slow_interval(changed.tolist(), phase[:n].tolist(), phase.tolist())
    assert (found.ratio, found.low, found.high) == pytest.approx(expected, rel=1e-9)


def autocorrelated(rng, n, likeness):
    noise = rng.normal(size=n) * math.sqrt(1 - likeness**2)
    wave = np.empty(n)
    wave[0] = rng.normal()
    for i in range(1, n):
        wave[i] = likeness * wave[i - 1] + noise[i]
    return wave


@pytest.mark.parametrize(
    ("likeness", "drift"),
    [(0.0, 0.0), (0.6, 0.0), (0.9, 0.0), (0.6, 0.04)],
    ids=["independent", "0.6", "0.9", "drifts"],
)
def test_intervals_cover_the_full_run(likeness, drift):
    """The full run under the change is drawn apart from the replay; 400 draws, so ± 2.1 % at 95 %."""
    rng, n_steps, n, draws = np.random.default_rng(7), 1000, 60, 400

    def one_run(ms):
        slow = drift * np.repeat(autocorrelated(rng, n_steps // 10, 0.7), 10)
        return (ms * MS * np.exp(0.05 * autocorrelated(rng, n_steps, likeness) + slow)).astype(np.int64)

    covered = 0
    for _ in range(draws):
        original, replay, full, at = one_run(10), one_run(7), one_run(7), int(rng.integers(0, n_steps - n))
        found = compare_steps(replay[at : at + n], original[at : at + n], original)
        covered += found.low <= full.sum() / original.sum() <= found.high
    assert 0.93 <= covered / draws <= 0.98


def test_place_counts_where_stretches_differ_by_more_than_chance():
    rng = np.random.default_rng(3)
    steady = (MS * np.exp(0.05 * rng.normal(size=1000))).astype(np.int64)
    assert scatter_of_place(steady, 50, 10).excess < 1e-4
    drifting = (steady * np.repeat(1 + 0.1 * rng.normal(size=20), 50)).astype(np.int64)
    assert math.sqrt(scatter_of_place(drifting, 50, 10).excess) == pytest.approx(math.sqrt(2) * 0.1, rel=0.4)
    assert scatter_of_place(steady[:99], 50, 10) is None
