"""Real training jobs for `benchmarks/fastforward.py`, in JAX and PyTorch, each with steps unlike one another.

python compact_jobs.py JOB RUN SECONDS [BUDGET]        # BUDGET left out: every step is captured

A convolutional network with a slow stretch of input (`estimates_jobs.py`), a transformer with evaluations and
checkpoints, a recurrent network on batches of three lengths, and a dense network whose loader stalls.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.recorder import record

TRAIN_STEPS, EVAL_STEPS = 120, 20
VOCABULARY, WIDTH, HEADS, LAYERS = 128, 32, 2, 2
LENGTHS, LENGTH_SHARES = (6, 12, 24), (0.5, 0.3, 0.2)
BATCH = 8
LEAST_STEPS, MOST_STEPS = 1400, 6000
"""A slow machine does the first number whatever time it takes; a quick one ends after the second."""

Step = Callable[[np.ndarray], Any]


def blocks(seconds: float) -> Iterator[str]:
    """Training and evaluation in turn until the time is up and enough steps are done."""
    began = time.monotonic()
    for done in range(0, MOST_STEPS, TRAIN_STEPS + EVAL_STEPS):
        if done >= LEAST_STEPS and time.monotonic() - began >= seconds:
            return
        yield "train"
        yield "eval"


def sentences(n: int, rng: np.random.Generator, lengths: tuple[int, ...], shares: tuple[float, ...]) -> Iterator[Any]:
    """Batches of tokens, each of one of the lengths: buckets."""
    for length in rng.choice(lengths, n, p=shares).tolist():
        yield rng.integers(0, VOCABULARY, (BATCH, length + 1))


def stalling(n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Vectors from a loader that reads a file every 40 batches, and now and then waits for its storage."""
    for index in range(n):
        if index % 40 == 39:
            time.sleep(0.02)
        if rng.random() < 0.01:
            time.sleep(float(rng.exponential(0.03)))
        yield rng.standard_normal((64, 256), dtype=np.float32)


def train(
    out: str, seconds: float, budget: float | None, job: tuple[Step, Step, Callable[[int], Iterator[Any]]], save: Any
) -> None:
    """The loop of all jobs: blocks of training, an evaluation after each, a checkpoint after some.

    Args:
        out: where the run goes.
        seconds: how long.
        budget: of the recorder; None captures every step.
        job: trains on a batch, evaluates one, makes a loader of so many.
        save: writes a checkpoint, or None.
    """
    step, evaluate, loader = job
    with record(out, budget=budget) as run:
        for index, kind in enumerate(blocks(seconds)):
            if kind == "eval":
                for batch in run.steps(loader(EVAL_STEPS)):
                    evaluate(batch)
                continue
            for at, batch in enumerate(run.steps(loader(TRAIN_STEPS))):
                step(batch)
                if save is not None and index % 4 == 0 and at == TRAIN_STEPS - 1:
                    save()


def jax_job(name: str) -> tuple[Step, Step]:
    """Training and evaluation of one network with flax and optax."""
    import jax
    import jax.numpy as jnp
    import optax

    optimizer, (logits_of, example) = optax.adam(1e-3), _jax_net(name)
    params = example(jax.random.key(0))

    def loss_of(params: Any, batch: Any) -> Any:
        inputs, targets = (batch, jnp.zeros(len(batch), int)) if name == "dense" else (batch[:, :-1], batch[:, 1:])
        return optax.softmax_cross_entropy_with_integer_labels(logits_of(params, inputs), targets).mean()

    @jax.jit
    def update(params: Any, opt_state: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    evaluate, state = jax.jit(loss_of), [params, optimizer.init(params)]

    def step(batch: np.ndarray) -> float:
        state[0], state[1], loss = update(state[0], state[1], batch)
        return float(loss)

    return step, lambda batch: float(evaluate(state[0], batch))


def _jax_net(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]:
    import jax.numpy as jnp
    from flax import linen as nn

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(VOCABULARY, WIDTH)(tokens)
            for _ in range(LAYERS):
                x = x + nn.MultiHeadDotProductAttention(HEADS)(nn.LayerNorm()(x))
                x = x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))
            return nn.Dense(VOCABULARY)(x)

    class Recurrent(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.RNN(nn.GRUCell(WIDTH))(nn.Embed(VOCABULARY, WIDTH)(tokens))
            return nn.Dense(VOCABULARY)(x)

    class Dense(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(3):
                x = nn.relu(nn.Dense(512)(x))
            return nn.Dense(10)(x)

    net: Any = {"transformer": Transformer, "recurrent": Recurrent, "dense": Dense}[name]()
    sample = jnp.zeros((1, 256)) if name == "dense" else jnp.zeros((1, LENGTHS[0]), int)
    return net.apply, lambda key: net.init(key, sample)


def torch_job(name: str) -> tuple[Step, Step, Callable[[], None]]:
    """The same networks in PyTorch, on one thread; the last function writes a checkpoint."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = _torch_net(name)
    optimizer, cross_entropy = torch.optim.AdamW(net.parameters(), lr=1e-3), nn.CrossEntropyLoss()
    folder = tempfile.mkdtemp()

    def loss_of(batch: np.ndarray) -> Any:
        tensor = torch.from_numpy(batch)
        if name == "dense":
            return cross_entropy(net(tensor), torch.zeros(len(tensor), dtype=torch.long))
        return cross_entropy(net(tensor[:, :-1]).flatten(0, 1), tensor[:, 1:].flatten())

    def step(batch: np.ndarray) -> float:
        optimizer.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    @torch.no_grad()
    def evaluate(batch: np.ndarray) -> float:
        return float(loss_of(batch).item())

    def save() -> None:
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder) / "checkpoint.pt")

    return step, evaluate, save


def _torch_net(name: str) -> Any:
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.gru = nn.Embedding(VOCABULARY, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
            self.out = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens: Any) -> Any:
            return self.out(self.gru(self.embed(tokens))[0])

    if name == "recurrent":
        return Recurrent()
    if name == "dense":
        return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), encoder, nn.Linear(WIDTH, VOCABULARY))


def run_job(framework: str, name: str, out: str, seconds: float, budget: float | None) -> None:
    """Train one network under the recorder."""
    rng, save = np.random.default_rng(0), None
    if framework == "torch":
        step, evaluate, save = torch_job(name)
    else:
        step, evaluate = jax_job(name)
    if name == "dense":
        loader = partial(stalling, rng=rng)
    elif name == "recurrent":
        loader = partial(sentences, rng=rng, lengths=LENGTHS, shares=LENGTH_SHARES)
    else:
        loader = partial(sentences, rng=rng, lengths=(24,), shares=(1.0,))
    train(out, seconds, budget, (step, evaluate, loader), save if name == "transformer" else None)


def run_cnn(framework: str, out: str, seconds: float) -> None:
    """The jobs of `estimates_jobs.py`."""
    from estimates_jobs import JOBS as CNNS

    CNNS[framework](out, seconds)


NAMES = ("cnn", "transformer", "recurrent", "dense")
JOBS = tuple(f"{framework}-{name}" for name in NAMES for framework in ("jax", "torch"))


def main() -> None:
    job, out, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    framework, _, name = job.partition("-")
    if name == "cnn":
        run_cnn(framework, out, seconds)
    else:
        run_job(framework, name, out, seconds, float(sys.argv[4]) if len(sys.argv) > 4 else None)


if __name__ == "__main__":
    main()
