"""Two real training jobs with quick steps for `benchmarks/estimates.py`: training, evaluation, a slow input."""

import time
from collections.abc import Iterator

import numpy as np

from phasepoint.recorder import record

TRAIN_STEPS, EVAL_STEPS = 300, 60


def batches(rng: np.random.Generator, n: int, shape: tuple[int, ...], *, slow: bool) -> Iterator[np.ndarray]:
    """Random images; slow ones are smoothed first, as an expensive augmentation would."""
    for _ in range(n):
        images = rng.standard_normal(shape, dtype=np.float32)
        if slow:
            for _ in range(8):
                images = (images + np.roll(images, 1, axis=1) + np.roll(images, 1, axis=2)) / 3
        yield images


def blocks(seconds: float) -> Iterator[tuple[str, bool]]:
    """Training and evaluation in turn until the time is up; the input is slow from half of it to 70 %."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        slow = 0.5 <= passed / seconds < 0.7
        yield "train", slow
        yield "eval", False


def run_jax(out: str, seconds: float) -> None:
    """A small convolutional network with flax and optax."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Conv(16, (3, 3))(x))
            x = nn.relu(nn.Conv(24, (3, 3), strides=2)(x))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    net, optimizer, rng = Net(), optax.adam(1e-3), np.random.default_rng(0)
    shape = (48, 28, 28, 1)
    params = net.init(jax.random.key(0), jnp.zeros(shape))
    labels = jnp.asarray(rng.integers(0, 10, shape[0]))

    def loss_of(params, images):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(params, images), labels).mean()

    @jax.jit
    def train_step(params, opt_state, images):
        loss, grads = jax.value_and_grad(loss_of)(params, images)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    eval_step = jax.jit(loss_of)
    opt_state = optimizer.init(params)
    with record(out, budget=None) as run:
        for kind, slow in blocks(seconds):
            if kind == "eval":
                for images in run.steps(batches(rng, EVAL_STEPS, shape, slow=False)):
                    float(eval_step(params, images))
                continue
            for images in run.steps(batches(rng, TRAIN_STEPS, shape, slow=slow)):
                params, opt_state, loss = train_step(params, opt_state, images)
                loss.item()


def run_torch(out: str, seconds: float) -> None:
    """The same network in PyTorch."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng, shape = np.random.default_rng(0), (48, 28, 28, 1)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.LazyLinear(10)),
    )
    net(torch.zeros(1, 1, 28, 28))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    labels, loss_of = torch.as_tensor(rng.integers(0, 10, shape[0])), nn.CrossEntropyLoss()
    with record(out, budget=None) as run:
        for kind, slow in blocks(seconds):
            if kind == "eval":
                for images in run.steps(batches(rng, EVAL_STEPS, shape, slow=False)):
                    with torch.no_grad():
                        loss_of(net(torch.from_numpy(images).permute(0, 3, 1, 2)), labels).item()
                continue
            for images in run.steps(batches(rng, TRAIN_STEPS, shape, slow=slow)):
                optimizer.zero_grad()
                loss = loss_of(net(torch.from_numpy(images).permute(0, 3, 1, 2)), labels)
                loss.backward()
                optimizer.step()
                loss.item()


JOBS = {"jax": run_jax, "torch": run_torch}
