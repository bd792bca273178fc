"""The plain training jobs of `benchmarks/findings.py`, in JAX and PyTorch, with places for a cause to be planted.

Both train a small dense network on random images for a fixed number of steps. They are good jobs: compiled before the
loop begins, batches ready in memory, work that keeps one core busy and, in JAX, a host that runs one step ahead.
"""

import os
from typing import Any

import numpy as np

from findings_loop import WIDTH, images_of, run_loop
from findings_plan import ROWS, Job, Plan, Plants

CLASSES = 10


def run_jax(plan: Plan, plants: Plants) -> dict[str, Any]:
    """The JAX job: three dense layers, Adam."""
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.adam(1e-4)
    labels = jnp.asarray(np.random.default_rng(1).integers(0, CLASSES, ROWS))

    def loss_of(params: Any, images: Any, step: Any, is_planted: bool) -> Any:
        device = plants[is_planted].device
        logits = _jax_logits(params, images if device is None else device(images, step))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[: len(images)]).mean()

    def train_step(state: Any, images: Any, step: Any, is_planted: bool) -> Any:
        params, opt_state = state
        loss, grads = jax.value_and_grad(loss_of)(params, images, step, is_planted)
        updates, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), loss

    stepping, eval_step = jax.jit(train_step, static_argnums=3), jax.jit(_jax_logits)
    params = jax.tree.map(jnp.asarray, _weights(plants[plan.planted].depth))
    job = Job(None, (params, optimizer.init(params)))
    job.wait = lambda: jax.block_until_ready(job.loss)

    def train(job: Job, step: int, images: Any, is_planted: bool) -> Any:
        job.state, loss = stepping(job.state, images, np.int32(step), is_planted)
        return loss

    def evaluate(job: Job, images: Any) -> None:
        eval_step(job.state[0], images).block_until_ready()

    for is_planted in (True, False):
        if plants[is_planted].warm and (plan.toggle or is_planted == plan.planted):
            rows = plants[is_planted].rows(0)
            stepping(job.state, images_of(0)[:rows], np.int32(0), is_planted)[1].block_until_ready()
            evaluate(job, images_of(0))
    return run_loop(plan, plants, train, evaluate, job)


def _jax_logits(params: Any, images: Any) -> Any:
    import jax
    import jax.numpy as jnp

    for weight in params["wide"]:
        images = jax.nn.relu(images @ weight)
    small = images[:, :32]
    for index, weight in enumerate(params["small"]):
        small = jnp.tanh(small @ weight) * (1 + index / 7) + jnp.cos(small) / (index + 2)
    return images @ params["out"] + small[:, :CLASSES]


def _weights(depth: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)

    wide = [weight(WIDTH, WIDTH) for _ in range(3)]
    return {"wide": wide, "small": [weight(32, 32) for _ in range(depth)], "out": weight(WIDTH, CLASSES)}


def run_torch(plan: Plan, plants: Plants) -> dict[str, Any]:
    """The same network in PyTorch, on one thread."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    plant = plants[plan.planted]
    body = nn.Sequential(*(module for _ in range(3) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    small = nn.Sequential(*(module for _ in range(plant.depth) for module in (nn.Linear(32, 32), nn.Tanh())))
    net = nn.ModuleList([body, small, nn.Linear(WIDTH, CLASSES)])
    labels = torch.as_tensor(np.random.default_rng(1).integers(0, CLASSES, ROWS))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, foreach=True)
    loss_of = nn.CrossEntropyLoss()

    def logits_of(images: Any) -> Any:
        hidden = body(images)
        return net[2](hidden) + small(hidden[:, :32])[:, :CLASSES]

    forward = torch.compile(logits_of, dynamic=False) if plant.compile else logits_of

    def train(job: Job, step: int, images: Any, is_planted: bool) -> Any:
        tensor, device = torch.from_numpy(images), plants[is_planted].device
        if device is not None:
            tensor = device(tensor, step)
        optimizer.zero_grad()
        loss = loss_of(forward(tensor), labels[: len(tensor)])
        loss.backward()
        optimizer.step()
        if plants[is_planted].fetch:
            loss.item()
        return loss

    @torch.no_grad()
    def evaluate(job: Job, images: Any) -> None:
        logits_of(torch.from_numpy(images)).argmax(-1)

    job = Job(None, (net, optimizer))
    if plant.warm:
        train(job, 0, images_of(0)[: plant.rows(0)], plan.planted)
        evaluate(job, images_of(0))
    return run_loop(plan, plants, train, evaluate, job)


NETS = {"jax": run_jax, "torch": run_torch}


def one_thread_environ() -> dict[str, str]:
    """One thread of work a job, so that a second core is left to the host's own thread."""
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", ""),
        "NPROC": "1",  # threads of XLA's pool
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    }
