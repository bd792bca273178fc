"""Kernels that stand alone and move data, order it or count it: one function per kind draws one of random size."""

from typing import Any

import numpy as np

from phasepoint.zoo.generated.pieces import (
    LARGEST,
    SMALLEST,
    KernelPiece,
    Rng,
    log_uniform,
    pick,
    rounded,
    split_product,
)
from phasepoint.zoo.specs import jax, jnp, lax

TABLE_ROWS = 256
"""Least number of rows of a table that integers point into: integer arguments are below it."""


def _array(rng: Rng, *, largest: float = LARGEST, ranks: tuple[int, int] = (1, 4)) -> tuple[int, ...]:
    return split_product(rng, log_uniform(rng, SMALLEST, largest), int(rng.integers(ranks[0], ranks[1] + 1)))


def gather(rng: Rng) -> KernelPiece:
    """Rows of a table by index, or entries along an axis."""
    rows, width = TABLE_ROWS + log_uniform(rng, 1, 20000), rounded(rng, log_uniform(rng, 1, 256))
    places = split_product(rng, log_uniform(rng, 1000, max(2000, LARGEST / 2 / width)), int(rng.integers(1, 3)))
    scaled = bool(rng.random() < 0.3)
    return KernelPiece(
        lambda table, place: table[place] * 2 + 1 if scaled else table[place], (("f32", (rows, width)), ("i32", places))
    )


def scatter(rng: Rng) -> KernelPiece:
    """Rows added to, or put into, a table by index."""
    rows, width = TABLE_ROWS + log_uniform(rng, 1, 5000), rounded(rng, log_uniform(rng, 1, 128))
    count, kind = log_uniform(rng, 300, max(600, 1e6 / width)), pick(rng, ("add", "set", "max"))
    return KernelPiece(
        lambda table, place, new: getattr(table.at[place], kind)(new),
        (("f32", (rows, width)), ("i32", (count,)), ("f32", (count, width))),
    )


def grouped_sum(rng: Rng) -> KernelPiece:
    """Sums of rows by group."""
    rows, width = log_uniform(rng, 1000, 30000), rounded(rng, log_uniform(rng, 1, 96))

    def apply(x: Any, group: Any) -> Any:
        return jax.ops.segment_sum(x, group, TABLE_ROWS)

    return KernelPiece(apply, (("f32", (rows, width)), ("i32", (rows,))))


def concatenation(rng: Rng) -> KernelPiece:
    """Two to four arrays joined along an axis, some after work."""
    shape, count = _array(rng, largest=LARGEST / 3, ranks=(1, 3)), int(rng.integers(2, 5))
    axis, worked = int(rng.integers(len(shape))), bool(rng.random() < 0.4)

    def apply(*values: Any) -> Any:
        return jnp.concatenate([values[0] * 2 + 1 if worked else values[0], *values[1:]], axis)

    return KernelPiece(apply, (("f32", shape),) * count)


def slicing(rng: Rng) -> KernelPiece:
    """A part of an array, with strides, or from a place that is an argument."""
    shape = _array(rng, ranks=(2, 3))
    stride = tuple(int(pick(rng, (1, 1, 2, 3))) for _ in shape)
    moved = bool(rng.random() < 0.3)
    part = tuple(max(1, length * 2 // 3) for length in shape)

    def apply(x: Any, place: Any) -> Any:
        if moved:
            return lax.dynamic_slice(x, [place % 4] * len(part), part)
        return x[tuple(slice(length // 9, None, step) for length, step in zip(shape, stride, strict=True))]

    return KernelPiece(apply, (("f32", shape), ("i32", ())))


def replaced_part(rng: Rng) -> KernelPiece:
    """A part of an array overwritten from a place that is an argument, as caches are."""
    shape = _array(rng, ranks=(2, 3))
    part = (max(1, shape[0] // log_uniform(rng, 2, 50)), *shape[1:])

    def apply(x: Any, new: Any, place: Any) -> Any:
        return lax.dynamic_update_slice(x, new, (place, *[0] * (len(part) - 1)))

    return KernelPiece(apply, (("f32", shape), ("f32", part), ("i32", ())))


def padding(rng: Rng) -> KernelPiece:
    """An array with a margin: constant, repeated or mirrored."""
    shape = _array(rng, ranks=(2, 4))
    widest = int(np.argmax(shape))
    reach = tuple(
        (int(rng.integers(0, 4)), int(rng.integers(0, 4))) if axis == widest or length > 20 else (0, 0)
        for axis, length in enumerate(shape)
    )
    mode = pick(rng, ("constant", "constant", "edge", "wrap"))

    def apply(x: Any) -> Any:
        return jnp.pad(x, reach, mode=mode)

    return KernelPiece(apply, (("f32", shape),))


def reordering(rng: Rng) -> KernelPiece:
    """An array reversed, rolled or repeated along an axis."""
    shape = _array(rng, largest=LARGEST / 2, ranks=(1, 3))
    axis, kind = int(rng.integers(len(shape))), pick(rng, ("flip", "roll", "repeat"))

    def apply(x: Any) -> Any:
        return jnp.flip(x, axis) if kind == "flip" else getattr(jnp, kind)(x, 2, axis)

    return KernelPiece(apply, (("f32", shape),))


def conversion(rng: Rng) -> KernelPiece:
    """To another type and back in one chain, or to stay there."""
    shape, dtype, back = _array(rng), pick(rng, ("bfloat16", "float16", "int32", "int8")), bool(rng.random() < 0.5)

    def apply(x: Any) -> Any:
        small = (x * 50).astype(dtype)
        return small.astype("float32") if back else small

    return KernelPiece(apply, (("f32", shape),))


def choice(rng: Rng) -> KernelPiece:
    """Comparisons and selections, clipping, one-hot rows."""
    kind, shape = pick(rng, ("where", "clip", "between", "one_hot")), _array(rng, largest=LARGEST / 2)
    if kind == "one_hot":
        shape = (log_uniform(rng, 20, 4000),)

    def apply(x: Any, y: Any, place: Any) -> Any:
        if kind == "one_hot":
            return jax.nn.one_hot(place, TABLE_ROWS)
        if kind == "where":
            return jnp.where(x > y, x, y * 0.5)
        return jnp.clip(x, 0.3, 0.7) * y if kind == "clip" else ((x > 0.2) & (x < y)).astype(jnp.float32)

    return KernelPiece(apply, (("f32", shape), ("f32", shape), ("i32", shape)))


def integers(rng: Rng) -> KernelPiece:
    """Integer arithmetic: shifts, remainders, masks."""
    shape, count = _array(rng, largest=LARGEST / 2), int(rng.integers(1, 5))
    kinds = [
        pick(rng, ("add", "multiply", "bitwise_xor", "bitwise_and", "right_shift", "remainder")) for _ in range(count)
    ]

    def apply(x: Any, y: Any) -> Any:
        for kind in kinds:
            other = y % 7 + 1 if kind in {"right_shift", "remainder"} else y
            x = getattr(jnp, kind)(x, other)
        return x

    return KernelPiece(apply, (("i32", shape), ("i32", shape)))


def running(rng: Rng) -> KernelPiece:
    """Running sums, minima and maxima along an axis."""
    shape, kind = _array(rng, largest=1e5, ranks=(1, 3)), pick(rng, ("cumsum", "cumsum", "cummin", "cummax"))
    axis = int(rng.integers(len(shape)))

    def apply(x: Any) -> Any:
        return getattr(lax, kind)(x, axis=axis)

    return KernelPiece(apply, (("f32", shape),))


def pooling(rng: Rng) -> KernelPiece:
    """Maxima or sums over windows of an image."""
    batch, width = log_uniform(rng, 1, 16), rounded(rng, log_uniform(rng, 1, 96))
    side = int(np.clip(round((log_uniform(rng, SMALLEST, 3e5) / batch / width) ** 0.5), 8, 200))
    window, stride = int(pick(rng, (2, 2, 3, 5))), int(pick(rng, (1, 2, 2, 3)))
    padded, kind = pick(rng, ("SAME", "VALID")), pick(rng, ("max", "add"))

    def apply(x: Any) -> Any:
        first = 0.0 if kind == "add" else -jnp.inf
        return lax.reduce_window(x, first, getattr(lax, kind), (1, window, window, 1), (1, stride, stride, 1), padded)

    return KernelPiece(apply, (("f32", (batch, side, side, width)),))


def sorting(rng: Rng) -> KernelPiece:
    """Values sorted along an axis, or the places that would sort them."""
    shape, kind = _array(rng, largest=4e4, ranks=(1, 2)), pick(rng, ("sort", "sort", "argsort"))
    axis = int(rng.integers(len(shape)))

    def apply(x: Any) -> Any:
        return getattr(jnp, kind)(x, axis)

    return KernelPiece(apply, (("f32", shape),))


def places(rng: Rng) -> KernelPiece:
    """The place of the largest or smallest along an axis."""
    shape, kind = _array(rng, largest=5e5, ranks=(1, 3)), pick(rng, ("argmax", "argmin"))
    axis = int(rng.integers(len(shape)))

    def apply(x: Any) -> Any:
        return getattr(jnp, kind)(x, axis)

    return KernelPiece(apply, (("f32", shape),))
