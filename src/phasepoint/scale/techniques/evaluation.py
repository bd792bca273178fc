"""Distributed evaluation: the test data stay on the devices, padded, and all devices evaluate their part in one call.

On a pod the steps of training take minutes, and evaluation on one host would take as long. The last batch is filled up
with examples that count for nothing.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 2.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def distributed_eval(
    measure: Callable[[Any, Any], Any],
    examples: Any,
    mesh: Mesh,
    *,
    batch: int,
    axis: str = "data",
) -> Callable[[Any], Any]:
    """A function from weights to the mean of every measure over all examples.

    Args:
        measure: from weights and a batch to a tree of arrays [batch]: each example's loss, whether it was right, …
        examples: a tree of arrays [n_examples, …]; they are placed on the devices once, here.
        mesh: the job's devices.
        batch: examples that all devices evaluate at a time; the devices of `axis` must divide it.
        axis: of the mesh, over which examples are divided.

    Returns:
        a compiled function; its result has the tree of `measure`, a number in the place of each array.

    Raises:
        ValueError: no example, or a batch that the devices cannot share.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
        >>> evaluate = distributed_eval(lambda w, x: {"loss": (w * x) ** 2}, jnp.arange(5.0), mesh, batch=2)
        >>> float(evaluate(2.0)["loss"])
        24.0
    """
    count = len(jax.tree.leaves(examples)[0])
    devices = mesh.shape[axis]
    if not count or batch % devices:
        raise ValueError(
            "there is no example to evaluate"
            if not count
            else f"a batch of {batch} can't be shared by the {devices} devices of axis {axis!r}"
        )
    batches = -(-count // batch)
    sharding = NamedSharding(mesh, PartitionSpec(None, axis))

    def place(array: Any) -> Any:
        # What fills up is a repeated example: zeros may be no valid input (a length, a divisor).
        rows = np.arange(batches * batch) % count
        return jax.device_put(np.asarray(array)[rows].reshape(batches, batch, *np.shape(array)[1:]), sharding)

    placed = jax.tree.map(place, examples)
    counts = jax.device_put((np.arange(batches * batch) < count).reshape(batches, batch), sharding)

    def evaluate(weights: Any, placed: Any, counts: Any) -> Any:
        def add(_: Any, part: Any) -> tuple[None, Any]:
            one, counted = part
            return None, jax.tree.map(lambda each: jnp.where(counted, each, 0).sum(), measure(weights, one))

        _, sums = lax.scan(add, None, (placed, counts))
        return jax.tree.map(lambda each: each.sum() / count, sums)

    compiled = jax.jit(evaluate)
    return lambda weights: compiled(weights, placed, counts)
