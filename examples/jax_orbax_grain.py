"""A JAX training job that a replay can take up at any of its checkpoints: Orbax, Grain, dropout, evaluations.

    python examples/jax_orbax_grain.py --out runs/a
    phasepoint replay run runs/a/run --phase NAME --out runs/b -- python examples/jax_orbax_grain.py --out runs/a

A checkpoint holds all that the next step depends on: parameters, optimizer, dropout's key, and where the data stands.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits

import phasepoint as pp

BATCH_SIZE = 48
TRAIN_IMAGES = 1536
EPOCH_STEPS = TRAIN_IMAGES // BATCH_SIZE

Batch = tuple[np.ndarray, np.ndarray]


class Net(nn.Module):
    """Two convolutions and a dense layer, with dropout between."""

    @nn.compact
    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:  # noqa: D102
        x = nn.relu(nn.Conv(16, (3, 3))(images))
        x = nn.relu(nn.Conv(32, (3, 3), strides=2)(x))
        x = nn.Dropout(0.3, deterministic=not train)(x.reshape(len(x), -1))
        return nn.Dense(10)(x)


class State(TrainState):
    """What training changes: step, parameters, optimizer, and the key that dropout draws from."""

    key: jax.Array


def load_data() -> tuple[grain.MapDataset, list[Batch]]:
    """Shuffled training batches, epoch after epoch, and the batches of an evaluation."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[..., None]
    labels = digits.target.astype(np.int32)
    train = grain.MapDataset.range(TRAIN_IMAGES).seed(0).shuffle().repeat()
    held_out = range(TRAIN_IMAGES, len(images) - BATCH_SIZE, BATCH_SIZE)
    evaluation = [(images[i : i + BATCH_SIZE], labels[i : i + BATCH_SIZE]) for i in held_out]
    return train.map(lambda i: (images[i], labels[i])).batch(BATCH_SIZE), evaluation


def create_state(steps: int) -> State:
    """The state before the first step."""
    net = Net()
    params = net.init(jax.random.key(0), np.zeros((1, 8, 8, 1), np.float32), train=False)
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-3, steps))
    return State.create(apply_fn=net.apply, params=params, tx=optimizer, key=jax.random.key(1))


@jax.jit
def train_step(state: State, batch: Batch) -> tuple[State, jax.Array]:
    """One step of training: the new state and the loss."""
    images, labels = batch
    key, dropout = jax.random.split(state.key)

    def loss_of(params: Any) -> jax.Array:
        logits = state.apply_fn(params, images, train=True, rngs={"dropout": dropout})
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients, key=key), loss


@jax.jit
def eval_step(state: State, batch: Batch) -> jax.Array:
    """Share of a batch's images that are told right."""
    images, labels = batch
    return (state.apply_fn(state.params, images, train=False).argmax(-1) == labels).mean()


def save(manager: ocp.CheckpointManager, step: int, state: State, batches: grain.DatasetIterator) -> None:
    """Write a checkpoint of the state and of the data's place."""
    items = {"state": ocp.args.StandardSave(state), "batches": grain.checkpoint.CheckpointSave(batches)}
    manager.save(step, args=ocp.args.Composite(**items))


def restore(checkpoint: str, state: State, batches: grain.DatasetIterator) -> State:
    """Read a checkpoint: gives the state, and moves `batches` to its place."""
    path = Path(checkpoint)
    items = {"state": ocp.args.StandardRestore(state), "batches": grain.checkpoint.CheckpointRestore(batches)}
    with ocp.CheckpointManager(path.parent, item_names=tuple(items)) as manager:
        return manager.restore(int(path.name), args=ocp.args.Composite(**items))["state"]


def main(arguments: list[str] | None = None) -> State:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the run and the checkpoints")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    args = parser.parse_args(arguments)
    data, evaluation = load_data()
    batches, state = iter(data), create_state(args.steps)
    folder = (args.out / "checkpoints").resolve()
    with pp.record(args.out / "run") as run, ocp.CheckpointManager(folder) as manager:
        if run.resume is not None:
            state = restore(run.resume.checkpoint, state, batches)
        step = int(state.step)
        for epoch in range(max(step - 1, 0) // EPOCH_STEPS, -(-args.steps // EPOCH_STEPS)):
            left = min((epoch + 1) * EPOCH_STEPS, args.steps) - step
            for batch in run.steps(itertools.islice(batches, left)):
                state, loss = train_step(state, batch)
                run.log(loss=loss)
                step += 1
                if step % args.checkpoint_every == 0:
                    save(manager, step, state, batches)
            with run.phase("eval"):
                for batch in run.steps(evaluation):
                    run.log(accuracy=eval_step(state, batch))
    return state


if __name__ == "__main__":
    main()
