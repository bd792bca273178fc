"""Random numbers that sizes are drawn from."""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

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
