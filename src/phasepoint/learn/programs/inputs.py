"""Arguments to run a program with: moderate values, so that no kernel meets denormals or NaN on their account."""

import zlib
from typing import Any

import numpy as np

LOW, HIGH = 0.1, 1.0


def make_inputs(arguments: tuple[Any, ...], *, seed: int = 0, integer_bound: int = 2) -> tuple[Any, ...]:
    """Draws arguments for shapes.

    Floats are uniform in [0.1, 1): positive, far from denormal. The first argument, where it is a dict, holds
    parameters: its matrices and convolution kernels are uniform with mean 0 and variance 1 / fan-in, so that values
    keep their size through the layers. Integers are uniform in [0, integer_bound), at most what the type holds;
    booleans are fair.

    Args:
        arguments: trees of shapes, as `ProgramSpec.build` gives them.
        seed: same seed, same arrays; an argument's draw depends on its place in the tree and not on the others.
        integer_bound: the specification's `integer_bound`.

    Returns:
        The same trees with NumPy arrays for leaves.
    """
    import jax

    def draw(path: Any, leaf: Any) -> Any:
        place = jax.tree_util.keystr(path)
        rng = np.random.default_rng([seed, zlib.crc32(place.encode())])
        learned = len(path) > 1 and path[0].idx == 0 and isinstance(arguments[0], dict)
        return _array(rng, leaf, learned=learned, integer_bound=integer_bound)

    drawn: tuple[Any, ...] = jax.tree_util.tree_map_with_path(draw, tuple(arguments))
    return drawn


def _array(rng: np.random.Generator, leaf: Any, *, learned: bool, integer_bound: int) -> Any:
    shape, dtype = leaf.shape, np.dtype(leaf.dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, min(integer_bound, int(np.iinfo(dtype).max)), shape, dtype=dtype)
    uniform = rng.random(shape, dtype=np.float32)
    if learned and len(shape) > 1:
        fan_in = max(1, int(np.prod(shape[:-1])))
        return ((2 * uniform - 1) * np.float32(np.sqrt(3 / fan_in))).astype(dtype)
    return (LOW + (HIGH - LOW) * uniform).astype(dtype)
