"""What is made of a network: its forward pass, or a training step with one of several updates."""

from collections.abc import Callable
from typing import Any

from phasepoint.zoo.specs import Net, jax, jnp

UPDATES = ("none", "sgd", "adam", "momentum")
RATE, DECAY, SQUARE_DECAY, EPSILON = 1e-3, 0.9, 0.999, 1e-8

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def forward_program(net: Net) -> Program:
    """The network as it is."""
    return net.forward, (net.parameters, *net.inputs)


def train_program(net: Net, *, update: str) -> Program:
    """Loss and gradients by the parameters (by the first input where there are none), then the update."""
    if not net.parameters:
        return jax.value_and_grad(lambda first, *rest: _loss(net.forward({}, first, *rest))), net.inputs
    graded = jax.value_and_grad(lambda parameters, *inputs: _loss(net.forward(parameters, *inputs)))
    if update == "none":
        return graded, (net.parameters, *net.inputs)
    if update == "sgd":
        return _sgd(graded), (net.parameters, *net.inputs)
    if update == "momentum":
        return _momentum(graded), (net.parameters, net.parameters, *net.inputs)
    if update == "adam":
        return _adam(graded), (net.parameters, (net.parameters, net.parameters), *net.inputs)
    raise ValueError(f"there is no update {update!r}; there are {', '.join(UPDATES)}")


def _loss(outputs: Any) -> Any:
    leaves = [leaf for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum(leaf if leaf.ndim == 0 else jnp.mean(jnp.square(leaf)) for leaf in leaves)


def _sgd(graded: Callable[..., Any]) -> Callable[..., Any]:
    def step(parameters: Any, *inputs: Any) -> Any:
        loss, slopes = graded(parameters, *inputs)
        return loss, jax.tree.map(lambda value, slope: value - RATE * slope, parameters, slopes)

    return step


def _momentum(graded: Callable[..., Any]) -> Callable[..., Any]:
    def step(parameters: Any, velocity: Any, *inputs: Any) -> Any:
        loss, slopes = graded(parameters, *inputs)
        velocity = jax.tree.map(lambda old, slope: DECAY * old + slope, velocity, slopes)
        return loss, jax.tree.map(lambda value, speed: value - RATE * speed, parameters, velocity), velocity

    return step


def _adam(graded: Callable[..., Any]) -> Callable[..., Any]:
    def step(parameters: Any, moments: Any, *inputs: Any) -> Any:
        loss, slopes = graded(parameters, *inputs)
        mean = jax.tree.map(lambda old, slope: DECAY * old + (1 - DECAY) * slope, moments[0], slopes)
        square = jax.tree.map(
            lambda old, slope: SQUARE_DECAY * old + (1 - SQUARE_DECAY) * slope * slope, moments[1], slopes
        )
        parameters = jax.tree.map(
            lambda value, first, second: value - RATE * first / (jnp.sqrt(second) + EPSILON), parameters, mean, square
        )
        return loss, parameters, (mean, square)

    return step
