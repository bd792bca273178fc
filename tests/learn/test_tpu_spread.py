"""Which arguments of a step are batches, and what becomes of them on all devices of a slice."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phasepoint.core.errors import UsageError
from phasepoint.learn.predict.tpu.spread import batch_size, data_arguments, spread_over

WEIGHTS = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3)}
IMAGES, LABELS = jnp.zeros((8, 4)), jnp.zeros(8, jnp.int32)
OPTIMIZER = optax.adam(1e-3)


class State(NamedTuple):
    weights: object
    moments: object
    step: object


def loss_of(weights, images, labels):
    logits = images @ weights["w"] + weights["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def step(weights, moments, images, labels):
    loss, slopes = jax.value_and_grad(loss_of)(weights, images, labels)
    updates, moments = OPTIMIZER.update(slopes, moments)
    return optax.apply_updates(weights, updates), moments, loss


def step_of_state(state, batch, key):
    images, labels = batch
    weights, moments, loss = step(state.weights, state.moments, images, labels)
    return State(weights, moments, state.step + 1), {"loss": loss, "noise": jax.random.normal(key)}


STATE = State(WEIGHTS, OPTIMIZER.init(WEIGHTS), 0)


@pytest.mark.parametrize(
    ("function", "values", "wanted"),
    [
        (step, (WEIGHTS, OPTIMIZER.init(WEIGHTS), IMAGES, LABELS), (2, 3)),
        (jax.jit(step), (WEIGHTS, OPTIMIZER.init(WEIGHTS), IMAGES, LABELS), (2, 3)),
        (step_of_state, (STATE, (IMAGES, LABELS), jax.random.key(0)), (1, 2)),
        (lambda w, x: w - x.sum(0), (jnp.zeros(4), IMAGES), (1,)),
    ],
)
def test_what_is_not_returned_is_data(function, values, wanted):
    assert data_arguments(function, values) == wanted


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)])
def test_random_keys_are_no_batches(key):
    values = (STATE, (IMAGES, LABELS), key)
    places, batch = spread_over(step_of_state, values, jax.devices()[:1], batch=32, data=())
    assert batch == 32
    assert [leaf.shape for leaf in jax.tree.leaves(places[1])] == [(32, 4), (32,)]
    assert places[2].shape == key.shape
    assert places[0].weights["w"].shape == (4, 3)
    jax.jit(step_of_state).lower(*places)


def test_the_batch_is_that_of_the_arguments_where_none_is_said():
    _, batch = spread_over(loss_of, (WEIGHTS, IMAGES, LABELS), jax.devices()[:1], batch=None, data=(1, 2))
    assert batch == 8


def test_sizes_that_differ_are_said():
    with pytest.raises(UsageError, match=r"differ \(argument 1: 8; argument 2: 5\).*--data"):
        batch_size((WEIGHTS, IMAGES, np.zeros((5, 2))), (1, 2))


def test_a_step_without_a_batch_is_said():
    with pytest.raises(UsageError, match="no argument of the function is a batch"):
        spread_over(lambda w: w, (jnp.zeros(3),), jax.devices()[:1], batch=8, data=())
