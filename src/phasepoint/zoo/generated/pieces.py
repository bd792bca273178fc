"""Kernels that stand alone: one function per kind draws a kernel of random size.

Random numbers that sizes are drawn from.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from phasepoint.zoo.specs import jax, jnp, lax

T = TypeVar("T")


def log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    """An integer, uniform in its logarithm, from low to high."""
    return max(1, round(math.exp(rng.uniform(math.log(low), math.log(high)))))


def rounded(rng: np.random.Generator, value: float) -> int:
    """A length as people choose them: half are multiples of 8 or 16, the others anything."""
    step = int(rng.choice([1, 1, 4, 8, 16]))
    return max(1, round(value / step) * step) if value >= step else max(1, round(value))


def split_product(rng: np.random.Generator, total: float, rank: int) -> tuple[int, ...]:
    """Lengths of `rank` axes whose product is near `total`; aspects of 1:1000 occur, those far beyond do not."""
    shares = rng.dirichlet(np.full(rank, 4.0))
    return tuple(rounded(rng, total ** float(share)) for share in shares)


def pick(rng: np.random.Generator, among: Sequence[T]) -> T:
    """One of them, all alike likely."""
    return among[int(rng.integers(len(among)))]


Rng = np.random.Generator


@dataclass(frozen=True)
class KernelPiece:
    """One kernel: what it computes of which arguments.

    Attributes:
        apply: arrays → an array or a tuple of arrays; needs JAX.
        shapes: dtype (`f32`, `i32`) and shape of each argument.
    """

    apply: Callable[..., Any]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


UNARY: tuple[str, ...] = (
    "abs", "cos", "exp", "floor", "log1p", "negative", "sign", "sin", "sqrt", "square", "tanh", "reciprocal", "cbrt",
)  # fmt: skip
BINARY: tuple[str, ...] = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "arctan2")
SMALLEST, LARGEST = 8e3, 3e6
"""Elements of an array that a memory-bound kernel reads."""


def _product(rng: Rng, total: float, *, largest: float = LARGEST) -> tuple[int, ...]:
    """Rows, inner length and columns of a product whose three arrays hold at most `largest` elements each."""
    while True:
        rows, inner, columns = split_product(rng, total, 3)
        if max(rows * inner, inner * columns, rows * columns) <= largest:
            return rows, inner, columns


def elementwise(rng: Rng) -> KernelPiece:
    """A chain of 1 to 12 element-wise operations on 1 to 3 arrays."""
    count, arrays = log_uniform(rng, 1, 12), int(rng.integers(1, 4))
    shape = split_product(rng, log_uniform(rng, SMALLEST, LARGEST / (1 + count / 4)), int(rng.integers(1, 5)))
    steps = [
        (pick(rng, UNARY), pick(rng, BINARY), int(rng.integers(arrays)), bool(rng.random() < 0.6)) for _ in range(count)
    ]

    def apply(*values: Any) -> Any:
        x = values[0]
        for unary, binary, other, two in steps:
            x = getattr(jnp, binary)(jnp.abs(x) + 0.1, values[other]) if two else getattr(jnp, unary)(jnp.abs(x) + 0.1)
        return x

    return KernelPiece(apply, (("f32", shape),) * arrays)


def dot(rng: Rng) -> KernelPiece:
    """A matrix product in one of the four transpositions, of any aspect ratio; vectors among them."""
    flop = log_uniform(rng, 3e5, 5e8)
    if rng.random() < 0.2:
        rows, inner, columns = (1, *split_product(rng, min(flop / 2, LARGEST / 3), 2))
    else:
        rows, inner, columns = _product(rng, flop / 2)
    left, right = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    first = (inner, rows) if left else (rows, inner)
    second = (columns, inner) if right else (inner, columns)
    return KernelPiece(lambda a, b: (a.T if left else a) @ (b.T if right else b), (("f32", first), ("f32", second)))


def batched_dot(rng: Rng) -> KernelPiece:
    """Many matrix products at once, as attention has them."""
    batch = log_uniform(rng, 2, 64)
    rows, inner, columns = _product(rng, log_uniform(rng, 3e5, 2e8) / 2 / batch, largest=LARGEST / batch)
    equation = pick(rng, ("bij,bjk->bik", "bij,bkj->bik", "bji,bjk->bik", "bji,bkj->bik"))
    lengths = {"b": batch, "i": rows, "j": inner, "k": columns}
    first, second = (tuple(lengths[axis] for axis in term) for term in equation.split("->")[0].split(","))

    def apply(a: Any, b: Any) -> Any:
        return jnp.einsum(equation, a, b)

    return KernelPiece(apply, (("f32", first), ("f32", second)))


def fused_dot(rng: Rng) -> KernelPiece:
    """A dense layer: product, bias and activation."""
    rows, inner, columns = _product(rng, log_uniform(rng, 1e5, 3e8) / 2)
    act = pick(rng, ("relu", "gelu", "tanh", "sigmoid", "silu"))

    def apply(x: Any, w: Any, b: Any) -> Any:
        return getattr(jax.nn, act)(x @ w + b)

    return KernelPiece(apply, (("f32", (rows, inner)), ("f32", (inner, columns)), ("f32", (columns,))))


def reduction(rng: Rng) -> KernelPiece:
    """A reduction over inner, outer, middle or all axes, with or without work before it."""
    rank = int(rng.integers(2, 5))
    shape = split_product(rng, log_uniform(rng, SMALLEST, LARGEST), rank)
    count = int(rng.integers(1, rank + 1))
    axes = tuple(sorted(int(axis) for axis in rng.choice(rank, count, replace=False)))
    kind, before = pick(rng, ("sum", "mean", "max", "min", "var", "sum")), pick(rng, ("", "", "exp", "square", "abs"))

    def apply(x: Any) -> Any:
        return getattr(jnp, kind)(getattr(jnp, before)(x) if before else x, axes)

    return KernelPiece(apply, (("f32", shape),))


def transposition(rng: Rng) -> KernelPiece:
    """A transposed copy, any permutation of 2 to 4 axes."""
    rank = int(rng.integers(2, 5))
    shape = split_product(rng, log_uniform(rng, SMALLEST, LARGEST), rank)
    order = tuple(int(axis) for axis in rng.permutation(rank))
    if order == tuple(range(rank)):
        order = order[::-1]
    return KernelPiece(lambda x: x.transpose(order), (("f32", shape),))


def broadcast(rng: Rng) -> KernelPiece:
    """A small array against a large one, or two that span an outer product."""
    rank = int(rng.integers(2, 4))
    shape = split_product(rng, log_uniform(rng, SMALLEST, LARGEST), rank)
    small = tuple(1 if rng.random() < 0.5 else length for length in shape)
    other = shape if rng.random() < 0.5 else tuple(a if b == 1 else 1 for a, b in zip(shape, small, strict=True))
    kind = pick(rng, BINARY)

    def apply(a: Any, b: Any) -> Any:
        return getattr(jnp, kind)(a, b)

    return KernelPiece(apply, (("f32", small), ("f32", other)))


def normalisation(rng: Rng) -> KernelPiece:
    """Softmax, log-softmax or a norm over the last or another axis."""
    shape = split_product(rng, log_uniform(rng, SMALLEST, LARGEST / 3), int(rng.integers(2, 4)))
    axis, kind = int(rng.integers(len(shape))), pick(rng, ("softmax", "log_softmax", "standardize", "logsumexp"))

    def apply(x: Any) -> Any:
        return getattr(jax.nn, kind)(x, axis=axis)

    return KernelPiece(apply, (("f32", shape),))


def convolution(rng: Rng) -> KernelPiece:
    """A convolution over one or two axes, varied in channels, kernel, stride, dilation and groups."""
    rank, kernel, batch = int(rng.integers(1, 3)), int(pick(rng, (1, 2, 3, 3, 3, 4, 5, 7))), log_uniform(rng, 1, 16)
    inputs, outputs = rounded(rng, log_uniform(rng, 1, 128)), rounded(rng, log_uniform(rng, 4, 128))
    groups, stride, dilation = 1, int(pick(rng, (1, 1, 1, 2, 3))), int(pick(rng, (1, 1, 1, 2)))
    if rng.random() < 0.2:
        groups = int(pick(rng, (2, 4, inputs)))
        inputs = -(-inputs // groups) * groups
        outputs = -(-outputs // groups) * groups
    work = 2 * batch * kernel**rank * inputs // groups * outputs
    flop = log_uniform(rng, 3e5, 1e8 if groups == 1 else 2e7)
    side = max(kernel * dilation, min(2000 if rank == 1 else 96, round((flop / work) ** (1 / rank) * stride)))
    padding = pick(rng, ("SAME", "VALID"))

    def apply(x: Any, w: Any) -> Any:
        numbers = ("NWC", "WIO", "NWC") if rank == 1 else ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x,
            w,
            (stride,) * rank,
            padding,
            rhs_dilation=(dilation,) * rank,
            dimension_numbers=numbers,
            feature_group_count=groups,
        )

    window = (*(kernel,) * rank, inputs // groups, outputs)
    return KernelPiece(apply, (("f32", (batch, *(side,) * rank, inputs)), ("f32", window)))
