"""What a program of the corpus is: a name, a family, and a function with the shapes of its arguments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
