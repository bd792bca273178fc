"""Real training jobs for `benchmarks/diff.py`, one layer of which can be given more to do.

python diff_jobs.py JOB RUN STEPS EXTRA       # EXTRA: columns that the planted layer has more than it should
"""

import sys
from collections.abc import Sequence

import numpy as np

from phasepoint.recorder import record

WIDTH, BATCH = 192, 96
ALIKE = (640,) * 6
"""Hidden columns of the blocks: six alike, as in a transformer."""
UNLIKE = (320, 448, 512, 640, 768, 896)
"""Six of which no two are alike."""
PLANTED = "Block_3"
"""The layer that is given more to do; both networks have 640 columns in it."""
BUDGET = 0.05


def run_jax(out: str, steps: int, hidden: Sequence[int]) -> None:
    """A residual network of blocks in flax."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    class Block(nn.Module):
        hidden: int

        @nn.compact
        def __call__(self, x):
            return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(self.hidden)(nn.LayerNorm()(x))))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for i, columns in enumerate(hidden):
                x = Block(columns, name=f"Block_{i}")(x)
            return nn.Dense(10)(x)

    net, optimizer, rng = Net(), optax.sgd(1e-3), np.random.default_rng(0)
    inputs = jnp.asarray(rng.standard_normal((BATCH, WIDTH), dtype=np.float32))
    labels = jnp.asarray(rng.integers(0, 10, BATCH))
    params = net.init(jax.random.key(0), inputs)

    def loss_of(params, inputs):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(params, inputs), labels).mean()

    @jax.jit
    def train_step(params, opt_state, inputs):
        loss, grads = jax.value_and_grad(loss_of)(params, inputs)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    opt_state = optimizer.init(params)
    with record(out, budget=BUDGET) as run:
        for batch in run.steps([inputs] * steps):
            params, opt_state, loss = train_step(params, opt_state, batch)
            loss.block_until_ready()


def run_torch(out: str, steps: int, hidden: Sequence[int]) -> None:
    """The same network in PyTorch."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, columns: int) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, columns), nn.Linear(columns, WIDTH)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    torch.manual_seed(0)
    torch.set_num_threads(1)
    blocks = {f"Block_{i}": Block(columns) for i, columns in enumerate(hidden)}
    net = nn.Sequential()
    for name, block in blocks.items():
        net.add_module(name, block)
    net.add_module("Head", nn.Linear(WIDTH, 10))
    optimizer, loss_of = torch.optim.SGD(net.parameters(), lr=1e-3), nn.CrossEntropyLoss()
    inputs, labels = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))
    with record(out, budget=BUDGET) as run:
        for batch in run.steps([inputs] * steps):
            optimizer.zero_grad()
            loss = loss_of(net(batch), labels)
            loss.backward()
            optimizer.step()
            loss.item()


JOBS = {"jax": (run_jax, ALIKE), "jax-unlike": (run_jax, UNLIKE), "torch": (run_torch, ALIKE)}


def main() -> None:
    job, out, steps, extra = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    run, hidden = JOBS[job]
    planted = int(PLANTED.rpartition("_")[2])
    run(out, steps, [columns + extra * (i == planted) for i, columns in enumerate(hidden)])


if __name__ == "__main__":
    main()
