"""A trial in whole epochs: what they show, and when it ends."""

import math
import random

import pytest

from phasepoint.tune.certificate import Certificate
from phasepoint.tune.choose import Proposal
from phasepoint.tune.live.epoch_trial import MOST_PAIRS, EpochTrial

STEP_NS = 1_000_000


def trial(seed=0):
    proposal = Proposal({"persistent_workers": True}, 0.5, 100.0)
    draw = random.Random(seed).getrandbits
    begun = {"number": 0, "proposal": proposal, "first_step": 0, "began_ns": 0, "base_step_ns": STEP_NS}
    return EpochTrial(**begun, certificate=Certificate(0.05), draw=lambda: draw(1))


def run(tried, epoch, *, most=2 * MOST_PAIRS):
    """Epochs until it is decided; `epoch` gives the steps and the time of one with a setting."""
    for _ in range(most):
        steps, took_ns = epoch(tried.begin_epoch())
        broken = tried.end_epoch(steps, took_ns, is_whole=True)
        if broken is not None:
            return "broken", broken
        if (decided := tried.verdict()) is not None:
            return decided
    return None


def test_each_pair_has_both_settings_in_an_order_drawn_by_chance():
    tried, sides = trial(), []
    for _ in range(61):
        sides.append(tried.begin_epoch())
        tried.end_epoch(10, 10 * STEP_NS, is_whole=True)
    assert sides.pop(0) == "new"  # in which workers that stay are started
    pairs = [tuple(sides[i : i + 2]) for i in range(0, 60, 2)]
    assert set(pairs) == {("old", "new"), ("new", "old")}


@pytest.mark.parametrize("steps", [1, 40])
def test_what_is_faster_is_found_and_what_it_cost_is_counted(steps):
    tried = trial()
    side, reason = run(tried, lambda side: (steps, steps * STEP_NS // (2 if side == "new" else 1)))
    assert (side, reason) == ("new", "faster beyond doubt")
    assert tried.certificate.gain().value == pytest.approx(1.0)
    assert tried.spent_ns == pytest.approx(-(1 + len(tried.certificate.log_ratios)) * steps * STEP_NS / 2)


def test_what_is_slower_goes_after_one_pair():
    tried = trial()
    side, reason = run(tried, lambda side: (10, 10 * STEP_NS * (2 if side == "new" else 1)))
    assert (side, len(tried.certificate.log_ratios)) == ("old", 1)
    assert "slower by more than 25%" in reason


def test_epochs_that_scatter_alike_are_seldom_taken_for_a_gain():
    taken = 0
    for seed in range(100):
        chance = random.Random(seed)
        decided = run(trial(seed), lambda _, chance=chance: (10, int(10 * STEP_NS * math.exp(chance.gauss(0, 0.1)))))
        taken += decided is not None and decided[0] == "new"
    assert taken <= 8


def test_epochs_of_other_lengths_end_it_or_do_not_count():
    how, reason = run(trial(), lambda side: (20 if side == "new" else 10, 10 * STEP_NS))
    assert (how, reason) == ("broken", "an epoch has 20 batches with it and 10 without")
    tried = trial()
    for steps in (10, 10, 3):  # the loop has left the last before its end
        tried.begin_epoch()
        assert tried.end_epoch(steps, steps * STEP_NS, is_whole=steps == 10) is None
    assert tried.certificate.log_ratios == []
