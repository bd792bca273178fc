"""Space-to-depth of a first convolution: three channels leave a matrix unit of 128 lanes idle, twelve less so.

A 7×7 convolution with stride 2 over [224, 224, 3] equals a 4×4 convolution with stride 1 over [112, 112, 12], whose
reads are dense. The weights stay those of the 7×7 kernel; they are padded and reordered in every step, which is free.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 4.1; the MLPerf reference of
ResNet-50 on TPU.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from phasepoint.scale.techniques.left_out import is_used


def space_to_depth(images: Any, block: int) -> Any:
    """[n, rows, columns, channels] → [n, rows / block, columns / block, block² · channels].

    Raises:
        ValueError: rows or columns that the block does not divide.

    Example:
        >>> import jax.numpy as jnp
        >>> space_to_depth(jnp.zeros((1, 4, 4, 3)), 2).shape
        (1, 2, 2, 12)
    """
    count, rows, columns, channels = images.shape
    if rows % block or columns % block:
        raise ValueError(f"images of {rows}×{columns} can't be divided into blocks of {block}×{block}")
    split = images.reshape(count, rows // block, block, columns // block, block, channels)
    return split.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows // block, columns // block, -1)


def space_to_depth_conv(images: Any, kernel: Any, *, stride: int = 2, padding: Sequence[tuple[int, int]]) -> Any:
    """A strided convolution, done with stride 1 over blocks of pixels.

    Args:
        images: [n, rows, columns, channels]; the stride divides rows and columns.
        kernel: [rows, columns, channels, features], as for the plain convolution.
        stride: of rows and columns, and the block's side.
        padding: (before, after) for rows and columns, as for the plain convolution.

    Returns:
        what the plain convolution gives.

    Example:
        >>> import jax.numpy as jnp
        >>> kernel = jnp.ones((7, 7, 3, 8))
        >>> space_to_depth_conv(jnp.ones((1, 16, 16, 3)), kernel, padding=((3, 3), (3, 3))).shape
        (1, 8, 8, 8)
    """
    if not is_used("space-to-depth"):
        plain = [stride, stride], list(padding)
        return lax.conv_general_dilated(images, kernel, *plain, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    height, width, channels, features = kernel.shape
    fronts, pads, sizes = [], [], []
    for length, size, (before, after) in zip(images.shape[1:3], (height, width), padding, strict=True):
        blocks_before = -(-before // stride)
        front = stride * blocks_before - before
        window = -(-(size + front) // stride)
        results = (length + before + after - size) // stride + 1
        fronts.append((front, window * stride - size - front))
        pads.append((blocks_before, results - 1 + window - blocks_before - length // stride))
        sizes.append(window)
    padded = jnp.pad(kernel, [*fronts, (0, 0), (0, 0)])
    blocks = padded.reshape(sizes[0], stride, sizes[1], stride, channels, features).transpose(0, 2, 1, 3, 4, 5)
    return lax.conv_general_dilated(
        space_to_depth(images, stride),
        blocks.reshape(*sizes, stride * stride * channels, features),
        (1, 1),
        pads,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
