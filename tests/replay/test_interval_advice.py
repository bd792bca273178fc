"""The advised checkpoint interval against every interval that could have been chosen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.replay.plan.words import advise_interval, best_interval_ps


def interval_cost_ps(interval_ps, write_ps, run_ps, replays):
    """Writing every checkpoint, and half an interval to run forward for each replay."""
    return write_ps * run_ps / interval_ps + replays * interval_ps / 2


@given(write_ps=st.integers(0, 500), run_ps=st.integers(1, 4000), replays=st.integers(1, 20))
def test_no_interval_costs_less(write_ps, run_ps, replays):
    def cost(interval_ps):
        return interval_cost_ps(interval_ps, write_ps, run_ps, replays)

    best = min(range(1, run_ps + 1), key=cost)
    chosen = best_interval_ps(write_ps, run_ps, replays)
    # The formula is for real intervals; a whole one beside it may cost a little less.
    assert abs(chosen - best) <= 1
    assert cost(chosen) <= cost(best) * (1 + 1 / chosen)


def test_the_expected_cost_is_that_of_replays_at_random_places():
    """Places drawn one by one: what is run forward from the checkpoint before each, over all places of the run."""
    run, interval, write, replays = 1000, 50, 7, 3
    forward = sum(place % interval + 0.5 for place in range(run)) / run
    assert interval_cost_ps(interval, write, run, replays) == pytest.approx(run / interval * write + replays * forward)


def test_what_is_said():
    hour_ps = 3600 * 10**12
    said = advise_interval(2 * 10**12, hour_ps, 36_000)
    assert said == (
        "for one replay a checkpoint every 1,200 steps (2.00 min) would have been worth its price "
        "(2.00 s each, as measured)"
    )
    assert "(1.00 s each, an example: no time to write one was measured)" in advise_interval(None, hour_ps, 36_000)


def test_what_makes_no_sense_is_refused():
    for values in ((-1, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="expected 0, 1 and 1 or more"):
            best_interval_ps(*values)
