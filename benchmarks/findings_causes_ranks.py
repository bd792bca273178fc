"""Causes between devices in `benchmarks/findings.py`: collectives that nothing hides, one process that is late."""

import os
from typing import Any

import numpy as np

from findings_causes_host import slow_after
from findings_loop import WIDTH, images_of, run_loop
from findings_plan import FIVE_STRENGTHS, JAX_SYNC, ROWS, TORCH, TORCH_FIVE, Cause, Job, Plan, Plant, Plants

_CHUNK = 32_768
"""Elements by which the array grows that is summed over the devices."""

_PORT = 29_417


def exchange(plan: Plan) -> Plant:
    """A large sum over two processes after every step; without the cause one number."""
    import torch
    import torch.distributed as dist

    _meet_torch(plan)
    value = torch.ones(_CHUNK * max(plan.repeats, 1) if plan.planted else 1)
    return Plant(after=lambda step, job: dist.all_reduce(value.fill_(1.0)))


def _meet_torch(plan: Plan) -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        place = f"file://{plan.folder}/meet"
        dist.init_process_group("gloo", init_method=place, rank=plan.rank, world_size=plan.ranks)


def late_process(plan: Plan) -> Plant:
    """The last of the processes does something else before all meet."""
    late = slow_after(plan) if plan.planted and plan.rank == plan.ranks - 1 else None
    meet = _torch_meeting(plan) if plan.framework == "torch" else _jax_meeting(plan)

    def after(step: int, job: Job) -> None:
        if late is not None:
            late(step)
        meet()

    return Plant(after=after)


def _torch_meeting(plan: Plan) -> Any:
    import torch
    import torch.distributed as dist

    _meet_torch(plan)
    value = torch.ones(1)
    return lambda: dist.all_reduce(value.fill_(1.0))


def _jax_meeting(plan: Plan) -> Any:
    import jax
    from jax.experimental import multihost_utils

    if not jax.distributed.is_initialized():
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{_PORT}", num_processes=plan.ranks, process_id=plan.rank)
    value = np.ones(1, np.float32)
    return lambda: multihost_utils.process_allgather(value)


def psum(plan: Plan) -> Plant:
    """See `run_mesh`: the sum is part of its program."""
    return Plant()


def run_mesh(plan: Plan, plants: Plants) -> dict[str, Any]:
    """Data parallel on two devices of one process: gradients of each half of the batch, summed with a large array."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2,), ("data",))
    split, whole = PartitionSpec("data"), PartitionSpec()
    halves = NamedSharding(mesh, split)
    weights = [np.eye(WIDTH, dtype=np.float32) for _ in range(3)]
    job = Job(None, jax.device_put(weights, NamedSharding(mesh, whole)))
    large = jax.device_put(np.ones((2, _CHUNK * max(plan.repeats, 1)), np.float32), halves)

    def loss_of(weights: Any, images: Any) -> Any:
        for weight in weights:
            images = jnp.tanh(images @ weight)
        return (images**2).mean()

    def half(weights: Any, images: Any, large: Any, is_planted: bool) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(weights, images)
        weights = [weight - 1e-4 * grad for weight, grad in zip(weights, grads, strict=True)]
        after_loss = jax.lax.optimization_barrier((large, loss))[0] if is_planted else loss
        total = jax.lax.psum(after_loss, "data")
        return weights, jax.lax.psum(loss, "data") + 1e-30 * total.ravel()[0]

    def build(is_planted: bool) -> Any:
        def body(weights: Any, images: Any, large: Any) -> Any:
            return half(weights, images, large, is_planted)

        mapped = jax.shard_map(
            body, mesh=mesh, in_specs=(whole, split, split), out_specs=(whole, whole), check_vma=False
        )
        return jax.jit(mapped)

    stepping = {is_planted: build(is_planted) for is_planted in (True, False)}
    job.wait = lambda: jax.block_until_ready(job.loss)

    def train(job: Job, step: int, images: Any, is_planted: bool) -> Any:
        job.state, loss = stepping[is_planted](job.state, jax.device_put(images, halves), large)
        return loss

    for is_planted in (True, False):
        if plan.toggle or is_planted == plan.planted:
            train(job, 0, images_of(0)[:ROWS], is_planted).block_until_ready()
    return run_loop(plan, plants, train, lambda job, images: None, job)


_FIVE = tuple(("jax", False, strength) for strength in FIVE_STRENGTHS)

_TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2 " + os.environ.get("XLA_FLAGS", "")}

CAUSES = (
    Cause(
        "EXPOSED-COMMUNICATION",
        psum,
        _FIVE,
        shared=False,
        per="step",
        probe_repeats=64,
        environ=_TWO_DEVICES,
        nets={"jax": run_mesh},
    ),
    Cause("EXPOSED-COMMUNICATION", exchange, TORCH_FIVE, shared=False, per="step", probe_repeats=16, ranks=2),
    Cause("STRAGGLER", late_process, (*TORCH, *JAX_SYNC), shared=False, also=("DEVICE-IDLE",), ranks=2),
)
