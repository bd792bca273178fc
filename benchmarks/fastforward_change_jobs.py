"""Real training jobs for `benchmarks/fastforward_changes.py`: each can be run as it is, or with one change.

python fastforward_change_jobs.py JOB RUN FOLDER STEPS [--changed] [--budget B]

Checkpoints go into FOLDER, 25 over the run. Restoring is the job's own business, as in any user's program: a changed
job reads the unchanged one's checkpoint.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.recorder import record

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


def train(
    training: Training, out: str, folder: str, steps: int, *, budget: float, checkpoints: int = CHECKPOINTS
) -> None:
    """The loop that every job shares."""
    every = max(steps // checkpoints, 1)
    with record(out, budget=budget) as run:
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
    """Gradient descent with momentum; the state is written as arrays."""
    import jax

    params = jax.tree.map(jax.numpy.asarray, params)
    state = {"params": params, "momentum": jax.tree.map(jax.numpy.zeros_like, params)}

    @jax.jit
    def update(params: Any, momentum: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, loss

    def step(batch: Any) -> Any:
        state["params"], state["momentum"], loss = update(state["params"], state["momentum"], batch)
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


def cross_entropy(logits: Any, labels: Any) -> Any:
    import jax

    return -jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1).mean()


def remat(changed: bool) -> Training:
    """A transformer in JAX, its layers by `scan`; changed: each layer is recomputed in the backward pass."""
    import jax
    import jax.numpy as jnp

    width, heads, layers, length, vocabulary = 128, 4, 4, 96, 64
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    params = {
        "embed": normal(vocabulary, width),
        "layers": {name: normal(layers, *shape) for name, shape in shapes.items()},
        "head": normal(width, vocabulary),
    }

    def scaled(x: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def layer(x: Any, weights: Any) -> Any:
        q, k, v = jnp.split((scaled(x) @ weights["qkv"]).reshape(*x.shape[:2], heads, -1), 3, axis=-1)
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + attended.reshape(x.shape) @ weights["out"]
        return x + jax.nn.gelu(scaled(x) @ weights["up"]) @ weights["down"], None

    def loss_of(params: Any, tokens: Any) -> Any:
        step = jax.checkpoint(layer) if changed else layer
        x, _ = jax.lax.scan(step, params["embed"][tokens[:, :-1]], params["layers"])
        return cross_entropy(scaled(x) @ params["head"], tokens[:, 1:])

    pool = [jnp.asarray(rng.integers(0, vocabulary, (6, length + 1))) for _ in range(POOL)]
    return jax_training(loss_of, params, pool)


def float64(changed: bool) -> Training:
    """A convolutional network in JAX in double precision; changed: in single precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    dtype = np.float32 if changed else np.float64
    rng = np.random.default_rng(0)
    channels = (3, 24, 48, 48)
    shapes = [(3, 3, before, after) for before, after in itertools.pairwise(channels)]
    params = [(rng.standard_normal(shape) / np.sqrt(9 * shape[2])).astype(dtype) for shape in shapes]
    params.append((rng.standard_normal((channels[-1], 10)) / 7).astype(dtype))

    def loss_of(params: Any, batch: Any) -> Any:
        x, labels = batch
        for i, kernel in enumerate(params[:-1]):
            strides = (1 + i % 2,) * 2
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            )
        return cross_entropy(x.mean(axis=(1, 2)) @ params[-1], labels)

    images = [rng.standard_normal((12, 24, 24, 3)).astype(dtype) for _ in range(POOL)]
    pool = [(jnp.asarray(image), jnp.asarray(rng.integers(0, 10, 12))) for image in images]
    return jax_training(loss_of, params, pool)


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
    parser.add_argument("--budget", type=float, default=0.01, help="of the recorder")
    args = parser.parse_args()
    job = JOBS[args.job]
    if job.framework == "torch":
        import torch

        torch.set_num_threads(1)
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    train(job.make(args.changed), args.run, args.folder, args.steps, budget=args.budget)


if __name__ == "__main__":
    main()
