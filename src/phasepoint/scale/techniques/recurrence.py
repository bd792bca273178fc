"""A loop over time whose weights' gradients are one product after the loop, in the place of a sum within it.

Differentiated as it stands, a loop adds the gradient of each weight to what it has in every step, and reads and writes
the weights' size in float32 each time: most of what a recurrent layer's backward pass does. One product of all steps
reads it once.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 4.4 (GNMT's backward loop).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Product = Callable[[str, Any], Any]
"""(name of a weight, rows) → rows times the weight."""

Cell = Callable[[Any, Any, Any, Product], tuple[Any, Any]]
"""(carry, what the step is given, what all steps are given, product) → (carry, output)."""


def recurrence(cell: Cell, weights: Mapping[str, Any], carry: Any, given: Any, shared: Any = ()) -> tuple[Any, Any]:
    """`jax.lax.scan` of a cell whose products with weights go through `product`; for reverse-mode gradients alone.

    Args:
        cell: one step. Every weight is used once, by `product(name, rows)`.
        weights: [in, out], by name.
        carry: of the first step.
        given: to each step, along the first dimension.
        shared: given to all steps; it is differentiated within the loop.

    Returns:
        the last carry, and the outputs of all steps.

    Example:
        >>> import jax.numpy as jnp
        >>> def cell(state, x, _, product):
        ...     return 2 * (state := jnp.tanh(x + product("w", state))), state
        >>> last, states = recurrence(cell, {"w": jnp.eye(3)}, jnp.zeros((2, 3)), jnp.ones((5, 2, 3)))
        >>> states.shape
        (5, 2, 3)
    """

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def loop(weights: Mapping[str, Any], carry: Any, given: Any, shared: Any) -> tuple[Any, Any]:
        return _forward(weights, carry, given, shared)[0]  # type: ignore[no-any-return]

    def _forward(weights: Mapping[str, Any], carry: Any, given: Any, shared: Any) -> tuple[Any, Any]:
        def step(state: Any, now: Any) -> tuple[Any, Any]:
            after, output = cell(state, now, shared, lambda name, rows: rows @ weights[name])
            return after, (state, output)

        last, (states, outputs) = lax.scan(step, carry, given)
        return (last, outputs), (weights, states, given, shared)

    def _backward(kept: Any, slopes: Any) -> tuple[Any, ...]:
        weights, states, given, shared = kept

        def step(carried: Any, now: Any) -> tuple[Any, Any]:
            (slope, of_shared), (state, here, of_output) = carried, now

            def shifted(state: Any, here: Any, shared: Any, shifts: Mapping[str, Any]) -> Any:
                rows_of: dict[str, Any] = {}

                def product(name: str, rows: Any) -> Any:
                    rows_of[name] = rows
                    return rows @ weights[name] + shifts[name]

                return cell(state, here, shared, product), rows_of

            shifts = _nothing(cell, weights, (state, here, shared))
            _, pull, rows_of = jax.vjp(shifted, state, here, shared, shifts, has_aux=True)
            slope, of_given, more, of_products = pull((slope, of_output))
            return (slope, jax.tree.map(jnp.add, of_shared, more)), (of_given, of_products, rows_of)

        of_last, of_outputs = slopes
        start = of_last, jax.tree.map(jnp.zeros_like, shared)
        (of_carry, of_shared), (of_given, of_products, rows_of) = lax.scan(
            step, start, (states, given, of_outputs), reverse=True
        )
        of_weights = {
            name: jnp.einsum("t...i,t...o->io", rows_of[name], of_products[name]).astype(weights[name].dtype)
            for name in weights
        }
        return of_weights, of_carry, of_given, of_shared

    loop.defvjp(_forward, _backward)
    return loop(dict(weights), carry, given, shared)  # type: ignore[no-any-return]


def _nothing(cell: Cell, weights: Mapping[str, Any], given: tuple[Any, Any, Any]) -> Mapping[str, Any]:
    """Zeros in the shapes of a step's products."""
    found: dict[str, Any] = {}

    def step(state: Any, here: Any, shared: Any) -> Any:
        def product(name: str, rows: Any) -> Any:
            made = rows @ weights[name]
            found[name] = jax.ShapeDtypeStruct(made.shape, made.dtype)
            return made

        return cell(state, here, shared, product)

    jax.eval_shape(step, *given)
    return {name: jnp.zeros(one.shape, one.dtype) for name, one in found.items()}
