"""Real training jobs for `benchmarks/diff.py`: a network of equal blocks, one of which can be given more to do."""

import sys
import time

import numpy as np

from phasepoint.recorder import record

BLOCKS, WIDTH, HIDDEN, BATCH = 6, 192, 640, 96
PLANTED = "Block_3"
"""The layer that is given more to do."""


def run_jax(out: str, seconds: float, extra: int) -> None:
    """A residual network of blocks in flax, trained for some seconds.

    Args:
        out: the run.
        seconds: for how long.
        extra: columns that the planted block's hidden layer has more than the others'.
    """
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
            for i in range(BLOCKS):
                x = Block(HIDDEN + (extra if f"Block_{i}" == PLANTED else 0), name=f"Block_{i}")(x)
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

    def batches():
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            yield inputs

    with record(out, budget=0.05) as run:
        for batch in run.steps(batches()):
            params, opt_state, loss = train_step(params, opt_state, batch)
            loss.block_until_ready()


JOBS = {"jax": run_jax}

if __name__ == "__main__":
    JOBS[sys.argv[1]](sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
