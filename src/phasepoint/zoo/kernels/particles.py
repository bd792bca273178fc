"""Forces between all pairs of particles, and steps of their motion."""

from typing import Any

from phasepoint.zoo.layers import stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, sizes


def _gravity(place: Any, mass: Any) -> Any:
    from jax import lax

    apart = place[None] - place[:, None]
    nearness = lax.rsqrt((apart**2).sum(-1) + 0.01)
    return (apart * (mass * nearness**3)[..., None]).sum(1)


def _motion(*, particles: int, steps: int) -> Net:
    def forward(_: Any, place: Any, speed: Any, mass: Any) -> Any:
        from jax import lax

        def step(state: Any, _step: Any) -> Any:
            place, speed = state
            speed = speed + 1e-3 * _gravity(place, mass)
            return (place + 1e-3 * speed, speed), (speed**2).sum()

        return lax.scan(step, (place, speed), None, length=steps)

    return Net(forward, {}, (f32(particles, 3), f32(particles, 3), f32(particles)))


def _fluid_energy(*, particles: int, steps: int) -> Net:
    def forward(_: Any, place: Any) -> Any:
        import jax.numpy as jnp

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
        import jax.numpy as jnp

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
        import jax.numpy as jnp

        apart = place[:, None] - place[None]
        distance = (apart**2).sum(-1, keepdims=True)
        return (stack(p["layers"], jnp.concatenate([apart, distance], -1), act="tanh") * apart).sum(1)

    return Net(forward, {"layers": stack_of([4, width, width, 1])}, (f32(particles, 3),))


_SIZES = sizes("particles steps", (200, 4), (560, 2), (800, 1), (154, 12))

NETWORKS = (
    Network("particles", "motion", _motion, _SIZES, modes=("forward",)),
    Network("particles", "fluid-energy", _fluid_energy, _SIZES),
    Network("particles", "flock", _flock, _SIZES, modes=("forward",)),
    Network(
        "particles", "learned-force", _learned_force, sizes("particles width", (64, 32), (160, 24), (77, 64), (240, 16))
    ),
)
