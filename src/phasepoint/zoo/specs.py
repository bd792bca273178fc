"""What a program of the corpus is: a name, a family, and a function with the shapes of its arguments.

Shapes of arguments, short.

Arguments to run a program with: moderate values, so that no kernel meets denormals or NaN on their account.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

LOW, HIGH = 0.1, 1.0
"""Ends of what floats are drawn from: moderate, far from denormal."""


class LateModule:
    """A module that is imported when one of its names is first used: the zoo's tables are read where JAX is not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


jax, jnp, lax = (LateModule(name) for name in ("jax", "jax.numpy", "jax.lax"))


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


def f32(*shape: int) -> Any:
    """The shape of a float32 argument."""
    return _struct(shape, "float32")


def i32(*shape: int) -> Any:
    """The shape of an int32 argument: indices, classes, tokens."""
    return _struct(shape, "int32")


def i8(*shape: int) -> Any:
    """The shape of an int8 argument: quantised values."""
    return _struct(shape, "int8")


def _struct(shape: tuple[int, ...], dtype: str) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def in_bfloat16(tree: Any) -> Any:
    """The same tree of shapes with bfloat16 for float32."""
    return jax.tree.map(lambda leaf: _struct(leaf.shape, "bfloat16") if leaf.dtype == "float32" else leaf, tree)


Tree = Any  # a pytree; its leaves are jax.ShapeDtypeStruct here, arrays when it runs


@dataclass(frozen=True)
class ProgramSpec:
    """One program that can be compiled and measured.

    Attributes:
        name: unique; letters, digits, dot, dash and underscore, so that it can name a folder.
        family: programs of one structure: what the manual split holds out as a whole.
        variant: network and size.
        mode: `forward`, or `train` (loss, gradients and, in most, an update).
        build: gives the function to jit and the tuple of its arguments, trees of `jax.ShapeDtypeStruct`. Needs JAX.
        integer_bound: integer arguments are drawn from [0, integer_bound): they are indices, classes, tokens.
    """

    name: str
    family: str
    variant: str
    mode: str
    build: Callable[[], tuple[Callable[..., Any], tuple[Tree, ...]]]
    integer_bound: int = 2


@dataclass(frozen=True)
class Net:
    """A network of one size, ready to trace.

    Attributes:
        forward: (parameters, *inputs) → any tree of arrays; a scalar counts as a loss.
        parameters: a dict of shapes; empty where nothing is learned.
        inputs: shapes of what comes after the parameters.
    """

    forward: Callable[..., Any]
    parameters: Mapping[str, Any]
    inputs: tuple[Tree, ...]


@dataclass(frozen=True)
class Network:
    """One row of the zoo: a network with its sizes.

    Attributes:
        family: see ProgramSpec.
        name: unique within the family.
        make: builds the network of one size; called with a size and `options`. Needs JAX.
        sizes: keyword arguments of `make`, one mapping per size.
        modes: what is made of each size.
        options: arguments of `make` that all sizes share.
        integer_bound: the key of a size, or a number: see ProgramSpec.
        half: the sizes (by place) that are made in bfloat16 too.
    """

    family: str
    name: str
    make: Callable[..., Net]
    sizes: tuple[Mapping[str, int], ...]
    modes: tuple[str, ...] = ("forward", "train")
    options: Mapping[str, Any] = field(default_factory=dict)
    integer_bound: str | int = 2
    half: tuple[int, ...] = ()


def sizes(keys: str, *rows: tuple[int, ...]) -> tuple[Mapping[str, int], ...]:
    """Sizes as mappings, from a table: `sizes("batch width", (8, 100), (16, 300))`."""
    return tuple(dict(zip(keys.split(), row, strict=True)) for row in rows)
