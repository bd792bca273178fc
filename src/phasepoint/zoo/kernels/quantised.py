"""Arithmetic of few bits: products of int8, weights unpacked when they are used, rounding in training."""

from typing import Any

from phasepoint.zoo.specs import Net, Network, f32, i8, sizes

LEVELS = 100


def _rounded(x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    step = jnp.abs(x).max() / LEVELS + 1e-6
    return x + jax.lax.stop_gradient(jnp.round(x / step) * step - x)


def _product(*, rows: int, inner: int, columns: int) -> Net:
    def forward(_: Any, x: Any, w: Any, scale: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        total = lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        return total.astype(jnp.float32) * scale

    return Net(forward, {}, (i8(rows, inner), i8(inner, columns), f32(columns)))


def _unpacked(*, rows: int, inner: int, columns: int) -> Net:
    def forward(_: Any, x: Any, w: Any, scale: Any) -> Any:
        return x @ ((w.astype(x.dtype) - 50) * scale)

    return Net(forward, {}, (f32(rows, inner), i8(inner, columns), f32(columns)))


def _requantised(*, rows: int, inner: int, columns: int) -> Net:
    def forward(_: Any, x: Any, w: Any) -> Any:
        import jax.numpy as jnp

        small = jnp.clip(jnp.round(x * LEVELS), -LEVELS, LEVELS).astype(jnp.int8)
        total = small.astype(jnp.int32) + w[0].astype(jnp.int32)
        return jnp.clip(total // 2, -LEVELS, LEVELS).astype(jnp.int8), (total * total).sum(-1)

    return Net(forward, {}, (f32(rows, inner), i8(columns, inner)))


def _in_training(*, rows: int, inner: int, columns: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        return _rounded(x) @ _rounded(p["w"])

    return Net(forward, {"w": f32(inner, columns)}, (f32(rows, inner),))


_SIZES = sizes("rows inner columns", (64, 256, 200), (600, 384, 100), (96, 1000, 300), (384, 100, 640))

NETWORKS = (
    Network("quantised", "product", _product, _SIZES, modes=("forward",), integer_bound=LEVELS),
    Network("quantised", "unpacked", _unpacked, _SIZES, modes=("forward",), integer_bound=LEVELS),
    Network("quantised", "requantised", _requantised, _SIZES, modes=("forward",), integer_bound=LEVELS),
    Network("quantised", "in-training", _in_training, _SIZES),
)
