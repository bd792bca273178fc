"""The model of the pipeline against what must hold, and against another simulation of the same queue."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from phasepoint.tune.pipeline import WORKER_OVERHEAD, PipelineTimes, Width, forecast

MS = 1_000_000


def times(body_ms, batch_ms, *, cpus=64, cpu_ratio=0.0, receive_ns=0.0):
    bodies = [int(value * MS) for value in body_ms]
    batches = [int(value * MS) for value in batch_ms]
    return PipelineTimes(bodies, 0.0, batches, cpu_ratio * sum(batches) / len(batches), receive_ns, cpus)


def slow_simulation(parts, width, steps=8000):
    """Batch by batch, with a core for everybody: who made the batch before, when it was dealt, when it is taken."""
    chance = random.Random(1)
    batches = [ns for _ in range(steps) for ns in chance.sample(parts.batch_ns, len(parts.batch_ns))][:steps]
    dealt, loop, workers = dict.fromkeys(range(width.ahead), 0.0), 0.0, [0.0] * width.workers
    began = 0.0
    for i in range(steps):
        worker = i % width.workers
        workers[worker] = max(workers[worker], dealt[i]) + WORKER_OVERHEAD * batches[i]
        loop = max(loop, workers[worker])
        dealt[i + width.ahead] = loop
        loop += parts.body_ns[i % len(parts.body_ns)]
        if i == steps // 2:
            began = loop
    return 1e9 * (steps - 1 - steps // 2) / (loop - began)


def by_ticks(parts, width, *, steps=40, tick_ns=50_000):
    """In small ticks: every tick the cores are shared out among those that want CPU time; what is left waits."""
    batch_part = parts.batch_cpu_ns / parts.batch_ns[0]
    body_cores = parts.body_cpu_ns / parts.body_ns[0]
    body_part = min(body_cores, 1)

    def wanted(busy, in_body, share):
        of_workers = busy * batch_part / (1 - batch_part + batch_part / share)
        return of_workers + in_body * body_cores / (1 - body_part + body_part / share)

    left = [parts.batch_ns[0] * WORKER_OVERHEAD] * width.workers
    made, taken, body, now, at = [0] * width.workers, 0, 0.0, 0, []
    while len(at) < steps:
        busy = [worker for worker, count in enumerate(made) if count * width.workers + worker < taken + width.ahead]
        share = 1.0
        while wanted(len(busy), body > 0, share) > parts.cpus:
            share *= 0.995
        for worker in busy:
            left[worker] -= tick_ns / (1 - batch_part + batch_part / share)
            if left[worker] <= 0:
                left[worker] += parts.batch_ns[0] * WORKER_OVERHEAD
                made[worker] += 1
        if body > 0:
            body -= tick_ns / (1 - body_part + body_part / share)
            if body <= 0:
                at.append(now)
        if body <= 0 and made[taken % width.workers] > taken // width.workers:
            taken, body = taken + 1, float(parts.body_ns[0])
        now += tick_ns
    return 1e9 * (steps // 2) / (at[-1] - at[-1 - steps // 2])


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("batch_cpu_ms", [4, 24])
@pytest.mark.parametrize("body_cpu_ms", [1, 9, 18])
def test_cores_are_shared_among_workers_and_loop(workers, batch_cpu_ms, body_cpu_ms):
    parts = PipelineTimes([10 * MS], body_cpu_ms * MS, [25 * MS], batch_cpu_ms * MS, 0.0, cpus=2)
    width = Width(workers, 2 * workers)
    assert forecast(parts, width).steps_per_s == pytest.approx(by_ticks(parts, width), rel=0.04)


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_a_simulation_event_by_event(seed):
    chance = random.Random(seed)
    parts = times(
        [chance.uniform(5, 15) for _ in range(40)],
        [chance.uniform(10, 30) * (10 if chance.random() < 0.03 else 1) for _ in range(40)],
    )
    width = Width(chance.randrange(1, 5), chance.randrange(5, 12))
    assert forecast(parts, width).steps_per_s == pytest.approx(slow_simulation(parts, width), rel=0.06)


def test_workers_that_are_started_for_each_epoch_cost_what_short_epochs_feel():
    step_ms = {}
    for length in (20, 200):
        short = replace(times([10], [10]), start_ns=50e6, epoch_steps=length)
        for starts in (False, True):
            step_ms[length, starts] = 1e3 / forecast(short, Width(2, 4, starts=starts)).steps_per_s
        assert forecast(short, Width(0, 0)).steps_per_s == pytest.approx(50)
        endless = 1e3 / forecast(replace(short, epoch_steps=math.inf), Width(2, 4)).steps_per_s
        assert step_ms[length, False] - endless == pytest.approx(WORKER_OVERHEAD * 10 / length)  # the first batch
    assert step_ms[20, True] - step_ms[20, False] == pytest.approx(2 * 50 / 20)
    assert step_ms[200, True] - step_ms[200, False] == pytest.approx(2 * 50 / 200)


def test_more_workers_are_never_slower_while_there_are_cores():
    parts = times([10], [35, 20, 90])
    speeds = [forecast(parts, Width(workers, 2 * workers)).steps_per_s for workers in range(9)]
    assert all(later >= 0.999 * earlier for earlier, later in pairwise(speeds))
    assert speeds[-1] == pytest.approx(100, rel=0.02)


def test_cores_bound_what_workers_can_do():
    parts = times([1], [40], cpus=2, cpu_ratio=1.0)
    many = forecast(parts, Width(16, 32))
    assert (round(many.steps_per_s), many.limited_by) == (round(50 / WORKER_OVERHEAD), "cpu")
    assert forecast(parts, Width(1, 2)).limited_by == "input"
    assert forecast(times([10], [1]), Width(1, 2)).limited_by == "loop"


def test_a_longer_queue_helps_only_where_times_scatter():
    steady, tailed = times([10], [18]), times([10], [8] * 19 + [150])
    gain = [
        forecast(parts, Width(2, 16)).steps_per_s / forecast(parts, Width(2, 2)).steps_per_s
        for parts in (steady, tailed)
    ]
    assert gain[0] < 1.1 < gain[1]


def test_what_was_kept_need_not_be_made():
    parts = replace(times([10], [30], cpus=2, cpu_ratio=1.0), saved_ns=27e6)
    assert forecast(parts, Width(0, 0)).steps_per_s == pytest.approx(1000 / 40)
    assert forecast(parts, Width(0, 0, caches=True)).steps_per_s == pytest.approx(1000 / 13)
    assert forecast(parts, Width(1, 2, caches=True)).steps_per_s == pytest.approx(100)
    more = replace(parts, saved_ns=40e6)  # than batches take: something is left all the same
    assert 1000 / 11 < forecast(more, Width(0, 0, caches=True)).steps_per_s < 100
