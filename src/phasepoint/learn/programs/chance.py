"""Random numbers: dropout, noise, sampling of classes. The key comes from an integer argument."""

from typing import Any

from phasepoint.learn.programs.layers import activate, dense, dense_of
from phasepoint.learn.programs.shapes import f32, i32
from phasepoint.learn.programs.specs import Net, Network, sizes


def _key(seed: Any) -> Any:
    import jax

    return jax.random.fold_in(jax.random.key(0), seed)


def _dropout(*, batch: int, width: int) -> Net:
    def forward(p: Any, x: Any, seed: Any) -> Any:
        import jax
        import jax.numpy as jnp

        kept = jax.random.bernoulli(_key(seed), 0.8, x.shape)
        return activate("relu", dense(p, jnp.where(kept, x / 0.8, 0)))

    return Net(forward, dense_of(width, width), (f32(batch, width), i32()))


def _noise(*, batch: int, width: int) -> Net:
    def forward(_: Any, x: Any, seed: Any) -> Any:
        import jax

        return x + 0.1 * jax.random.normal(_key(seed), x.shape)

    return Net(forward, {}, (f32(batch, width), i32()))


def _gumbel(*, batch: int, width: int) -> Net:
    def forward(_: Any, x: Any, seed: Any) -> Any:
        import jax
        import jax.numpy as jnp

        noise = -jnp.log(-jnp.log(jax.random.uniform(_key(seed), x.shape, minval=0.01, maxval=0.99)))
        return jax.nn.softmax((x + noise) / 0.5, -1)

    return Net(forward, {}, (f32(batch, width), i32()))


def _sampled(*, batch: int, width: int) -> Net:
    def forward(_: Any, x: Any, seed: Any) -> Any:
        import jax

        return jax.random.categorical(_key(seed), x, -1), x.max(-1)

    return Net(forward, {}, (f32(batch, width), i32()))


def _integral(*, points: int, width: int) -> Net:
    def forward(_: Any, scale: Any, seed: Any) -> Any:
        import jax
        import jax.numpy as jnp

        place = jax.random.uniform(_key(seed), (points, width))
        return jnp.exp(-((place * scale) ** 2).sum(-1)).mean()

    return Net(forward, {}, (f32(width), i32()))


_SIZES = sizes("batch width", (64, 256), (500, 640), (1000, 200), (160, 1000), (2500, 96))

NETWORKS = (
    Network("chance", "dropout", _dropout, _SIZES, integer_bound=1000),
    Network("chance", "noise", _noise, _SIZES, modes=("forward",), integer_bound=1000),
    Network("chance", "gumbel", _gumbel, _SIZES, integer_bound=1000),
    Network("chance", "sampled", _sampled, _SIZES, modes=("forward",), integer_bound=1000),
    Network(
        "chance",
        "integral",
        _integral,
        sizes("points width", (5000, 8), (100000, 3), (10000, 30), (50000, 12)),
        modes=("forward",),
        integer_bound=1000,
    ),
)
