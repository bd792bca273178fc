"""A rank whose core a neighbour shares is told by how long its work queues, and no rank is where all queue alike."""

import numpy as np
import pytest

from phasepoint.core.units import PS_PER_S
from phasepoint.findings.evidence.ranks.rank_clocks import RankTimes, find_late_rank


def times(ran, queued, *, seconds=30, seed=0):
    """Ranks that stand in calls that wait alike; what they run and queue scatters by a tenth."""
    chance = np.random.default_rng(seed)
    shape = (len(ran), seconds)
    scatter = [chance.normal(1, 0.1, shape) for _ in range(2)]
    edges = np.arange(seconds + 1) * PS_PER_S
    return RankTimes(
        host=np.arange(len(ran)),
        edge_ps=np.column_stack((edges[:-1], edges[1:])),
        outside=chance.normal(0.25, 0.01, shape),
        ran=np.asarray(ran, float).reshape(len(ran), -1) * scatter[0],
        queued=np.asarray(queued, float).reshape(len(ran), -1) * scatter[1],
        input=np.zeros(shape),
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_queues_for_the_work_that_others_do_without_has_a_neighbour(rank):
    ran, queued = [0.6, 0.6], [0.5, 0.5]
    queued[rank], ran[rank] = 0.9, 0.5  # a longer step: it runs less of the time
    late = find_late_rank(times(ran, queued))
    assert (late.host, late.part) == (rank, "core")
    assert late.first_ps is None
    assert 0.15 < late.share < 0.4


def test_it_may_come_later():
    queued = np.full((2, 30), 0.5)
    queued[1, 12:] = 1.0
    late = find_late_rank(times([0.6, 0.6], queued))
    assert (late.host, late.part) == (1, "core")
    assert 11 * PS_PER_S <= late.first_ps <= 14 * PS_PER_S


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("queued", [0.02, 0.3, 0.9])
def test_where_all_queue_alike_nobody_is_late(seed, queued):
    assert find_late_rank(times([0.6, 0.6], [queued, queued], seed=seed)) is None
