"""An LSTM whose input projection stands before the loop: one large product instead of one small one a step.

What a step takes from the input does not depend on the step before; only the product with the hidden state does. Out
of the loop, the projection of all steps is one product that fills the matrix unit, and its gradient is summed once; the
gradient of the hidden state's weights is summed once as well (`recurrence`).

Its own file: a technique, as each of its neighbours.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 4.4 (GNMT).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from phasepoint.scale.techniques.left_out import is_used
from phasepoint.scale.techniques.recurrence import Product, recurrence


def lstm(
    inputs: Any,
    input_weights: Any,
    hidden_weights: Any,
    bias: Any,
    carry: tuple[Any, Any] | None = None,
    *,
    hoist: bool = True,
) -> tuple[Any, tuple[Any, Any]]:
    """One layer over a sequence; hoisted it is for reverse-mode gradients alone.

    Args:
        inputs: [steps, n, features].
        input_weights: [features, 4 · units], the gates in the order input, forget, cell, output.
        hidden_weights: [units, 4 · units].
        bias: [4 · units].
        carry: hidden state and cell, each [n, units]; zeros by default.
        hoist: whether the input projection stands before the loop.

    Returns:
        hidden states [steps, n, units], and the last carry.

    Example:
        >>> import jax.numpy as jnp
        >>> states, _ = lstm(jnp.ones((3, 2, 5)), jnp.ones((5, 16)), jnp.ones((4, 16)), jnp.zeros(16))
        >>> states.shape
        (3, 2, 4)
    """
    hoist = hoist and is_used("lstm-projection")
    units = hidden_weights.shape[0]
    if carry is None:
        zeros = jnp.zeros((inputs.shape[1], units), inputs.dtype)
        carry = zeros, zeros

    if hoist:
        last, states = recurrence(_cell, {"hidden": hidden_weights}, carry, inputs @ input_weights + bias)
        return states, last

    def step(state: tuple[Any, Any], given: Any) -> tuple[tuple[Any, Any], Any]:
        return _cell(state, given @ input_weights + bias, (), lambda _, rows: rows @ hidden_weights)

    last, states = lax.scan(step, carry, inputs)
    return states, last


def _cell(state: tuple[Any, Any], given: Any, _: Any, product: Product) -> tuple[tuple[Any, Any], Any]:
    hidden, cell = state
    enter, forget, new, leave = jnp.split(given + product("hidden", hidden), 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
    hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
    return (hidden, cell), hidden
