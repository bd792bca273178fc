"""The training jobs of `noise.py`: equal steps, or with a stretch in which a step has more to do.

    python noise_jobs.py '{"framework": "torch", "net": "cnn", "seconds": 40, "change": "batch", "factor": 2, …}'

Prints as JSON how many steps it made, and the first step of the stretch and the first one behind it. With `record` set
to a folder it records itself, in two lines; without, `phasepoint record` does. A step learns from one batch; in the
stretch, which is by time (from 0.35 to 0.7 of the whole, or to the end), its batch has `factor` times as many rows
("batch"), or it also learns to give the same answer for so many more rows that are turned about ("views").
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS = {"cnn": 48, "transformer": 24, "mlp": 192}
SHAPES = {"cnn": (24, 24, 1), "transformer": (24, 48), "mlp": (256,)}
CLASSES = 10
BEGIN, END = 0.35, 0.7
"""Of the job's time: the stretch."""


@dataclass(frozen=True)
class Job:
    """What a job does.

    Attributes:
        framework: "jax" or "torch".
        net: "cnn", "transformer" or "mlp".
        seconds: how long it trains.
        change: "batch", "views", or "" for none.
        factor: times as much work in the stretch.
        for_good: whether the stretch lasts to the end.
        record: folder of the run that it records itself into; empty for none.
        seed: of the batches.
    """

    framework: str
    net: str
    seconds: float
    change: str = ""
    factor: float = 1.0
    for_good: bool = False
    record: str = ""
    seed: int = 0


Train = Callable[[Any, Any, int], None]
"""Trains on a batch; how many of its rows are turned about and looked at again."""


def batches(job: Job) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Until the time is up: images, classes, and whether the batch is of the stretch."""
    rng, rows = np.random.default_rng(job.seed), ROWS[job.net]
    most = int(rows * max(job.factor, 1.0))
    pool = [
        (rng.standard_normal((most, *SHAPES[job.net])).astype(np.float32), rng.integers(0, CLASSES, most))
        for _ in range(8)
    ]
    began, number = time.perf_counter(), 0
    while (share := (time.perf_counter() - began) / job.seconds) < 1:
        inside = bool(job.change) and share >= BEGIN and (job.for_good or share < END)
        taken = int(rows * job.factor) if inside and job.change == "batch" else rows
        images, classes = pool[number % len(pool)]
        yield images[:taken], classes[:taken], inside
        number += 1


def torch_train(job: Job) -> Train:
    import torch
    from torch import nn

    torch.manual_seed(0)
    if job.net == "cnn":
        body = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten())
        width = 32 * 10 * 10
    elif job.net == "transformer":
        layer = nn.TransformerEncoderLayer(48, 4, 128, dropout=0.0, batch_first=True)
        body, width = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten()), 24 * 48
    else:
        body = nn.Sequential(*(part for _ in range(4) for part in (nn.LazyLinear(512), nn.ReLU())))
        width = 512
    head = nn.Linear(width, CLASSES)
    body(torch.zeros(2, *shape_of(job)))
    model = nn.ModuleList((body, head))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train(images: Any, classes: Any, again: int) -> None:
        x = torch.from_numpy(images).reshape(len(images), *shape_of(job))
        y = torch.from_numpy(classes)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(body(x)), y)
        for begin in range(0, again, len(x)):
            part = min(again - begin, len(x))
            loss = loss + nn.functional.cross_entropy(head(body(x[:part].flip(1))), y[:part])
        loss.backward()
        optimizer.step()

    return train


def shape_of(job: Job) -> tuple[int, ...]:
    """Of an image in PyTorch: channels first."""
    return (1, 24, 24) if job.net == "cnn" else SHAPES[job.net]


def jax_train(job: Job) -> Train:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            if job.net == "cnn":
                for features, stride in ((16, 1), (32, 2)):
                    x = nn.relu(nn.Conv(features, (3, 3), stride)(x))
            elif job.net == "transformer":
                for _ in range(2):
                    x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x))
                    x = x + nn.Dense(48)(nn.relu(nn.Dense(128)(nn.LayerNorm()(x))))
            else:
                for _ in range(4):
                    x = nn.relu(nn.Dense(512)(x.reshape(len(x), -1)))
            return nn.Dense(CLASSES)(x.reshape(len(x), -1))

    net, optimizer = Net(), optax.adam(1e-4)
    params = net.init(jax.random.key(0), jnp.ones((2, *SHAPES[job.net])))
    state = [params, optimizer.init(params)]

    def loss_of(params: Any, x: Any, y: Any, again: int) -> Any:
        loss = optax.softmax_cross_entropy_with_integer_labels(net.apply(params, x), y).mean()
        for begin in range(0, again, len(x)):
            part = min(again - begin, len(x))
            turned = net.apply(params, jnp.flip(x[:part], 1))
            loss += optax.softmax_cross_entropy_with_integer_labels(turned, y[:part]).mean()
        return loss

    def update(params: Any, opt_state: Any, x: Any, y: Any, again: int) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y, again)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    compiled = jax.jit(update, static_argnums=4)

    def train(images: Any, classes: Any, again: int) -> None:
        state[0], state[1], loss = compiled(state[0], state[1], images, classes, again)
        loss.block_until_ready()

    return train


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    train = (torch_train if job.framework == "torch" else jax_train)(job)
    stretch: list[int] = []
    steps = 0
    context: Any = nullcontext()
    if job.record:
        import phasepoint

        context = phasepoint.record(job.record)
    with context as run:
        loader = batches(job) if run is None else run.steps(batches(job))
        for images, classes, inside in loader:
            if inside != bool(len(stretch) % 2):
                stretch.append(steps)
            train(images, classes, int((job.factor - 1) * len(images)) if inside and job.change == "views" else 0)
            steps += 1
    print(json.dumps({"steps": steps, "stretch": stretch}), flush=True)


if __name__ == "__main__":
    main()
