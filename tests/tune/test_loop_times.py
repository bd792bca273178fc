"""The last steps of a loop: which of them say what the next ones take."""

import pytest

from phasepoint.tune.live.loop_times import LoopTimes
from phasepoint.tune.pipeline import Width
from phasepoint.tune.source import BatchTime

MS = 1_000_000


def watched(batches_ms, *, wait_ms=1, body_ms=10):
    """A loop that was given these batches; its clock stands still but for what is told."""
    now = [0]
    times = LoopTimes(lambda: now[0], lambda: 0)
    for batch_ms in batches_ms:
        times.asked(now[0])
        now[0] += wait_ms * MS
        times.got(now[0] - wait_ms * MS, now[0], BatchTime(batch_ms * MS, 0))
        now[0] += body_ms * MS
    times.asked(now[0])
    return times


@pytest.mark.parametrize(
    ("batches_ms", "kept"),
    [
        ([5] * 100 + [50] * 16, 16),  # a store that has become slower
        ([50] * 100 + [5] * 16, 16),
        ([5] * 100 + [50] * 7, 107),  # a few, which may be chance
        (([5] * 49 + [200]) * 4, 200),  # rare long ones
        ([5] * 10 + [50] * 16, 26),  # too few to tell
    ],
)
def test_batches_that_are_old_count_no_more(batches_ms, kept):
    pipeline = watched(batches_ms).pipeline(Width(2, 4), cpus=4)
    assert len(pipeline.batch_ns) == kept


def test_the_usual_wait_is_that_of_the_last_steps():
    assert watched([5] * 10).usual_wait_ratio(16) == 0.0
    assert watched([5] * 20, wait_ms=10, body_ms=10).usual_wait_ratio(16) == pytest.approx(0.5)
    times = watched([5] * 20, wait_ms=1, body_ms=9)
    times.waits_ns[-1] = 10**12  # an epoch's first batch
    assert times.usual_wait_ratio(16) == pytest.approx(0.1)


@pytest.mark.parametrize(("workers", "body_ms"), [(0, 5), (1, 2.5)])
def test_waiting_for_a_core_while_the_loop_makes_a_batch_is_no_part_of_its_body(monkeypatch, workers, body_ms):
    now, delay = [0], [0]
    monkeypatch.setattr("phasepoint.tune.live.loop_times.run_delay_ns", lambda: delay[0])
    times = LoopTimes(lambda: now[0], lambda: 0)
    for _ in range(20):
        times.asked(now[0])
        times.got(now[0], now[0] + 10_000_000, BatchTime(10_000_000, 0, 3_000_000))
        delay[0] += 3_000_000
        now[0] += 15_000_000
    times.asked(now[0])
    found = times.pipeline(Width(workers, 0), cpus=1)
    assert max(found.body_ns) == pytest.approx(body_ms * 1e6, rel=0.1)
    assert set(found.batch_ns) == {7_000_000}
