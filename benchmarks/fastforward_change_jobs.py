"""Real training jobs for `benchmarks/fastforward_changes.py`: each can be run as it is, or with one change.

python fastforward_change_jobs.py JOB RUN FOLDER STEPS [--changed]

Checkpoints go into FOLDER, 25 over the run. Restoring is the job's own business, as in any user's program: a changed
job reads the unchanged one's checkpoint.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.recorder import record

BUDGET = 0.03
CHECKPOINTS = 25
POOL = 8
"""Batches that are made beforehand and used in turn: only the loader's job spends time on them."""


@dataclass(frozen=True)
class Training:
    """A job's parts: `step(batch)` trains and gives the loss; `save(path)` and `load(path)` its state."""

    step: Callable[[Any], Any]
    save: Callable[[str], None]
    load: Callable[[str], None]
    batches: Callable[[int, int], Iterable[Any]]
    """(first step, steps) → the batches from the first step on."""
    noticed: bool
    """Whether the recorder notices saves by itself, as it does those of `torch.save`."""


def train(training: Training, out: str, folder: str, steps: int) -> None:
    """The loop that every job shares."""
    every = max(steps // CHECKPOINTS, 1)
    with record(out, budget=BUDGET) as run:
        first = 0
        if run.resume is not None:
            first = run.resume.first_step
            if run.resume.checkpoint is not None:
                training.load(run.resume.checkpoint)
        for number, batch in enumerate(run.steps(training.batches(first, steps)), start=first):
            loss = training.step(batch)
            run.log(loss=loss)
            if (number + 1) % every == 0:
                path = str(Path(folder) / f"step-{number}.ckpt")
                training.save(path)
                if not training.noticed:
                    run.checkpoint(path)


def in_turn(pool: list[Any]) -> Callable[[int, int], Iterable[Any]]:
    """The batches of a pool over and over, from the first step on."""

    def batches(first: int, steps: int) -> Iterable[Any]:
        return (pool[i % len(pool)] for i in range(first, steps))

    return batches


def jax_training(loss_of: Callable[..., Any], params: Any, pool: list[Any]) -> Training:
    """Adam on a loss; the state is written as arrays."""
    import jax
    import optax

    optimizer = optax.adam(1e-4)
    state = {"params": params, "opt": optimizer.init(params)}

    @jax.jit
    def update(params: Any, opt: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        updates, opt = optimizer.update(grads, opt)
        return optax.apply_updates(params, updates), opt, loss

    def step(batch: Any) -> Any:
        state["params"], state["opt"], loss = update(state["params"], state["opt"], batch)
        return loss.block_until_ready()

    def save(path: str) -> None:
        with Path(path).open("wb") as file:
            np.savez(file, *(np.asarray(leaf) for leaf in jax.tree.leaves(state)))

    def load(path: str) -> None:
        leaves, tree = jax.tree.flatten(state)
        with np.load(path) as found:
            read = [jax.numpy.asarray(found[f"arr_{i}"], leaf.dtype) for i, leaf in enumerate(leaves)]
        state.update(jax.tree.unflatten(tree, read))

    return Training(step, save, load, in_turn(pool), noticed=False)


def remat(changed: bool) -> Training:
    """A transformer in JAX; changed: each block is recomputed in the backward pass."""
    import jax
    import jax.numpy as jnp
    from flax import linen as nn

    width, length, vocabulary = 128, 64, 256

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x + nn.SelfAttention(num_heads=4)(nn.LayerNorm()(x))
            return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x))))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(vocabulary, width)(tokens)
            block = nn.remat(Block) if changed else Block
            for i in range(4):
                x = block(name=f"Block_{i}")(x)
            return nn.Dense(vocabulary)(x)

    rng = np.random.default_rng(0)
    pool = [jnp.asarray(rng.integers(0, vocabulary, (4, length + 1))) for _ in range(POOL)]
    net = Net()

    def loss_of(params: Any, tokens: Any) -> Any:
        logits = jax.nn.log_softmax(net.apply(params, tokens[:, :-1]))
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1).mean()

    return jax_training(loss_of, jax.jit(net.init)(jax.random.key(0), pool[0][:, :-1]), pool)


def float64(changed: bool) -> Training:
    """A convolutional network in JAX in double precision; changed: in single precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from flax import linen as nn

    dtype = jnp.float32 if changed else jnp.float64

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for i, features in enumerate((24, 48, 48)):
                x = nn.relu(nn.Conv(features, (3, 3), strides=1 + i % 2, param_dtype=dtype, dtype=dtype)(x))
            return nn.Dense(10, param_dtype=dtype, dtype=dtype)(x.mean(axis=(1, 2)))

    rng = np.random.default_rng(0)
    pool = [(jnp.asarray(rng.standard_normal((12, 24, 24, 3)), dtype), rng.integers(0, 10, 12)) for _ in range(POOL)]
    net = Net()

    def loss_of(params: Any, batch: Any) -> Any:
        logits = jax.nn.log_softmax(net.apply(params, batch[0]))
        return -jnp.take_along_axis(logits, batch[1][:, None], axis=-1).mean()

    return jax_training(loss_of, jax.jit(net.init)(jax.random.key(0), pool[0][0]), pool)


def torch_training(net: Any, optimizer: Any, step: Callable[[Any], Any], batches: Any) -> Training:
    """A PyTorch job; the state is written by `torch.save`."""
    import torch

    def save(path: str) -> None:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, path)

    def load(path: str) -> None:
        found = torch.load(path)
        net.load_state_dict(found["net"])
        ours = {
            name: optimizer.param_groups[0][name] for name in ("fused", "foreach") if name in optimizer.param_groups[0]
        }
        optimizer.load_state_dict(found["optimizer"])
        optimizer.param_groups[0].update(ours)  # a state dict brings the other optimizer's flags

    return Training(step, save, load, batches, noticed=True)


def batch(changed: bool) -> Training:
    """A convolutional network in PyTorch at 32 images a batch; changed: at 64."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    size = 64 if changed else 32
    net = nn.Sequential(
        *(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)),
    )
    optimizer, loss_of = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9), nn.CrossEntropyLoss()
    pool = [(torch.randn(size, 3, 24, 24), torch.randint(0, 10, (size,))) for _ in range(POOL)]
    return torch_training(net, optimizer, supervised(net, optimizer, loss_of), in_turn(pool))


def bfloat16(changed: bool) -> Training:
    """A transformer encoder in PyTorch; changed: under autocast to bfloat16."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(192, 4, 768, dropout=0.0, batch_first=True) for _ in range(2)]
    net = nn.Sequential(*layers, nn.Linear(192, 32))
    optimizer, loss_of = torch.optim.AdamW(net.parameters(), lr=1e-4), nn.CrossEntropyLoss()
    pool = [(torch.randn(8, 48, 192), torch.randint(0, 32, (8, 48))) for _ in range(POOL)]

    def step(found: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=changed):
            loss = loss_of(net(found[0]).flatten(0, 1), found[1].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return torch_training(net, optimizer, step, in_turn(pool))


def optimizer(changed: bool) -> Training:
    """A deep and narrow network in PyTorch whose Adam goes parameter by parameter; changed: fused."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    blocks = [layer for _ in range(150) for layer in (nn.Linear(24, 24), nn.Tanh())]
    net = nn.Sequential(*blocks, nn.Linear(24, 10))
    flags = {"fused": True} if changed else {"foreach": False, "fused": False}
    adam, loss_of = torch.optim.Adam(net.parameters(), lr=1e-4, **flags), nn.CrossEntropyLoss()
    pool = [(torch.randn(32, 24), torch.randint(0, 10, (32,))) for _ in range(POOL)]
    return torch_training(net, adam, supervised(net, adam, loss_of), in_turn(pool))


def loader(changed: bool) -> Training:
    """A small network in PyTorch fed by augmentation in the loop's own process; changed: by one worker."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Images(Dataset):
        def __init__(self, first: int, end: int) -> None:
            self.first, self.end = first, end

        def __len__(self) -> int:
            return self.end - self.first

        def __getitem__(self, index: int) -> Any:
            """Crop, flip, rotate, blur and normalise an image that its number seeds."""
            rng = np.random.default_rng(self.first + index)
            image = rng.standard_normal((96, 96, 3), dtype=np.float32)
            top, left = rng.integers(0, 32, 2)
            image = np.rot90(image[top : top + 64, left : left + 64, :: 1 - 2 * int(rng.integers(2))], rng.integers(4))
            spectrum = np.fft.rfft2(image, axes=(0, 1))
            image = np.fft.irfft2(spectrum / (1 + np.arange(33)[None, :, None]), axes=(0, 1)).astype(np.float32)
            image = (image - image.mean()) / image.std()
            return torch.from_numpy(image[::2, ::2].transpose(2, 0, 1).copy()), int(rng.integers(10))

    net = nn.Sequential(
        *(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    size = 8
    sgd, loss_of = torch.optim.SGD(net.parameters(), lr=1e-3), nn.CrossEntropyLoss()

    def batches(first: int, steps: int) -> Iterable[Any]:
        return DataLoader(Images(first * size, steps * size), size, num_workers=int(changed))

    return torch_training(net, sgd, supervised(net, sgd, loss_of), batches)


def supervised(net: Any, optimizer: Any, loss_of: Any) -> Callable[[Any], Any]:
    """One step of gradient descent."""

    def step(found: Any) -> Any:
        inputs, labels = found
        optimizer.zero_grad()
        loss = loss_of(net(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@dataclass(frozen=True)
class Job:
    """A job and its change, as the table names them.

    Attributes:
        title: framework, model and change.
        make: changed → the job's parts.
        framework: which it needs.
        steps_ratio: steps under the change over steps without it.
        batch: `--batch` of the estimate; None where it does not change.
        cores: cores that each run needs.
    """

    title: str
    make: Callable[[bool], Training]
    framework: str
    steps_ratio: float = 1.0
    batch: str | None = None
    cores: int = 1


JOBS = {
    "remat": Job("JAX transformer, remat off → on", remat, "jax"),
    "float64": Job("JAX CNN, float64 → float32", float64, "jax"),
    "batch": Job("PyTorch CNN, batch 32 → 64", batch, "torch", 0.5, "32:64"),
    "bfloat16": Job("PyTorch transformer, float32 → bfloat16", bfloat16, "torch"),
    "optimizer": Job("PyTorch, Adam by loop → fused", optimizer, "torch"),
    "loader": Job("PyTorch CNN, loader workers 0 → 1", loader, "torch", cores=2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("steps", type=int)
    parser.add_argument("--changed", action="store_true")
    args = parser.parse_args()
    job = JOBS[args.job]
    if job.framework == "torch":
        import torch

        torch.set_num_threads(1)
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    train(job.make(args.changed), args.run, args.folder, args.steps)


if __name__ == "__main__":
    main()
