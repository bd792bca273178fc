"""Physics on grids: each point from its neighbours, step after step."""

from typing import Any

from phasepoint.zoo.specs import Net, Network, f32, sizes


def _neighbours(x: Any) -> Any:
    import jax.numpy as jnp

    return sum(jnp.roll(x, by, axis) for axis in range(x.ndim) for by in (1, -1))


def _repeated(step: Any, state: Any, steps: int) -> Any:
    from jax import lax

    return lax.scan(lambda carry, _: (step(carry), None), state, None, length=steps)[0]


def _heat(*, side: int, steps: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        return _repeated(lambda x: x + 0.1 * (_neighbours(x) - 4 * x), x, steps)

    return Net(forward, {}, (f32(side, side),))


def _wave(*, side: int, steps: int) -> Net:
    def forward(_: Any, x: Any, speed: Any) -> Any:
        def step(state: Any) -> Any:
            now, before = state
            return 2 * now - before + 0.1 * speed * (_neighbours(now) - 4 * now), now

        return _repeated(step, (x, x), steps)[0]

    return Net(forward, {}, (f32(side, side), f32(side, side)))


def _diffusion_3d(*, side: int, steps: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        for _step in range(steps):
            y = jnp.pad(x, 1, mode="edge")
            around = y[2:, 1:-1, 1:-1] + y[:-2, 1:-1, 1:-1] + y[1:-1, 2:, 1:-1] + y[1:-1, :-2, 1:-1]
            x = x + 0.1 * (around + y[1:-1, 1:-1, 2:] + y[1:-1, 1:-1, :-2] - 6 * x)
        return x

    return Net(forward, {}, (f32(side, side, side),))


def _shallow_water(*, side: int, steps: int) -> Net:
    def forward(_: Any, height: Any, u: Any, v: Any) -> Any:
        import jax.numpy as jnp

        def slope(x: Any, axis: int) -> Any:
            return (jnp.roll(x, -1, axis) - jnp.roll(x, 1, axis)) / 2

        def step(state: Any) -> Any:
            height, u, v = state
            u = u - 0.01 * (u * slope(u, 0) + v * slope(u, 1) + slope(height, 0))
            v = v - 0.01 * (u * slope(v, 0) + v * slope(v, 1) + slope(height, 1))
            return height - 0.01 * (slope(height * u, 0) + slope(height * v, 1)), u, v

        return _repeated(step, (height, u, v), steps)

    return Net(forward, {}, (f32(side, side),) * 3)


def _life(*, side: int, steps: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        def step(alive: Any) -> Any:
            rows = alive + jnp.roll(alive, 1, 0) + jnp.roll(alive, -1, 0)
            around = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - alive
            return jnp.where((around == 3) | ((around == 2) & (alive == 1)), 1, 0)

        return _repeated(step, (x > 0.5).astype(jnp.int32), steps)

    return Net(forward, {}, (f32(side, side),))


def _advection(*, side: int, steps: int) -> Net:
    def forward(_: Any, x: Any, speed: Any) -> Any:
        import jax.numpy as jnp

        def step(x: Any) -> Any:
            left, right = jnp.diff(x, prepend=x[:, -1:]), jnp.diff(x, append=x[:, :1])
            limited = jnp.where(left * right > 0, jnp.where(jnp.abs(left) < jnp.abs(right), left, right), 0)
            flux = speed * (x + 0.5 * limited)
            return x - 0.1 * (flux - jnp.roll(flux, 1, 1))

        return _repeated(step, x, steps)

    return Net(forward, {}, (f32(side, side),) * 2)


_SIZES = sizes("side steps", (128, 20), (450, 6), (750, 3), (300, 10), (96, 40))

NETWORKS = (
    Network("stencil", "heat", _heat, _SIZES),
    Network("stencil", "wave", _wave, _SIZES),
    Network("stencil", "diffusion-3d", _diffusion_3d, sizes("side steps", (32, 3), (72, 2), (90, 1), (30, 4))),
    Network("stencil", "shallow-water", _shallow_water, sizes("side steps", (96, 12), (200, 6), (300, 3), (160, 5))),
    Network("stencil", "life", _life, _SIZES, modes=("forward",)),
    Network("stencil", "advection", _advection, _SIZES[:4], modes=("forward",)),
)
