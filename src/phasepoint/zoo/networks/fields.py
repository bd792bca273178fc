"""Networks of coordinates: sines of many frequencies, dense layers, and light summed along rays."""

from typing import Any

from phasepoint.zoo.layers import activate, dense, dense_of, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, sizes


def _waves(x: Any, count: int) -> Any:
    import jax.numpy as jnp

    angle = (x[..., None] * 2.0 ** jnp.arange(count)).reshape(*x.shape[:-1], -1)
    return jnp.concatenate([x, jnp.sin(angle), jnp.cos(angle)], -1)


def _radiance(*, rays: int, samples: int, width: int) -> Net:
    def forward(p: Any, origin: Any, direction: Any) -> Any:
        import jax.numpy as jnp

        depth = jnp.linspace(0.1, 2.0, samples)
        place = origin[:, None] + depth[:, None] * direction[:, None]
        out = stack(p["layers"], _waves(place, 6))
        colour, density = activate("sigmoid", out[..., :3]), activate("softplus", out[..., 3])
        opaque = 1 - jnp.exp(-density * 0.1)
        weights = opaque * jnp.cumprod(1 - opaque + 1e-3, 1)
        return (weights[..., None] * colour).sum(1)

    parameters = {"layers": stack_of([39, width, width, 4])}
    return Net(forward, parameters, (f32(rays, 3), f32(rays, 3)))


def _sines(*, points: int, width: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax.numpy as jnp

        for layer in p.values():
            x = jnp.sin(30 * dense(layer, x))
        return x

    widths = [3, *[width] * depth]
    layers = {f"l{place}": dense_of(widths[place], widths[place + 1]) for place in range(depth)}
    return Net(forward, layers, (f32(points, 3),))


def _equation_residual(*, points: int, width: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax

        def value(place: Any) -> Any:
            return stack(p["layers"], place, act="tanh")[0]

        def curved(place: Any) -> Any:
            return jax.jvp(jax.grad(value), (place,), (place,))[1].sum()

        return jax.vmap(curved)(x) - jax.vmap(value)(x)

    return Net(forward, {"layers": stack_of([2, width, width, 1])}, (f32(points, 2),))


NETWORKS = (
    Network(
        "field",
        "radiance",
        _radiance,
        sizes("rays samples width", (64, 32, 64), (100, 24, 96), (200, 16, 48), (48, 64, 80)),
    ),
    Network(
        "field",
        "sines",
        _sines,
        sizes("points width depth", (1000, 64, 3), (3000, 48, 2), (600, 128, 3), (2000, 100, 2)),
    ),
    Network(
        "field",
        "equation-residual",
        _equation_residual,
        sizes("points width", (500, 32), (1000, 48), (2000, 20), (300, 100)),
    ),
)
