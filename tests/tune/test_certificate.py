"""The certificate's promise, held against brute force: under "no difference" it is a martingale, sign by sign."""

import itertools
import math
import random

import pytest

from phasepoint.tune.certificate import BETTER_LEVEL, PRIOR_SPREAD, Certificate
from phasepoint.tune.live.trial import MOST_PAIRS


def fill(log_ratios, prior=PRIOR_SPREAD):
    certificate = Certificate(prior)
    for ratio in log_ratios:
        certificate.add(ratio)
    return certificate


@pytest.mark.parametrize("seed", range(5))
def test_over_all_orders_of_the_pairs_the_evidence_is_one_in_the_mean(seed):
    """What chance could have drawn: every pattern of signs of the same sizes. The exact mean, and the exact chance."""
    chance = random.Random(seed)
    sizes = [abs(chance.gauss(0, chance.choice([0.01, 0.1, 1.0]))) for _ in range(9)]
    evidence, ever_better = [], 0
    for signs in itertools.product([1, -1], repeat=len(sizes)):
        certificate = fill(sign * size for sign, size in zip(signs, sizes, strict=True))
        evidence.append(math.exp(certificate.log_evidence(0.0)))
        ever_better += certificate.is_better
    # The spread that a bet uses looks at the signs of earlier pairs only, so the mean is exact.
    assert sum(evidence) / len(evidence) == pytest.approx(1, rel=1e-9)
    assert ever_better / len(evidence) <= BETTER_LEVEL


def test_trials_without_a_difference_are_seldom_taken_up_at_whatever_look():
    chance = random.Random(1)
    better = 0
    for _ in range(200):
        noise = chance.choice([lambda: chance.gauss(0, 0.28), lambda: chance.expovariate(5) - chance.expovariate(5)])
        better += fill(noise() for _ in range(60)).is_better
    assert better <= 10


@pytest.mark.parametrize("prior", [0.15, 0.3, 0.6])
def test_a_gain_of_a_tenth_is_found_through_blocks_that_scatter_by_a_fifth(prior):
    chance, found = random.Random(2), 0
    for _ in range(60):
        pairs = (math.log(1.1) + chance.gauss(0, 0.2 * math.sqrt(2)) for _ in range(MOST_PAIRS))
        found += fill(pairs, prior).is_better
    assert found >= 0.9 * 60


def test_five_clear_pairs_are_enough():
    assert not fill([0.3] * 4).is_better
    assert fill([0.3] * 5).is_better


def test_intervals_cover_the_truth_at_the_end_of_trials_of_any_length():
    chance, covered = random.Random(3), 0
    for _ in range(120):
        truth = chance.uniform(-0.3, 1.0)
        pairs = chance.randrange(1, 30)
        gain = fill(math.log1p(truth) + chance.gauss(0, 0.1) for _ in range(pairs)).gain()
        assert gain.low <= gain.value <= gain.high
        covered += gain.low <= truth <= gain.high
    assert covered >= 0.95 * 120


def test_futility_needs_evidence():
    certificate = fill([-0.2] * 3)
    assert not certificate.is_below(0.01)
    assert fill([-0.2] * 12).is_below(0.01)
    assert not certificate.is_better


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(ratio):
    with pytest.raises(ValueError, match="both must be above 0"):
        Certificate().add(ratio)
