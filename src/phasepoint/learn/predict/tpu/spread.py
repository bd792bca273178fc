"""Arguments of a training step over all devices of a slice: batches are divided among them, the rest is on each.

What of the arguments is a batch shows in what the function returns: it gives its state back (parameters, an optimizer's
moments), and batches not. A script that places its arguments itself (`NamedSharding`) is left its way: while it runs
here, `jax.devices()` are those of the slice.

Its own file: it needs JAX, and runs in the compiler's process alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from phasepoint.core.errors import UsageError

F32_BYTES = 4
"""Of a float, in which gradients are added up."""

KEY_WORDS = 2
"""32-bit words of one of JAX's raw random keys, which is no batch of two."""


def spread_over(
    function: Callable[..., Any],
    values: Sequence[Any],
    devices: Sequence[Any],
    *,
    batch: int | None,
    data: Sequence[int],
    batch_axis: int = 0,
) -> tuple[tuple[Any, ...], int]:
    """Shapes of the arguments with their places on the devices, and the batch.

    Args:
        function: the step, jitted or plain.
        values: its arguments, arrays or shapes, or trees of them.
        devices: of the slice.
        batch: samples of a step, all devices together; None: as in `values`.
        data: places of the arguments that are batches, from 0; none: those that the function does not return.
        batch_axis: dimension of a batch along which its samples lie: 1 where time comes first.

    Raises:
        UsageError: no argument is a batch, or its size is not clear, or the devices cannot share it.
    """
    import jax
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    own = [_own_places(value, devices) for value in values]
    values = jax.eval_shape(lambda *them: them, *values)  # numbers become scalars
    mesh = Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))
    whole = NamedSharding(mesh, PartitionSpec())
    places = tuple(data) or data_arguments(function, values)
    size = batch_size(values, places, batch_axis)
    asked = size if batch is None else batch
    if any(at is None for place in places for at in own[place]):
        _check_shared(asked, len(devices))

    def placed(leaf: Any, chosen: Any, *, is_data: bool) -> Any:
        if not (is_data and _holds_samples(leaf)):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=chosen or whole)
        axis = _samples_axis(leaf, batch_axis)
        divided = NamedSharding(mesh, PartitionSpec(*[None] * axis, "data"))
        return _resized(leaf, axis, asked * leaf.shape[axis] // size, sharding=chosen or divided)

    shapes = []
    for place, (value, chosen) in enumerate(zip(values, own, strict=True)):
        leaves, structure = jax.tree.flatten(value)
        put = [placed(leaf, at, is_data=place in places) for leaf, at in zip(leaves, chosen, strict=True)]
        shapes.append(jax.tree.unflatten(structure, put))
    return tuple(shapes), asked


def share_of_one(
    function: Callable[..., Any],
    values: Sequence[Any],
    devices: int,
    *,
    batch: int | None,
    data: Sequence[int],
    batch_axis: int = 0,
) -> tuple[tuple[Any, ...], int, int]:
    """Shapes of the arguments as one of several devices has them, the batch of all, and bytes of a gradient.

    Args:
        function: the step.
        values: its arguments.
        devices: that share the batch.
        batch: samples of a step, all devices together; None: as in `values`.
        data: as of `spread_over`.
        batch_axis: likewise.

    Raises:
        UsageError: as `spread_over`.
    """
    import jax

    values = jax.eval_shape(lambda *them: them, *values)
    places = tuple(data) or data_arguments(function, values)
    size = batch_size(values, places, batch_axis)
    asked = size if batch is None else batch
    _check_shared(asked, devices)

    def part(leaf: Any) -> Any:
        if not _holds_samples(leaf):
            return leaf
        axis = _samples_axis(leaf, batch_axis)
        return _resized(leaf, axis, asked // devices * leaf.shape[axis] // size)

    shapes = tuple(jax.tree.map(part, value) if place in places else value for place, value in enumerate(values))
    state = [value for place, value in enumerate(values) if place not in places]
    return shapes, asked, gradient_bytes(state)


def gradient_bytes(state: Any) -> int:
    """Bytes of a gradient in f32, from weights and an optimizer's moments: each shape is there as often as these are.

    Example:
        >>> import numpy as np
        >>> weights = {"w": np.zeros((4, 3)), "b": np.zeros(4)}
        >>> gradient_bytes([weights, {"mean": weights, "square": weights, "count": np.zeros(())}])
        64
    """
    import jax

    leaves = [leaf for leaf in jax.tree.leaves(state) if np.issubdtype(leaf.dtype, np.floating)]
    return gradient_bytes_of([tuple(leaf.shape) for leaf in leaves])


def gradient_bytes_of(shapes: Sequence[tuple[int, ...]]) -> int:
    """The same of the shapes of all arrays of weights and moments."""
    shapes = [shape for shape in shapes if shape]
    copies = math.gcd(*(shapes.count(shape) for shape in set(shapes)))
    return int(F32_BYTES * sum(math.prod(shape) for shape in shapes) // max(copies, 1))


def _check_shared(asked: int, devices: int) -> None:
    if asked % devices:
        below = asked // devices * devices
        near = f"{below:,} or {below + devices:,}" if below else f"{devices:,}"
        raise UsageError(f"a batch of {asked:,} can't be divided among {devices:,} devices; {near} can")


@contextmanager
def devices_of_slice(devices: Sequence[Any]) -> Iterator[None]:
    """While it lasts, a script that asks JAX for its devices is given those of a slice."""
    import jax

    make_mesh = jax.make_mesh

    def make(*args: Any, **options: Any) -> Any:
        return make_mesh(*args, **{"devices": devices, **options})

    instead = {"devices": lambda *_: list(devices), "device_count": lambda *_: len(devices), "make_mesh": make}
    before = {name: getattr(jax, name) for name in instead}
    for name, stand_in in instead.items():
        setattr(jax, name, stand_in)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(jax, name, function)


def _own_places(value: Any, devices: Sequence[Any]) -> list[Any]:
    """Where the script has placed each leaf on these devices; None where it has not."""
    import jax
    from jax.sharding import NamedSharding

    found = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(value)]
    return [at if isinstance(at, NamedSharding) and at.mesh.devices.flat[0] in devices else None for at in found]


def data_arguments(function: Callable[..., Any], values: Sequence[Any]) -> tuple[int, ...]:
    """Places of the arguments that the function does not give back.

    Example:
        >>> import jax, numpy as np
        >>> def step(weights, images):
        ...     return weights - images.sum(0), images.mean()
        >>> data_arguments(step, (np.zeros(3), np.zeros((8, 3))))
        (1,)
    """
    import jax

    values, returned = jax.eval_shape(lambda *them: them, *values), jax.eval_shape(function, *values)
    parts = list(returned) if isinstance(returned, tuple | list) else [returned]
    given_back = [_form(part) for part in [*parts, returned]]
    return tuple(place for place, value in enumerate(values) if _form(value) not in given_back)


def batch_size(values: Sequence[Any], places: Sequence[int], batch_axis: int = 0) -> int:
    """Samples in the arguments at those places, along a dimension of theirs.

    Raises:
        UsageError: there are none, they do not agree, or no array has that dimension.
    """
    import jax

    leaves = {
        place: [leaf for leaf in jax.tree.leaves(values[place]) if _holds_samples(leaf)]
        for place in places
        if place < len(values)
    }
    most = max((len(leaf.shape) for several in leaves.values() for leaf in several), default=0)
    if 0 < most <= batch_axis:
        raise UsageError(f"--batch-axis {batch_axis}: the batches have {most} dimensions; the last one is {most - 1}")
    sizes = {
        f"argument {place}": sorted({leaf.shape[_samples_axis(leaf, batch_axis)] for leaf in several})
        for place, several in leaves.items()
    }
    found = {size for several in sizes.values() for size in several}
    if len(found) == 1:
        return int(found.pop())
    if not found:
        raise UsageError(
            "no argument of the function is a batch: it returns all that it takes, or takes scalars alone; say which "
            "one is with --data, as in --data 2 for the third"
        )
    told = "; ".join(f"{name}: {', '.join(map(str, several))}" for name, several in sizes.items() if several)
    raise UsageError(
        f"the sizes of what looks like batches differ ({told}); say which arguments are batches with --data, "
        "and with --batch-axis along which dimension their samples lie"
    )


def looped_over(function: Callable[..., Any], values: Sequence[Any], data: Sequence[int]) -> list[str]:
    """What to say of a step that loops over what is divided among devices: time surely, where it comes first.

    Args:
        function: the step.
        values: its arguments.
        data: as of `spread_over`.

    Example:
        >>> import jax, numpy as np
        >>> def step(weights, tokens):
        ...     return jax.lax.scan(lambda state, of: (state + weights[of].sum(), None), 0.0, tokens)[0]
        >>> len(looped_over(step, (np.zeros(9), np.zeros((64, 8), np.int32)), (1,)))
        1
    """
    import jax

    values = jax.eval_shape(lambda *them: them, *values)
    places = tuple(data) or data_arguments(function, values)
    batches = [leaf for place in places if place < len(values) for leaf in jax.tree.leaves(values[place])]
    heads = {tuple(leaf.shape[:2]) for leaf in batches if len(leaf.shape) > 1}
    lengths = {head[0] for head in heads & set(_scanned(jax.make_jaxpr(function)(*values).jaxpr))}
    return [
        f"the step loops over the first dimension of its batches ({length:,}), which devices divide: if that is time, "
        "say --batch-axis 1"
        for length in sorted(lengths)
    ]


def _scanned(jaxpr: Any) -> Iterator[tuple[int, ...]]:
    """The first two dimensions of all arrays that loops of a program go over."""
    for equation in jaxpr.eqns:
        params = equation.params
        if equation.primitive.name == "scan":
            held = params["num_consts"] + params["num_carry"]
            yield from (tuple(given.aval.shape[:2]) for given in equation.invars[held:])
        for part in params.values():
            for inner in part if isinstance(part, tuple | list) else (part,):
                within = getattr(inner, "jaxpr", inner)
                if hasattr(within, "eqns"):
                    yield from _scanned(within)


def _holds_samples(leaf: Any) -> bool:
    """Whether an array has samples: it is no scalar and no random key."""
    is_key = str(leaf.dtype).startswith("key") or (leaf.dtype == np.uint32 and tuple(leaf.shape) == (KEY_WORDS,))
    return bool(len(leaf.shape)) and not is_key


def _samples_axis(leaf: Any, batch_axis: int) -> int:
    """The dimension along which samples lie; the last one of arrays that have fewer, as of lengths."""
    return min(batch_axis, len(leaf.shape) - 1)


def _resized(leaf: Any, axis: int, size: int, **more: Any) -> Any:
    import jax

    shape = (*leaf.shape[:axis], size, *leaf.shape[axis + 1 :])
    return jax.ShapeDtypeStruct(shape, leaf.dtype, **more)


def _form(tree: Any) -> Any:
    """What a tree looks like: its structure, and shapes and types of its leaves."""
    import jax

    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]
