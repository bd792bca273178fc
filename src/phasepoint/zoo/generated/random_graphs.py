"""Random graphs of operations: each takes values that are there and adds one, until there are enough."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.zoo.generated.pieces import log_uniform, pick, rounded, split_product
from phasepoint.zoo.specs import Net, f32, i32, jax, jnp, lax

Rng = np.random.Generator
Shape = tuple[int, ...]

FEWEST, MOST = 6, 24
"""Operations in a graph."""
LARGEST = 3e5
"""Elements of a value."""
MOST_FLOP = 6e7
"""Of one product or convolution."""


@dataclass(frozen=True)
class Operation:
    """One node.

    Attributes:
        kind: function of `OPERATIONS` that drew it.
        apply: (values…, weights…, indices…) → value; needs JAX.
        shape: of the result.
        weights: shapes of its parameters.
        indices: shapes of its integer inputs.
        pair: whether it takes a second value, of the same shape.
    """

    kind: str
    apply: Callable[..., Any]
    shape: Shape
    weights: tuple[Shape, ...] = ()
    indices: tuple[Shape, ...] = ()
    pair: bool = False


ACTIVATIONS = ("relu", "gelu", "tanh", "sigmoid", "silu", "softplus", "elu", "leaky_relu")


def _activation(rng: Rng, shape: Shape) -> Operation:
    name = pick(rng, ACTIVATIONS)

    def apply(x: Any) -> Any:
        return getattr(jax.nn, name)(x)

    return Operation("activation", apply, shape)


def _chain(rng: Rng, shape: Shape) -> Operation:
    names = [
        pick(rng, ("tanh", "sin", "cos", "abs", "exp", "sqrt", "log1p", "square")) for _ in range(rng.integers(1, 6))
    ]

    def apply(x: Any) -> Any:
        for name in names:
            x = getattr(jnp, name)(0.1 + jnp.abs(x) / (1 + jnp.abs(x)) if name != "abs" else x)
        return x

    return Operation("chain", apply, shape)


def _pair(rng: Rng, shape: Shape) -> Operation:
    name = pick(rng, ("add", "subtract", "multiply", "maximum", "minimum", "where"))

    def apply(x: Any, y: Any) -> Any:
        return jnp.where(x > y, x, 0.5 * y) if name == "where" else getattr(jnp, name)(x, y)

    return Operation("pair", apply, shape, pair=True)


def _joined(rng: Rng, shape: Shape) -> Operation | None:
    axis = int(rng.integers(len(shape)))

    def apply(x: Any, y: Any) -> Any:
        return jnp.concatenate([x, y], axis)

    return Operation("joined", apply, _with(shape, axis, 2 * shape[axis]), pair=True)


def _dense(rng: Rng, shape: Shape) -> Operation | None:
    width = rounded(rng, log_uniform(rng, 16, 512))
    if 2 * np.prod(shape) * width > MOST_FLOP:
        return None
    return Operation("dense", lambda x, w, b: x @ w + b, (*shape[:-1], width), weights=((shape[-1], width), (width,)))


def _convolution(rng: Rng, shape: Shape) -> Operation | None:
    rank = len(shape) - 2
    kernel, stride, width = (
        int(pick(rng, (1, 3, 3, 5))),
        int(pick(rng, (1, 1, 2))),
        rounded(rng, log_uniform(rng, 8, 64)),
    )
    work = 2 * np.prod(shape) * kernel ** max(rank, 0) * width / stride ** max(rank, 0)
    if rank not in {1, 2} or min(shape[1:-1]) < 5 or work > MOST_FLOP:
        return None

    def apply(x: Any, w: Any) -> Any:
        numbers = ("NWC", "WIO", "NWC") if rank == 1 else ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (stride,) * rank, "SAME", dimension_numbers=numbers)

    spatial = tuple(-(-length // stride) for length in shape[1:-1])
    return Operation(
        "convolution", apply, (shape[0], *spatial, width), weights=((*(kernel,) * rank, shape[-1], width),)
    )


def _normalised(rng: Rng, shape: Shape) -> Operation:
    axes = pick(rng, ((-1,), (-1,), tuple(range(len(shape) - 1))))

    def apply(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - jnp.mean(x, axes, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred**2, axes, keepdims=True) + 1e-3) * scale + shift

    return Operation("normalised", apply, shape, weights=(shape[-1:], shape[-1:]))


def _softmax(rng: Rng, shape: Shape) -> Operation:
    axis = int(rng.integers(len(shape)))

    def apply(x: Any) -> Any:
        return jax.nn.softmax(x, axis)

    return Operation("softmax", apply, shape)


def _scaled(_: Rng, shape: Shape) -> Operation:
    return Operation("scaled", lambda x, scale, shift: x * scale + shift, shape, weights=(shape[-1:], shape[-1:]))


def _reduced(rng: Rng, shape: Shape) -> Operation | None:
    if len(shape) < 3:
        return None
    axis, name = int(rng.integers(len(shape))), pick(rng, ("mean", "max", "sum", "var"))
    return Operation("reduced", lambda x: getattr(x, name)(axis), (*shape[:axis], *shape[axis + 1 :]))


def _centred(rng: Rng, shape: Shape) -> Operation:
    axis, name = int(rng.integers(len(shape))), pick(rng, ("mean", "max", "min"))
    return Operation("centred", lambda x: x - getattr(x, name)(axis, keepdims=True), shape)


def _transposed(rng: Rng, shape: Shape) -> Operation:
    order = tuple(int(axis) for axis in rng.permutation(len(shape)))
    return Operation("transposed", lambda x: x.transpose(order), tuple(shape[axis] for axis in order))


def _merged(rng: Rng, shape: Shape) -> Operation | None:
    if len(shape) < 3:
        return None
    axis = int(rng.integers(len(shape) - 1))
    merged = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
    return Operation("merged", lambda x: x.reshape(merged), merged)


def _part(rng: Rng, shape: Shape) -> Operation | None:
    axis, stride = int(rng.integers(len(shape))), int(rng.integers(1, 3))
    if shape[axis] < 8:
        return None
    start = shape[axis] // 4 if stride == 1 else 0
    cut = (*[slice(None)] * axis, slice(start, None, stride))
    return Operation("part", lambda x: x[cut], _with(shape, axis, len(range(start, shape[axis], stride))))


def _padded(rng: Rng, shape: Shape) -> Operation:
    axis, before, after = int(rng.integers(len(shape))), int(rng.integers(0, 3)), int(rng.integers(1, 4))
    reach = [(before, after) if place == axis else (0, 0) for place in range(len(shape))]

    def apply(x: Any) -> Any:
        return jnp.pad(x, reach)

    return Operation("padded", apply, _with(shape, axis, shape[axis] + before + after))


def _gathered(rng: Rng, shape: Shape) -> Operation | None:
    axis = int(rng.integers(len(shape)))
    count = rounded(rng, log_uniform(rng, 4, 256))
    new = _with(shape, axis, count)

    def apply(x: Any, place: Any) -> Any:
        return jnp.take(x, place % shape[axis], axis)

    return Operation("gathered", apply, new, indices=((count,),))


def _compared(_: Rng, shape: Shape) -> Operation | None:
    if len(shape) != 3 or 2 * np.prod(shape) * shape[1] > MOST_FLOP:
        return None
    return Operation("compared", lambda x: x @ x.transpose(0, 2, 1) / shape[2], (shape[0], shape[1], shape[1]))


def _pooled(rng: Rng, shape: Shape) -> Operation | None:
    if len(shape) != 4 or min(shape[1:3]) < 6:
        return None
    window, kind = int(rng.integers(2, 4)), pick(rng, ("max", "add"))

    def apply(x: Any) -> Any:
        first = 0.0 if kind == "add" else -jnp.inf
        return lax.reduce_window(x, first, getattr(lax, kind), (1, window, window, 1), (1, 2, 2, 1), "VALID")

    return Operation("pooled", apply, (shape[0], *((length - window) // 2 + 1 for length in shape[1:3]), shape[3]))


def _running(rng: Rng, shape: Shape) -> Operation | None:
    if np.prod(shape) > 3e4:
        return None
    axis = int(rng.integers(len(shape)))
    return Operation("running", lambda x: x.cumsum(axis) / shape[axis], shape)


OPERATIONS: tuple[tuple[Callable[[Rng, Shape], Operation | None], float], ...] = (
    (_activation, 3),
    (_chain, 3),
    (_pair, 4),
    (_joined, 1.5),
    (_dense, 6),
    (_convolution, 5),
    (_normalised, 2),
    (_softmax, 1),
    (_scaled, 2),
    (_reduced, 1),
    (_centred, 1),
    (_transposed, 2),
    (_merged, 1),
    (_part, 1),
    (_padded, 1),
    (_gathered, 1),
    (_compared, 2),
    (_pooled, 1.5),
    (_running, 0.5),
)


def _with(shape: Shape, axis: int, length: int) -> Shape:
    return (*shape[:axis], length, *shape[axis + 1 :])


@dataclass(frozen=True)
class RandomGraph:
    """A drawn graph: the shape of its input, and operations with the values that each takes (0 is the input)."""

    shape: Shape
    operations: tuple[Operation, ...]
    sources: tuple[tuple[int, ...], ...]


def draw_graph(rng: Rng) -> RandomGraph:
    """Draws a graph; needs no JAX. New values are taken more often than old ones."""
    shape = _first_shape(rng)
    values, operations, sources = [shape], list[Operation](), list[tuple[int, ...]]()
    weights = np.array([weight for _, weight in OPERATIONS])
    count = int(rng.integers(FEWEST, MOST + 1))
    while len(operations) < count:
        source = max(0, len(values) - 1 - int(rng.geometric(0.5) - 1))
        kind = OPERATIONS[int(rng.choice(len(OPERATIONS), p=weights / weights.sum()))][0]
        drawn = kind(rng, values[source])
        if drawn is None or not 64 <= np.prod(drawn.shape) <= LARGEST:
            continue
        alike = [place for place, other in enumerate(values) if other == values[source]]
        sources.append((source, int(pick(rng, alike))) if drawn.pair else (source,))
        operations.append(drawn)
        values.append(drawn.shape)
    return RandomGraph(shape, tuple(operations), tuple(sources))


def _first_shape(rng: Rng) -> Shape:
    rank, total = int(pick(rng, (2, 3, 3, 4, 4))), log_uniform(rng, 4e3, LARGEST / 2)
    if rank < 4:
        return split_product(rng, total, rank)
    side, width = rounded(rng, log_uniform(rng, 8, 48)), rounded(rng, log_uniform(rng, 4, 64))
    return (max(1, round(total / side**2 / width)), side, side, width)


def net_of_graph(graph: RandomGraph) -> Net:
    """The network of a graph; its outputs are the values that no operation takes."""
    taken = {place for places in graph.sources for place in places}
    ends = [place for place in range(1, len(graph.operations) + 1) if place not in taken]

    def forward(parameters: Any, x: Any, indices: Any) -> Any:
        values = [x]
        for place, (operation, sources) in enumerate(zip(graph.operations, graph.sources, strict=True)):
            weights = parameters.get(f"o{place}", ())
            values.append(operation.apply(*(values[source] for source in sources), *weights, *indices[place]))
        return [values[place] for place in ends]

    parameters = {
        f"o{place}": tuple(f32(*shape) for shape in operation.weights)
        for place, operation in enumerate(graph.operations)
        if operation.weights
    }
    indices = tuple(tuple(i32(*shape) for shape in operation.indices) for operation in graph.operations)
    return Net(forward, parameters, (f32(*graph.shape), indices))
