"""LARS as MLPerf ran it: large batches with a rate for each layer, momentum scaled or not.

The two differ in where the rate stands. In the reference, momentum is *scaled*: v ← m v + (g + βw), w ← w - r λ v, so
that a rate that falls slows all of the past. In the paper it is *unscaled*: v ← m v + r λ (g + βw), w ← w - v, and the
past keeps the rate that it was made with; ResNet-50 then took 64 epochs where it took 72. LAMB is `optax.lamb`.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 4.1 and figures 5 and 6; You et
al., "Large Batch Training of Convolutional Networks", 2017.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class LarsState(NamedTuple):
    """Updates so far, and each weight's momentum."""

    count: Any
    momentum: Any


def lars(
    learning_rate: float | optax.Schedule,
    *,
    momentum: float = 0.9,
    scaled_momentum: bool = False,
    weight_decay: float = 1e-4,
    trust: float = 1e-3,
    epsilon: float = 0.0,
    mask: Callable[[Any], bool] = lambda weight: weight.ndim > 1,
) -> optax.GradientTransformation:
    """Layer-wise adaptive rates, with λ = trust · |w| / (|g| + β|w| + epsilon).

    `optax.lars` divides by |g + βw| instead, and has the unscaled momentum alone.

    Args:
        learning_rate: r, or a schedule of the update's number.
        momentum: m.
        scaled_momentum: as in MLPerf's reference; else as in the paper.
        weight_decay: β.
        trust: of the ratio of norms.
        epsilon: what keeps the ratio finite.
        mask: which weights have a rate of their own and decay; biases and norms (one dimension) do not by default.

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = lars(1.0, momentum=0.0, weight_decay=0.0, trust=0.5)
        >>> weights = {"w": jnp.ones((2, 2))}
        >>> optimizer.update({"w": jnp.full((2, 2), 4.0)}, optimizer.init(weights), weights)[0]["w"].tolist()
        [[-0.5, -0.5], [-0.5, -0.5]]
    """

    def init(weights: Any) -> LarsState:
        return LarsState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.zeros_like, weights))

    def update(gradients: Any, state: LarsState, weights: Any = None) -> tuple[Any, LarsState]:
        if weights is None:
            raise ValueError("LARS needs the weights: optimizer.update(gradients, state, weights)")
        rate = learning_rate(state.count) if callable(learning_rate) else learning_rate

        def ratio(gradient: Any, weight: Any) -> Any:
            if not mask(weight):
                return jnp.ones([], gradient.dtype)
            norm, steep = jnp.linalg.norm(weight.ravel()), jnp.linalg.norm(gradient.ravel())
            whole = steep + weight_decay * norm + epsilon
            return jnp.where((norm > 0) & (whole > 0), trust * norm / jnp.where(whole > 0, whole, 1), 1.0)

        def moved(gradient: Any, weight: Any, past: Any, local: Any) -> Any:
            decayed = gradient + weight_decay * weight if mask(weight) else gradient
            return momentum * past + (decayed if scaled_momentum else rate * local * decayed)

        local = jax.tree.map(ratio, gradients, weights)
        past = jax.tree.map(moved, gradients, weights, state.momentum, local)
        steps = jax.tree.map(lambda v, at: -rate * at * v if scaled_momentum else -v, past, local)
        return steps, LarsState(state.count + 1, past)

    return optax.GradientTransformation(init, update)


def warmup_then_decay(peak: float, warmup_steps: int, total_steps: int, power: float = 2.0) -> optax.Schedule:
    """The rate of MLPerf's large-batch runs: up in a line, then down to 0 by a power.

    Example:
        >>> rate = warmup_then_decay(4.0, 2, 6)
        >>> [round(float(rate(step)), 3) for step in range(7)]
        [0.0, 2.0, 4.0, 2.25, 1.0, 0.25, 0.0]
    """
    rise = optax.linear_schedule(0.0, peak, warmup_steps)
    fall = optax.polynomial_schedule(peak, 0.0, power, total_steps - warmup_steps)
    return optax.join_schedules([rise, fall], [warmup_steps])
