"""Spatial partitioning: one image's rows and columns on several devices, with the borders exchanged.

It goes on where batches end: with one image a chip or less, more chips can only share the image. Each device needs
from its neighbours the rows that the kernel reaches over; what is sent grows with the border, what is computed falls
with the area.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 2 (SSD, Mask R-CNN).
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

Pad = str | Sequence[tuple[int, int]]


def spatial_conv(
    images: Any,
    kernel: Any,
    *,
    axes: Sequence[str | None],
    strides: Sequence[int] = (1, 1),
    padding: Pad = "SAME",
    rhs_dilation: Sequence[int] = (1, 1),
    feature_group_count: int = 1,
) -> Any:
    """A convolution of images whose rows and columns lie on several devices, as one device would do it.

    Its derivatives are those of the parts: borders go back the way they came.

    Args:
        images: [n, rows, columns, channels], this device's part, inside `jax.shard_map`.
        kernel: [rows, columns, channels / groups, features], equal on all devices.
        axes: the mesh axis over which rows are divided, and that of columns; None where they are not.
        strides: of rows and columns.
        padding: "SAME", "VALID" or (before, after) for rows and columns, of the whole image.
        rhs_dilation: of the kernel.
        feature_group_count: groups of channels.

    Returns:
        this device's part of the result: [n, rows of the result / devices, …].

    Raises:
        ValueError: the result's rows or columns cannot be divided among the devices.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("rows",))
        >>> conv = jax.shard_map(
        ...     lambda x, k: spatial_conv(x, k, axes=("rows", None)),
        ...     mesh=mesh, in_specs=(P(None, "rows"), P()), out_specs=P(None, "rows"),
        ... )
        >>> conv(jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 4))).shape
        (1, 8, 8, 4)
    """
    pads = []
    for place, axis in enumerate(axes):
        size, stride, dilation = kernel.shape[place], strides[place], rhs_dilation[place]
        parts = 1 if axis is None else lax.axis_size(axis)
        length, reach = images.shape[place + 1] * parts, (size - 1) * dilation + 1
        pad = _pads(padding, place, length, reach, stride)
        if axis is None:
            pads.append(pad)
            continue
        images = _with_borders(images, place + 1, axis, pad, (reach, stride))
        pads.append((0, 0))
    return lax.conv_general_dilated(
        images,
        kernel,
        strides,
        pads,
        rhs_dilation=rhs_dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=feature_group_count,
    )


def _pads(padding: Pad, place: int, length: int, reach: int, stride: int) -> tuple[int, int]:
    if not isinstance(padding, str):
        before, after = padding[place]
        return before, after
    if padding == "VALID":
        return 0, 0
    if padding != "SAME":
        raise ValueError(f"padding is 'SAME', 'VALID' or pairs of numbers, not {padding!r}")
    total = max((-(-length // stride) - 1) * stride + reach - length, 0)
    return total // 2, total - total // 2


def _with_borders(images: Any, dim: int, axis: str, pad: tuple[int, int], window: tuple[int, int]) -> Any:
    """The rows that this device's part of the result reads, those of other devices and the padding among them."""
    reach, stride = window
    parts, rows = lax.axis_size(axis), images.shape[dim]
    results = (rows * parts + sum(pad) - reach) // stride + 1
    if results % parts:
        raise ValueError(
            f"a result of {results} rows can't be divided among the {parts} devices of axis {axis!r}; "
            f"choose a padding or a mesh with which it can"
        )
    mine = results // parts
    needed = (mine - 1) * stride + reach
    starts = [part * (mine * stride - rows) - pad[0] for part in range(parts)]  # within that device's own rows
    before, after = max(0, *(-start for start in starts)), max(0, *(start + needed - rows for start in starts))
    held = jnp.concatenate([*_borders(images, dim, axis, before, after)], axis=dim)
    if len(set(starts)) == 1:
        return lax.slice_in_dim(held, starts[0] + before, starts[0] + before + needed, axis=dim)
    start = lax.axis_index(axis) * (mine * stride - rows) - pad[0] + before
    return lax.dynamic_slice_in_dim(held, start, needed, axis=dim)


def _borders(images: Any, dim: int, axis: str, before: int, after: int) -> list[Any]:
    """Rows of the devices before, its own, and of those after; zeros beyond the image, as padding is."""
    parts, rows = lax.axis_size(axis), images.shape[dim]

    def fetch(hops: int, start: int, end: int) -> Any:
        """Rows of the device that many places away; where there is none, zeros."""
        sent = lax.slice_in_dim(images, start, end, axis=dim)
        pairs = [(source, source - hops) for source in range(parts) if 0 <= source - hops < parts]
        return lax.ppermute(sent, axis, pairs)

    above = [fetch(-hop, max(rows - (before - (hop - 1) * rows), 0), rows) for hop in range(-(-before // rows), 0, -1)]
    below = [fetch(hop, 0, min(after - (hop - 1) * rows, rows)) for hop in range(1, -(-after // rows) + 1)]
    return [*above, images, *below]
