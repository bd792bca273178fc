"""Causes that the host plants between the steps of `benchmarks/findings.py`: loader, host work, fetching, memory."""

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from findings_plan import FIVE_STRENGTHS, JAX, JAX_SYNC, TORCH, Cause, Job, Plan, Plant, Work

_SLOW_SHARE = 0.02
"""Share of the steps that are slow, where some are."""

_LEAK_BYTES = 4_000_000_000
"""What a whole run would leak at strength 1."""

_LEAK_LENGTH = 6
"""Growth is judged from samples of memory, one a second: a leak of 5 MB/s takes half a minute to stand out."""

_HEAP_OBJECTS = 400_000


def _spend(plan: Plan) -> Callable[[float], None]:
    """Waiting, as for a disk or a network, at the middle strengths; real work of the processor at the others."""
    return time.sleep if 0.1 < plan.strength < 0.3 else Work()


def slow_loader(plan: Plan) -> Plant:
    """Every batch takes long to make."""
    if not plan.planted:
        return Plant()
    spend = _spend(plan)
    return Plant(load=lambda step: spend(plan.host_s))


def busy_host(plan: Plan) -> Plant:
    """The host does something else after every step."""
    if not plan.planted:
        return Plant()
    spend = _spend(plan)
    return Plant(after=lambda step, job: spend(plan.host_s))


def slow_after(plan: Plan) -> Callable[[int], None]:
    """What one late process does after a step."""
    spend = _spend(plan)
    return lambda step: spend(plan.extra_s)


def fetch_each(plan: Plan) -> Plant:
    """The loss is fetched every step; then the host works, which it could have done while the device worked."""
    spend = _spend(plan)
    return Plant(fetch=plan.planted, after=lambda step, job: spend(plan.extra_s))


def slow_steps(plan: Plan) -> Plant:
    """Now and then, by chance, the host is held up."""
    if not plan.planted:
        return Plant()
    hit = np.random.default_rng(0).random(plan.steps) < _SLOW_SHARE
    hit[plan.steps // 2] = True
    spend, long_s = _spend(plan), plan.extra_s * plan.steps / hit.sum()

    def after(step: int, job: Job) -> None:
        if hit[step]:
            spend(long_s)

    return Plant(after=after)


def leak(plan: Plan) -> Plant:
    """A list that keeps something of every step; for longer than the other jobs, as memory is sampled once a second."""
    steps = _LEAK_LENGTH * plan.steps
    if not plan.planted:
        return Plant(steps=steps)
    kept: list[Any] = []
    size = int(_LEAK_BYTES * plan.strength / steps)
    return Plant(after=lambda step, job: kept.append(np.ones(size, np.uint8)), steps=steps)


def collect_garbage(plan: Plan) -> Plant:
    """A large heap of objects that point at each other, gone through now and then by `gc.collect()`."""
    if not plan.planted or not plan.repeats:
        return Plant()
    heap: list[Any] = [[] for _ in range(_HEAP_OBJECTS)]
    for index, entry in enumerate(heap):
        entry.append(heap[index - 1])
    gc.collect()
    every = max(plan.steps // plan.repeats, 1)

    def after(step: int, job: Job) -> None:
        if step % every == every - 1:
            heap[step % _HEAP_OBJECTS].append(heap[0])
            gc.collect()

    return Plant(after=after)


def dispatch_small(plan: Plan) -> Plant:
    """A running mean of many small arrays, kept in Python one by one; without the cause in one call."""
    import jax
    import jax.numpy as jnp

    means = [jnp.zeros(64) for _ in range(max(plan.repeats, 1))]
    value = jnp.ones(64)
    one = jax.jit(lambda mean: mean * 0.99 + value)
    every = jax.jit(lambda stacked: stacked * 0.99 + value)
    stacked = [jnp.stack(means)]
    one(means[0]), every(stacked[0])  # compiled before the loop

    def by_one(step: int, job: Job) -> None:
        for index, mean in enumerate(means):
            means[index] = one(mean)
        means[-1].block_until_ready()

    def at_once(step: int, job: Job) -> None:
        stacked[0] = every(stacked[0])
        stacked[0].block_until_ready()

    return Plant(after=by_one if plan.planted else at_once)


_AHEAD = tuple(("jax", True, strength) for strength in FIVE_STRENGTHS)

CAUSES = (
    Cause("INPUT-STALL", slow_loader, (*JAX, *TORCH, *JAX_SYNC[1:]), measured="hooks", also=("DEVICE-IDLE",)),
    Cause("SYNC-EVERY-STEP", fetch_each, _AHEAD, shared=False, also=("DEVICE-IDLE",)),
    Cause("DEVICE-IDLE", busy_host, (*JAX, *TORCH), measured="hooks", also=("SYNC-EVERY-STEP", "HOST-DISPATCH")),
    Cause(
        "HOST-DISPATCH",
        dispatch_small,
        tuple(("jax", False, strength) for strength in FIVE_STRENGTHS),
        shared=False,
        per="step",
        probe_repeats=600,
        also=("TINY-KERNELS", "DEVICE-IDLE", "SYNC-EVERY-STEP"),
        times=4,
    ),
    Cause("SLOW-STEPS", slow_steps, (*JAX_SYNC, *TORCH), measured="hooks", also=("DEVICE-IDLE",)),
    Cause("MEMORY-GROWTH", leak, (*JAX, *TORCH), costs=False),
    Cause(
        "GC-PAUSE",
        collect_garbage,
        (*JAX_SYNC, *TORCH),
        per="run",
        measured="hooks",
        probe_repeats=6,
        also=("SLOW-STEPS", "DEVICE-IDLE"),
    ),
)
