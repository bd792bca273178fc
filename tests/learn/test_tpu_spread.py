"""Which arguments of a step are batches, and what becomes of them on all devices of a slice."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from phasepoint.core.errors import UsageError
from phasepoint.learn.predict.tpu.spread import batch_size, data_arguments, looped_over, share_of_one, spread_over

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


def step_over_time(weights, texts):
    def move(state, letters):
        return jnp.tanh(state + weights["w"][letters]), None

    state, _ = jax.lax.scan(move, jnp.zeros((texts["letters"].shape[1], 3)), texts["letters"])
    return jax.tree.map(lambda w: w - (state.T @ texts["lengths"]).sum(), weights)


TEXTS = {"letters": jnp.zeros((64, 8), jnp.int32), "lengths": jnp.zeros(8)}


def test_where_time_comes_first_the_second_dimension_is_divided():
    (_, texts), batch = spread_over(
        step_over_time, (WEIGHTS, TEXTS), jax.devices()[:1], batch=16, data=(), batch_axis=1
    )
    assert batch == 16
    assert (texts["letters"].shape, texts["lengths"].shape) == ((64, 16), (16,))
    assert tuple(texts["letters"].sharding.spec) == (None, "data")
    assert tuple(texts["lengths"].sharding.spec) == ("data",)
    (_, texts), batch, _ = share_of_one(step_over_time, (WEIGHTS, TEXTS), 4, batch=None, data=(), batch_axis=1)
    assert (batch, texts["letters"].shape, texts["lengths"].shape) == (8, (64, 2), (2,))


def test_a_dimension_that_no_batch_has_is_said():
    with pytest.raises(UsageError, match="--batch-axis 2: the batches have 2 dimensions; the last one is 1"):
        batch_size((WEIGHTS, TEXTS), (1,), 2)


def test_a_step_that_loops_over_what_is_divided_says_so():
    (said,) = looped_over(
        jax.jit(jax.value_and_grad(lambda w, t: step_over_time(w, t)["b"].sum())), (WEIGHTS, TEXTS), (1,)
    )
    assert said == (
        "the step loops over the first dimension of its batches (64), which devices divide: if that is time, say "
        "--batch-axis 1"
    )
    assert not looped_over(step, (WEIGHTS, OPTIMIZER.init(WEIGHTS), IMAGES, LABELS), ())


def layers_of(weights, images):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), images, weights)[0]


def test_a_loop_over_as_many_layers_as_there_are_samples_is_no_loop_over_them():
    assert not looped_over(layers_of, (jnp.zeros((8, 4, 4)), jnp.zeros((8, 5, 4))), (1,))
