"""Gradient summation on a torus: packed into few messages, along one axis of the mesh and then the other.

A ring over all n chips takes 2(n - 1) hops; reduce-scatter along rows, all-reduce along columns on 1/x of the bytes,
all-gather along rows takes 2(x - 1) + 2(y - 1). Packing makes few large messages of hundreds of small ones; several
buckets let one bucket's sum along columns overlap with the next one's along rows.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 3; Ying et al., "Image
Classification at Supercomputer Scale", 2018 (2-D all-reduce, bf16 sums).
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from phasepoint.scale.techniques.left_out import is_used

BUCKET_BYTES = 32 << 20
"""A choice: enough for a torus link to be busy for 0.4 ms, few enough for a ResNet-50 to have four to pipeline."""


def two_level_all_reduce(
    gradients: Any,
    axes: Sequence[str],
    *,
    bucket_bytes: int = BUCKET_BYTES,
    dtype: Any = None,
    mean: bool = False,
) -> Any:
    """The sum of every replica's gradients, along one mesh axis and then the others.

    Args:
        gradients: a tree of arrays, inside `jax.shard_map` over `axes`.
        axes: of the mesh, the one with the fastest links first; one axis is a plain ring.
        bucket_bytes: gradients are packed into messages of at most this many bytes; a larger tensor is one message.
        dtype: what is sent and added, such as `jnp.bfloat16`; each array's own by default.
        mean: the mean instead of the sum.

    Returns:
        the tree, equal on every replica, each array with the dtype that it had.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("x", "y"))
        >>> add = jax.shard_map(
        ...     lambda g: two_level_all_reduce(g, ("x", "y")), mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False
        ... )
        >>> add({"w": jnp.arange(3.0)})
        {'w': Array([0., 1., 2.], dtype=float32)}
    """
    if not is_used("two-level-all-reduce"):
        add = lax.pmean if mean else lax.psum
        return jax.tree.map(lambda leaf: add(leaf, tuple(axes)), gradients)
    leaves, tree = jax.tree.flatten(gradients)
    summed: list[Any] = [None] * len(leaves)
    count = math.prod(map(lax.axis_size, axes))
    for places in _buckets(leaves, bucket_bytes, dtype):
        sent = dtype or leaves[places[0]].dtype
        packed = jnp.concatenate([leaves[place].reshape(-1).astype(sent) for place in places])
        total = _sum_levels(packed, tuple(axes))
        total = total / count if mean else total
        ends = list(accumulate(leaves[place].size for place in places))[:-1]
        for place, part in zip(places, jnp.split(total, ends), strict=True):
            summed[place] = part.reshape(leaves[place].shape).astype(leaves[place].dtype)
    return jax.tree.unflatten(tree, summed)


def _buckets(leaves: Sequence[Any], bucket_bytes: int, dtype: Any) -> list[list[int]]:
    """Places of the arrays that are sent together, those of one dtype alone; last first, as a backward pass ends."""
    buckets: list[list[int]] = []
    room: dict[Any, tuple[list[int], int]] = {}
    for place in reversed(range(len(leaves))):
        kind = jnp.dtype(dtype or leaves[place].dtype)
        size = leaves[place].size * kind.itemsize
        bucket, used = room.get(kind, ([], 0))
        if not bucket or used + size > bucket_bytes:
            bucket, used = [], 0
            buckets.append(bucket)
        bucket.append(place)
        room[kind] = (bucket, used + size)
    return buckets


def _sum_levels(packed: Any, axes: tuple[str, ...]) -> Any:
    first, rest = axes[0], axes[1:]
    if not rest:
        return lax.psum(packed, first)
    across = lax.axis_size(first)
    padded = jnp.pad(packed, (0, -packed.size % across))
    part = lax.psum_scatter(padded, first, tiled=True)
    return lax.all_gather(lax.psum(part, rest), first, tiled=True)[: packed.size]
