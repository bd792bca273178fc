"""Physics: on grids, each point from its neighbours, step after step; forces between all pairs of particles."""

from typing import Any

from phasepoint.zoo.layers import stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, jnp, lax, sizes


def _neighbours(x: Any) -> Any:
    return sum(jnp.roll(x, by, axis) for axis in range(x.ndim) for by in (1, -1))


def _repeated(step: Any, state: Any, steps: int) -> Any:
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
        for _step in range(steps):
            y = jnp.pad(x, 1, mode="edge")
            around = y[2:, 1:-1, 1:-1] + y[:-2, 1:-1, 1:-1] + y[1:-1, 2:, 1:-1] + y[1:-1, :-2, 1:-1]
            x = x + 0.1 * (around + y[1:-1, 1:-1, 2:] + y[1:-1, 1:-1, :-2] - 6 * x)
        return x

    return Net(forward, {}, (f32(side, side, side),))


def _shallow_water(*, side: int, steps: int) -> Net:
    def forward(_: Any, height: Any, u: Any, v: Any) -> Any:
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
        def step(alive: Any) -> Any:
            rows = alive + jnp.roll(alive, 1, 0) + jnp.roll(alive, -1, 0)
            around = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - alive
            return jnp.where((around == 3) | ((around == 2) & (alive == 1)), 1, 0)

        return _repeated(step, (x > 0.5).astype(jnp.int32), steps)

    return Net(forward, {}, (f32(side, side),))


def _advection(*, side: int, steps: int) -> Net:
    def forward(_: Any, x: Any, speed: Any) -> Any:
        def step(x: Any) -> Any:
            left, right = jnp.diff(x, prepend=x[:, -1:]), jnp.diff(x, append=x[:, :1])
            limited = jnp.where(left * right > 0, jnp.where(jnp.abs(left) < jnp.abs(right), left, right), 0)
            flux = speed * (x + 0.5 * limited)
            return x - 0.1 * (flux - jnp.roll(flux, 1, 1))

        return _repeated(step, x, steps)

    return Net(forward, {}, (f32(side, side),) * 2)


_GRID_SIZES = sizes("side steps", (128, 20), (450, 6), (750, 3), (300, 10), (96, 40))


def _gravity(place: Any, mass: Any) -> Any:
    """Acceleration of each particle by all masses, softened within a distance of 0.1."""
    apart = place[None] - place[:, None]
    nearness = lax.rsqrt((apart**2).sum(-1) + 0.01)
    return (apart * (mass * nearness**3)[..., None]).sum(1)


def _motion(*, particles: int, steps: int) -> Net:
    def forward(_: Any, place: Any, speed: Any, mass: Any) -> Any:
        def step(state: Any, _step: Any) -> Any:
            place, speed = state
            speed = speed + 1e-3 * _gravity(place, mass)
            return (place + 1e-3 * speed, speed), (speed**2).sum()

        return lax.scan(step, (place, speed), None, length=steps)

    return Net(forward, {}, (f32(particles, 3), f32(particles, 3), f32(particles)))


def _fluid_energy(*, particles: int, steps: int) -> Net:
    def forward(_: Any, place: Any) -> Any:
        total = jnp.float32(0)
        for step in range(steps):
            apart = place[None] - place[:, None]
            apart = apart - jnp.round(apart)
            squared = (apart**2).sum(-1) + 0.05 + 0.01 * step
            sixth = (0.04 / squared) ** 3
            total += jnp.where(squared < 0.25, 4 * (sixth**2 - sixth), 0).sum()
        return total

    return Net(forward, {}, (f32(particles, 3),))


def _flock(*, particles: int, steps: int) -> Net:
    def forward(_: Any, place: Any, speed: Any) -> Any:
        for _step in range(steps):
            squared = ((place[:, None] - place) ** 2).sum(-1)
            near = (squared < 0.1).astype(jnp.float32)
            count = near.sum(1, keepdims=True)
            speed = speed + 0.1 * (near @ speed / count - speed) + 0.01 * (near @ place / count - place)
            place = jnp.mod(place + 0.01 * speed, 1.0)
        return place, speed

    return Net(forward, {}, (f32(particles, 2), f32(particles, 2)))


def _learned_force(*, particles: int, width: int) -> Net:
    def forward(p: Any, place: Any) -> Any:
        apart = place[:, None] - place[None]
        distance = (apart**2).sum(-1, keepdims=True)
        return (stack(p["layers"], jnp.concatenate([apart, distance], -1), act="tanh") * apart).sum(1)

    return Net(forward, {"layers": stack_of([4, width, width, 1])}, (f32(particles, 3),))


_PARTICLE_SIZES = sizes("particles steps", (200, 4), (560, 2), (800, 1), (154, 12))

NETWORKS = (
    Network("stencil", "heat", _heat, _GRID_SIZES),
    Network("stencil", "wave", _wave, _GRID_SIZES),
    Network("stencil", "diffusion-3d", _diffusion_3d, sizes("side steps", (32, 3), (72, 2), (90, 1), (30, 4))),
    Network("stencil", "shallow-water", _shallow_water, sizes("side steps", (96, 12), (200, 6), (300, 3), (160, 5))),
    Network("stencil", "life", _life, _GRID_SIZES, modes=("forward",)),
    Network("stencil", "advection", _advection, _GRID_SIZES[:4], modes=("forward",)),
    Network("particles", "motion", _motion, _PARTICLE_SIZES, modes=("forward",)),
    Network("particles", "fluid-energy", _fluid_energy, _PARTICLE_SIZES),
    Network("particles", "flock", _flock, _PARTICLE_SIZES, modes=("forward",)),
    Network(
        "particles", "learned-force", _learned_force, sizes("particles width", (64, 32), (160, 24), (77, 64), (240, 16))
    ),
)
