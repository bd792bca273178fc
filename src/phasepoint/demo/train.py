"""The demo's training job: a convolutional network on scikit-learn's handwritten digits, on the CPU, with JAX.

It is an ordinary script with the two lines of Phasepoint in it, and those that restore a checkpoint, so that
`phasepoint replay run` can take it to any of its phases. What makes it a demo is the schedule in
`demo.schedule`: an evaluation now and then, checkpoints, a stretch in which the input pipeline is slow, and
a change of the batch size. The job writes down which step was which (`truth.json`), from its own knowledge of
the schedule and not from any measurement, so that what the summary says can be held against it.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

from phasepoint.demo.planted import CHECKPOINTS_FOLDER, TruthLog
from phasepoint.demo.schedule import StepBlock, plan_schedule
from phasepoint.recorder import Recording, record

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, 16 × 16 pixels: `images` float32 `[n, 16, 16, 1]`, `labels` int32 `[n]`."""

    images: np.ndarray
    labels: np.ndarray


def load_digits_split() -> tuple[Digits, Digits]:
    """Training and evaluation split of scikit-learn's digits (1,797 images; source: UCI optdigits)."""
    raw = load_digits()
    images = (raw.images / 16.0).astype(np.float32).repeat(2, axis=1).repeat(2, axis=2)[..., None]
    labels = raw.target.astype(np.int32)
    return Digits(images[:1536], labels[:1536]), Digits(images[1536:], labels[1536:])


def train_batches(data: Digits, block: StepBlock, rng: np.random.Generator) -> Iterator[Batch]:
    """Random batches for one block; a slow block distorts its images on the loader's thread, one by one."""
    for _ in range(block.steps):
        rows = rng.integers(0, len(data.images), block.batch_size)
        images = data.images[rows]
        if block.slow_input:
            images = distort(images, rng, passes=block.input_passes)
        yield images, data.labels[rows]


def distort(images: np.ndarray, rng: np.random.Generator, *, passes: int) -> np.ndarray:
    """Rotate every image by a random angle with cubic splines, `passes` times over: real, slow augmentation."""
    turned = images
    for _ in range(passes):
        angles = rng.uniform(-15, 15, len(images))
        turned = np.stack([rotate(im, a, reshape=False, order=3) for im, a in zip(images, angles, strict=True)])
    return turned.astype(np.float32)


def eval_batches(data: Digits, batch_size: int, n_batches: int) -> Iterator[Batch]:
    """The first `n_batches` full batches of the evaluation split, going round when it ends."""
    for index in range(n_batches):
        rows = (np.arange(batch_size) + index * batch_size) % len(data.images)
        yield data.images[rows], data.labels[rows]


@dataclass(frozen=True)
class DigitsModel:
    """The compiled functions and the first state of the network."""

    state: Any
    train_step: Callable[..., Any]
    eval_step: Callable[..., Any]


def build_model(seed: int) -> DigitsModel:
    """A small convolutional network with Adam: two convolutions, a pool and two dense layers."""

    class DigitsNet(nn.Module):
        """Two convolutions, a mean pool, two dense layers."""

        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(32, (3, 3))(x))
            x = nn.relu(nn.Conv(48, (3, 3))(x))
            x = nn.avg_pool(x, (2, 2), (2, 2))
            x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
            return nn.Dense(10)(x)

    net, optimizer = DigitsNet(), optax.adam(1e-3)
    params = net.init(jax.random.key(seed), jnp.zeros((1, 16, 16, 1)))

    def loss_of(params: Any, images: Any, labels: Any) -> Any:
        logits = net.apply(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @partial(jax.jit, donate_argnums=0)
    def train_step(state: Any, images: Any, labels: Any) -> Any:
        params, opt_state = state
        loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
        updates, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), loss

    @jax.jit
    def eval_step(state: Any, images: Any, labels: Any) -> Any:
        return (net.apply(state[0], images).argmax(-1) == labels).mean()

    return DigitsModel((params, optimizer.init(params)), train_step, eval_step)


def train(run: Recording, seconds: float, *, seed: int = 0) -> TruthLog:
    """Train for about `seconds` under the recorder and return which step was what."""
    train_data, eval_data = load_digits_split()
    model, rng = build_model(seed), np.random.default_rng(seed)
    truth = TruthLog()
    folder = Path(str(run.path)).absolute() / CHECKPOINTS_FOLDER
    with ocp.StandardCheckpointer() as checkpointer:
        state, loss = model.state, float("nan")
        if run.resume is not None and run.resume.checkpoint is not None:
            state = checkpointer.restore(run.resume.checkpoint, state)
        for block in plan_schedule(seconds):
            if block.kind == "eval":
                eval_data_batches = eval_batches(eval_data, block.batch_size, block.steps)
                with run.phase("eval"):
                    for images, labels in run.steps(eval_data_batches, resume=True):
                        model.eval_step(state, images, labels).block_until_ready()
                truth.add_block(block)
                continue
            batches = enumerate(train_batches(train_data, block, rng))
            for index, (images, labels) in run.steps(batches, resume=True):
                state, loss = model.train_step(state, images, labels)
                loss.block_until_ready()
                run.log(loss=loss)
                if block.saves_at(index):
                    checkpointer.save(folder / f"step-{truth.n_steps + index:06d}", state)
                    checkpointer.wait_until_finished()
            truth.add_block(block)
    truth.final_loss = float(loss)
    return truth


def main() -> None:
    """Entry of `python -m phasepoint.demo.train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--budget", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    started = time.perf_counter()
    with record(args.out, budget=args.budget, seed=args.seed) as run:
        truth = train(run, args.seconds, seed=args.seed)
    truth.wall_s = time.perf_counter() - started
    truth.write(run.path)  # a replay's own folder, in a replay


if __name__ == "__main__":
    main()
