"""Batch norm over sub-groups of replicas: few examples a chip give no mean, all of them together cost a wait.

Source: Ying et al., "Image Classification at Supercomputer Scale", 2018, section 3.3; Kumar et al., 2019, section 2.
For a network of flax `flax.linen.BatchNorm(axis_name=…, axis_index_groups=batch_norm_groups(replicas, size))` does the
same; this is the function alone, for whoever does not use flax.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax


def batch_norm_groups(replicas: int, size: int) -> list[list[int]]:
    """Replicas whose examples are normalised together: neighbours, `size` at a time.

    Raises:
        ValueError: the replicas cannot be divided into groups of this size.

    Example:
        >>> batch_norm_groups(4, 2)
        [[0, 1], [2, 3]]
    """
    if size < 1 or replicas % size:
        raise ValueError(f"{replicas} replicas can't be divided into groups of {size}")
    return [list(range(first, first + size)) for first in range(0, replicas, size)]


def distributed_batch_norm(
    examples: Any,
    scale: Any,
    bias: Any,
    *,
    axis_name: str,
    group_size: int | None = None,
    reduce: Sequence[int] | None = None,
    epsilon: float = 1e-5,
) -> tuple[Any, Any, Any]:
    """Normalise by mean and variance of the examples of a group of replicas.

    Sums are added up in float32, whatever the examples are in; one message holds both.

    Args:
        examples: [n, …, channels], this replica's, inside `jax.shard_map(…, check_vma=False)`.
        scale: [channels].
        bias: [channels].
        axis_name: of the mesh, over which examples are divided.
        group_size: replicas in a group; all of them by default.
        reduce: dimensions that are averaged over; all but the last by default.
        epsilon: what is added to the variance.

    Returns:
        the normalised examples, and mean and variance of each channel in float32, for the running averages.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
        >>> norm = jax.shard_map(
        ...     lambda x: distributed_batch_norm(x, jnp.ones(2), jnp.zeros(2), axis_name="data")[0],
        ...     mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False,
        ... )
        >>> norm(jnp.array([[1.0, 2.0], [3.0, 2.0]])).round(3).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
    dims = tuple(range(examples.ndim - 1)) if reduce is None else tuple(reduce)
    groups = None if group_size is None else batch_norm_groups(lax.axis_size(axis_name), group_size)
    wide = examples.astype(jnp.float32)
    moments = jnp.stack([wide.mean(dims), jnp.square(wide).mean(dims)])
    mean, square = lax.pmean(moments, axis_name, axis_index_groups=groups)
    variance = jnp.maximum(square - jnp.square(mean), 0)
    factor = scale * lax.rsqrt(variance + epsilon)
    return ((wide - mean) * factor + bias).astype(examples.dtype), mean, variance
