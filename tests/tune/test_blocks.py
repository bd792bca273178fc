"""Every position of an order is made by exactly one side, whatever is drawn and whenever the trial ends."""

import math
import random
from collections import deque

import pytest

from phasepoint.tune.live.blocks import BlockPlan


def made_by(plan, side, *, last):
    """Positions of a side, asked for as a feed asks."""
    position, made = 0, []
    while (position := plan.next_of(side, position)) is not None and position < last:
        made.append(position)
        position += 1
    return made


@pytest.mark.parametrize("seed", range(20))
def test_positions_are_shared_out_without_loss_or_repetition(seed):
    chance = random.Random(seed)
    plan = BlockPlan(chance.randrange(5), chance.randrange(2, 9), 1, lambda: chance.getrandbits(1))
    old, new = (set(made_by(plan, side, last=200)) for side in ("old", "new"))
    assert not old & new
    assert old | new == set(range(200))


@pytest.mark.parametrize("winner", ["old", "new"])
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_after_the_end_one_side_makes_all(seed, winner, at_once):
    chance = random.Random(seed)
    plan = BlockPlan(3, 5, 2, lambda: chance.getrandbits(1))
    plan.side_of(60)
    position = 3 + 5 * chance.randrange(2, 8)
    blocks = [plan.side_of(position + 5 * number) for number in range(4)]
    last = plan.end(position, winner, at_once=at_once)
    assert last == (position if at_once else position + 5 * blocks.index(winner))
    both = made_by(plan, "old", last=100) + made_by(plan, "new", last=100)
    assert sorted(both) == list(range(100))
    assert all(plan.side_of(later) == winner for later in range(last, 100))


@pytest.mark.parametrize("winner", ["old", "new"])
@pytest.mark.parametrize("seed", range(200))
def test_each_feed_gives_the_next_batch_wherever_a_trial_ends(seed, winner):
    """Feeds draw positions ahead, and what is drawn stays drawn; a trial may end at any block, also within a pair."""
    chance = random.Random(seed)
    plan = BlockPlan(4, 9, 6, lambda: chance.getrandbits(1))
    ends_at = 4 + 9 * chance.randrange(1, 9)
    drawn = {side: deque() for side in ("old", "new")}
    asked = dict.fromkeys(drawn, 0)
    last = None
    for position in range(140):
        if position == ends_at:
            last = plan.end(position, winner, at_once=False)
        side = plan.side_of(position) if last is None or position < last else winner
        for name, positions in drawn.items():
            while len(positions) < 6 and (following := plan.next_of(name, asked[name])) is not None:
                positions.append(following)
                asked[name] = following + 1
        assert drawn[side].popleft() == position


@pytest.mark.parametrize("seed", range(20))
def test_the_old_setting_may_leave_fewer_positions_uncounted(seed):
    """As where it has no workers, and the new one many: as many positions of each are counted, and none is lost."""
    chance = random.Random(seed)
    plan = BlockPlan(3, 12, 8, lambda: chance.getrandbits(1), old_skipped=2)
    assert plan.pair == 18
    made = {side: made_by(plan, side, last=3 + 18 * 9) for side in ("old", "new")}
    assert sorted(made["old"] + made["new"]) == list(range(3 + 18 * 9))
    assert len(made["new"]) == 12 * 9
    clock_ns, ratios, within = 0, [], 0
    for position in range(3 + 18 * 9 + 1):
        ratios.append(plan.note(position, clock_ns))
        within = 0 if plan.begins_block(position) else within + 1
        side = plan.side_of(position)
        is_counted = within >= (8 if side == "new" else 2)
        clock_ns += (100 if side == "new" else 300) if is_counted else 10_000
    assert [ratio for ratio in ratios if ratio is not None] == [pytest.approx(math.log(3))] * 9


def test_times_of_pairs_are_those_of_the_counted_positions():
    plan = BlockPlan(2, 4, 1, iter([0, 1, 0]).__next__)  # old new | new old
    step_ns = {"old": 300, "new": 100}
    clock_ns, ratios = 0, []
    for position in range(2 + 4 * 4 + 1):
        ratio = plan.note(position, clock_ns)
        ratios += [ratio] if ratio is not None else []
        is_first = position >= 2 and (position - 2) % 4 == 0
        clock_ns += 10_000 if is_first else step_ns[plan.side_of(position)]
    assert ratios == [pytest.approx(math.log(3))] * 2
