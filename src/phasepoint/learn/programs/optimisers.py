"""Updates of parameters alone: element-wise work over large arrays, and norms over whole trees."""

from collections.abc import Callable
from typing import Any

from phasepoint.learn.programs.layers import stack_of
from phasepoint.learn.programs.specs import Net, Network, sizes

Update = Callable[[Any, Any, Any, Any], Any]  # (value, slope, first moment, second moment) → the new three


def _momentum(value: Any, slope: Any, first: Any, second: Any) -> Any:
    first = 0.9 * first + slope
    return value - 0.01 * (slope + 0.9 * first) - 1e-4 * value, first, second


def _adam(value: Any, slope: Any, first: Any, second: Any) -> Any:
    import jax.numpy as jnp

    first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
    return value - 1e-3 * (first / 0.1 / (jnp.sqrt(second / 0.001) + 1e-8) + 0.01 * value), first, second


def _lamb(value: Any, slope: Any, first: Any, second: Any) -> Any:
    import jax.numpy as jnp

    first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
    change = first / (jnp.sqrt(second) + 1e-6) + 0.01 * value
    trust = jnp.sqrt((value**2).sum()) / (jnp.sqrt((change**2).sum()) + 1e-6)
    return value - 1e-3 * trust * change, first, second


def _adagrad(value: Any, slope: Any, first: Any, second: Any) -> Any:
    from jax import lax

    second = second + slope**2
    return value - 0.01 * slope * lax.rsqrt(second + 1e-7), first, second


def _sign(value: Any, slope: Any, first: Any, second: Any) -> Any:
    import jax.numpy as jnp

    change = jnp.sign(0.9 * first + 0.1 * slope)
    return value - 1e-4 * (change + 0.1 * value), 0.99 * first + 0.01 * slope, second


def _factored(value: Any, slope: Any, first: Any, second: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    if value.ndim < 2:
        return _adagrad(value, slope, first, second)
    square = slope**2 + 1e-30
    row, column = square.mean(-1, keepdims=True), square.mean(-2, keepdims=True)
    change = slope * lax.rsqrt(row / row.mean(-2, keepdims=True)) * lax.rsqrt(column)
    change = change / jnp.maximum(1, jnp.sqrt((change**2).mean()))
    return value - 0.01 * change, 0.9 * first + 0.1 * change, second


_UPDATES: dict[str, Update] = {
    "momentum": _momentum,
    "adam": _adam,
    "lamb": _lamb,
    "adagrad": _adagrad,
    "sign": _sign,
    "factored": _factored,
}


def _step(*, inputs: int, width: int, depth: int, kind: str, clipped: bool = False) -> Net:
    def forward(parameters: Any, slopes: Any, first: Any, second: Any) -> Any:
        import jax
        import jax.numpy as jnp

        if clipped:
            length = jnp.sqrt(sum((slope**2).sum() for slope in jax.tree.leaves(slopes)))
            slopes = jax.tree.map(lambda slope: slope * jnp.minimum(1, 1 / (length + 1e-6)), slopes)
        return jax.tree.map(_UPDATES[kind], parameters, slopes, first, second)

    tree = stack_of([inputs, *[width] * depth])
    return Net(forward, tree, (tree, tree, tree))


_SIZES = sizes(
    "inputs width depth", (784, 300, 2), (256, 256, 3), (1000, 640, 2), (100, 400, 4), (512, 1024, 2), (200, 96, 3)
)

NETWORKS = (
    *(
        Network("optimiser", kind, _step, _SIZES[place % 2 :: 2], modes=("forward",), options={"kind": kind})
        for place, kind in enumerate(_UPDATES)
    ),
    Network(
        "optimiser", "adam-clipped", _step, _SIZES[1:5], modes=("forward",), options={"kind": "adam", "clipped": True}
    ),
    Network(
        "optimiser", "sign-clipped", _step, _SIZES[:4], modes=("forward",), options={"kind": "sign", "clipped": True}
    ),
)
