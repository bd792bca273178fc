"""The training jobs of `fastforward_faithful.py`: six networks, two frameworks, each with evaluations and checkpoints.

    python benchmarks/fastforward_jobs.py jax-cnn --out FOLDER --seconds 30

A job trains for as many epochs as take about so long here, writes its run to FOLDER/run and its checkpoints to
FOLDER/checkpoints, and can be taken up at any of them. Data are random numbers from a seed per epoch.
"""

import argparse
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.recorder import record

BUDGET = 0.03
EPOCH_STEPS, EVAL_STEPS, CHECKPOINT_EVERY = 200, 24, 200
CLASSES, WORDS = 10, 256
BUCKETS = (16, 32, 64)
"""Lengths of the sequences of a batch, where they are put together by length."""

Batch = tuple[np.ndarray, np.ndarray]


def images(epoch: int, steps: int, shape: tuple[int, ...]) -> Iterator[Batch]:
    """Batches of images with labels."""
    rng = np.random.default_rng((1, epoch))
    for _ in range(steps):
        yield rng.standard_normal(shape, np.float32), rng.integers(0, CLASSES, shape[0])


def stalling_images(epoch: int, steps: int, shape: tuple[int, ...]) -> Iterator[Batch]:
    """The same, with a file to be unpacked every so often: eight batches in a row wait for it."""
    packed = zlib.compress(np.random.default_rng(0).integers(0, 16, 6_000_000, np.uint8).tobytes(), 1)
    for step, batch in enumerate(images(epoch, steps, shape)):
        if step % 50 >= 42:
            zlib.decompress(packed)
        yield batch


def texts(epoch: int, steps: int, shape: tuple[int, ...]) -> Iterator[Batch]:
    """Batches of words, each with the one that follows."""
    rng = np.random.default_rng((2, epoch))
    for _ in range(steps):
        words = rng.integers(0, WORDS, (shape[0], shape[1] + 1))
        yield words[:, :-1], words[:, 1:]


def bucketed_texts(epoch: int, steps: int, shape: tuple[int, ...]) -> Iterator[Batch]:
    """Batches of words of three lengths, in random order."""
    rng = np.random.default_rng((3, epoch))
    for _ in range(steps):
        words = rng.integers(0, WORDS, (shape[0], int(rng.choice(BUCKETS)) + 1))
        yield words[:, :-1], words[:, 1:]


class JaxTraining:
    """A flax module, trained with Adam and dropout, kept by Orbax."""

    def __init__(self, net: Any, example: np.ndarray) -> None:
        import jax
        import optax

        self.step, self._optimizer = 0, optax.adam(1e-3)
        key = jax.random.key(0)
        params = net.init(key, example, train=False)
        self.state = {"params": params, "optimizer": self._optimizer.init(params), "step": 0}

        def loss_of(params, inputs, labels, dropout):
            train = dropout is not None
            logits = net.apply(params, inputs, train=train, rngs={"dropout": dropout} if train else None)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        @jax.jit
        def train_step(state, inputs, labels):
            dropout = jax.random.fold_in(key, state["step"])
            loss, gradients = jax.value_and_grad(loss_of)(state["params"], inputs, labels, dropout)
            updates, optimizer = self._optimizer.update(gradients, state["optimizer"])
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "optimizer": optimizer, "step": state["step"] + 1}, loss

        @jax.jit
        def eval_step(state, inputs, labels):
            return loss_of(state["params"], inputs, labels, None)

        self._train_step, self._eval_step = train_step, eval_step

    def train(self, batch: Batch) -> float:
        self.state, loss = self._train_step(self.state, *batch)
        self.step += 1
        return float(loss)

    def evaluate(self, batch: Batch) -> float:
        return float(self._eval_step(self.state, *batch))

    def save(self, path: Path) -> None:
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.resolve(), self.state)

    def restore(self, path: str) -> None:
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            self.state = checkpointer.restore(path, self.state)
        self.step = int(self.state["step"])


class TorchTraining:
    """A module, trained with AdamW and dropout, kept by `torch.save`."""

    def __init__(self, net: Any) -> None:
        import torch

        self.step, self._torch = 0, torch
        self.net, self.optimizer = net, torch.optim.AdamW(net.parameters(), lr=1e-3)

    def train(self, batch: Batch) -> float:
        self.net.train()
        self.optimizer.zero_grad()
        loss = self._loss(batch)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def evaluate(self, batch: Batch) -> float:
        self.net.eval()
        with self._torch.no_grad():
            return self._loss(batch).item()

    def _loss(self, batch: Batch) -> Any:
        inputs, labels = (self._torch.from_numpy(part) for part in batch)
        logits = self.net(inputs)
        return self._torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def save(self, path: Path) -> None:
        parts = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        self._torch.save({**parts, "step": self.step, "random": self._torch.get_rng_state()}, path)

    def restore(self, path: str) -> None:
        found = self._torch.load(path)
        self.net.load_state_dict(found["net"])
        self.optimizer.load_state_dict(found["optimizer"])
        self.step = found["step"]
        self._torch.set_rng_state(found["random"])


def jax_cnn() -> JaxTraining:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, *, train):
            for features in (16, 32):
                x = nn.avg_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.relu(nn.Conv(64, (3, 3))(x)).mean((1, 2))
            return nn.Dense(CLASSES)(nn.Dropout(0.2, deterministic=not train)(x))

    return JaxTraining(Net(), np.zeros(JOBS["jax-cnn"][2], np.float32))


def jax_transformer() -> JaxTraining:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, words, *, train):
            x = nn.Embed(WORDS, 96)(words)
            for _ in range(2):
                y = nn.LayerNorm()(x)
                x += nn.MultiHeadDotProductAttention(4)(y, mask=nn.make_causal_mask(words))
                y = nn.Dense(96)(nn.gelu(nn.Dense(384)(nn.LayerNorm()(x))))
                x += nn.Dropout(0.1, deterministic=not train)(y)
            return nn.Dense(WORDS)(x)

    return JaxTraining(Net(), np.zeros(JOBS["jax-transformer"][2], np.int64))


def jax_buckets() -> JaxTraining:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, words, *, train):
            x = nn.RNN(nn.GRUCell(128))(nn.Embed(WORDS, 96)(words))
            return nn.Dense(WORDS)(nn.Dropout(0.1, deterministic=not train)(x))

    return JaxTraining(Net(), np.zeros(JOBS["jax-buckets"][2], np.int64))


def torch_cnn() -> TorchTraining:
    from torch import nn

    class Channels(nn.Module):
        def forward(self, x):
            return x.movedim(3, 1)

    blocks: list[Any] = [Channels()]
    for before, after in ((1, 16), (16, 32), (32, 64)):
        blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return TorchTraining(nn.Sequential(*blocks, nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 9, CLASSES)))


def torch_transformer() -> TorchTraining:
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return TorchTraining(nn.Sequential(nn.Embedding(WORDS, 64), encoder, nn.Linear(64, WORDS)))


def torch_buckets() -> TorchTraining:
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(WORDS, 96), nn.LSTM(96, 96, batch_first=True)
            self.dropout, self.head = nn.Dropout(0.1), nn.Linear(96, WORDS)

        def forward(self, words):
            return self.head(self.dropout(self.lstm(self.embedding(words))[0]))

    return TorchTraining(Net())


JOBS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "jax-cnn": (jax_cnn, images, (64, 28, 28, 1)),
    "jax-transformer": (jax_transformer, texts, (16, 64)),
    "jax-buckets": (jax_buckets, bucketed_texts, (32, 64)),
    "torch-cnn": (torch_cnn, stalling_images, (32, 28, 28, 1)),
    "torch-transformer": (torch_transformer, texts, (12, 48)),
    "torch-buckets": (torch_buckets, bucketed_texts, (16, 64)),
}
"""Network, data, shape of a batch."""


def train(job: str, out: Path, epochs: int, seconds: float) -> None:
    """Train for some epochs, or as many as fit into the time; a replay is told how many those were."""
    if job.startswith("torch"):
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(1)
    build, data, shape = JOBS[job]
    training, folder = build(), out / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with record(out / "run", budget=BUDGET) as run:
        if run.resume is not None:
            training.restore(run.resume.checkpoint)
        for epoch in range(epochs or 10_000):
            for batch in run.steps(data(epoch, EPOCH_STEPS, shape), resume=True):
                run.log(loss=training.train(batch))
                if training.step % CHECKPOINT_EVERY == 0:
                    training.save(folder / f"{training.step:06}")
            with run.phase("eval"):
                for batch in run.steps(data(10**6, EVAL_STEPS, shape), resume=True):
                    run.log(eval_loss=training.evaluate(batch))
            if not epochs and time.monotonic() - began > seconds:
                (out / "epochs").write_text(str(epoch + 1))
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30, help="train for as many epochs as fit into this time")
    args = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # as PyTorch here: one thread computes
    known = args.out / "epochs"
    train(args.job, args.out, int(known.read_text()) if known.exists() else 0, args.seconds)


if __name__ == "__main__":
    main()
