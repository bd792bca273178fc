"""The model of the pipeline against what must hold, and against another simulation of the same queue."""

import random
from itertools import pairwise

import pytest

from phasepoint.tune.pipeline import WORKER_OVERHEAD, PipelineTimes, Width, forecast

MS = 1_000_000


def times(body_ms, batch_ms, *, cpus=64, cpu_ratio=0.0, receive_ns=0.0):
    bodies = [int(value * MS) for value in body_ms]
    batches = [int(value * MS) for value in batch_ms]
    return PipelineTimes(bodies, 0.0, batches, cpu_ratio * sum(batches) / len(batches), receive_ns, cpus)


def slow_simulation(parts, width, steps=2000):
    """Event by event: who is free, what has been asked for, what is done."""
    done, asked, loop, workers = {}, dict.fromkeys(range(width.ahead), 0.0), 0.0, [0.0] * width.workers
    began = 0.0
    for i in range(steps):
        worker = min(range(width.workers), key=workers.__getitem__)
        start = max(workers[worker], asked[i])
        done[i] = workers[worker] = start + WORKER_OVERHEAD * parts.batch_ns[i % len(parts.batch_ns)]
        loop = max(loop, done[i])
        asked[i + width.ahead] = loop
        loop += parts.body_ns[i % len(parts.body_ns)]
        if i == steps // 2:
            began = loop
    return 1e9 * (steps - 1 - steps // 2) / (loop - began)


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_a_simulation_event_by_event(seed):
    chance = random.Random(seed)
    parts = times(
        [chance.uniform(5, 15) for _ in range(40)],
        [chance.uniform(10, 30) * (10 if chance.random() < 0.03 else 1) for _ in range(40)],
    )
    width = Width(chance.randrange(1, 5), chance.randrange(5, 12))
    assert forecast(parts, width).steps_per_s == pytest.approx(slow_simulation(parts, width), rel=0.06)


def test_more_workers_are_never_slower_while_there_are_cores():
    parts = times([10], [35, 20, 90])
    speeds = [forecast(parts, Width(workers, 2 * workers)).steps_per_s for workers in range(9)]
    assert all(later >= 0.999 * earlier for earlier, later in pairwise(speeds))
    assert speeds[-1] == pytest.approx(100, rel=0.02)


def test_cores_bound_what_workers_can_do():
    parts = times([1], [40], cpus=2, cpu_ratio=1.0)
    many = forecast(parts, Width(16, 32))
    assert (round(many.steps_per_s), many.limited_by) == (50, "cpu")
    assert forecast(parts, Width(1, 2)).limited_by == "input"
    assert forecast(times([10], [1]), Width(1, 2)).limited_by == "loop"


def test_a_longer_queue_helps_only_where_times_scatter():
    steady, tailed = times([10], [18]), times([10], [8] * 19 + [150])
    gain = [
        forecast(parts, Width(2, 16)).steps_per_s / forecast(parts, Width(2, 2)).steps_per_s
        for parts in (steady, tailed)
    ]
    assert gain[0] < 1.1 < gain[1]
