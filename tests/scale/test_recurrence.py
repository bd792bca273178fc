"""Loops whose weights' gradients stand after them, against `lax.scan` as it is; groups of chips on a torus."""

import numpy as np
import pytest

from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.pod.torus import Axis, axes_of, axes_of_group, reduce_s

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


def cell(carry, given, shared, product):
    """Two weights, one after the other, and what all steps are given."""
    state, seen = carry
    inner = jnp.tanh(given + product("in", state) + shared["bias"])
    state = state + 0.1 * product("out", inner)
    return (state, seen + inner.sum(-1)), (state.mean(), inner)


def made(seed, *, steps=7, n=3, units=4, inner=6):
    draw = np.random.default_rng(seed)
    array = lambda *shape: jnp.asarray(draw.standard_normal(shape), jnp.float32)  # noqa: E731
    weights = {"in": array(units, inner), "out": array(inner, units)}
    return weights, (array(n, units), jnp.zeros(n)), array(steps, n, inner), {"bias": array(inner)}


def as_scan(weights, carry, given, shared):
    return lax.scan(lambda state, now: cell(state, now, shared, lambda name, rows: rows @ weights[name]), carry, given)


@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients_are_those_of_the_loop_as_it_stands(seed):
    from phasepoint.scale.techniques.recurrence import recurrence

    def loss(run):
        def of(weights, carry, given, shared):
            (state, seen), (means, inner) = run(weights, carry, given, shared)
            return jnp.square(state).sum() + jnp.sin(seen).sum() + (means * jnp.arange(7)).sum() + (inner**3).mean()

        return jax.jit(jax.value_and_grad(of, (0, 1, 2, 3)))

    parts = made(seed)
    plain, hoisted = (loss(run)(*parts) for run in (as_scan, lambda *parts: recurrence(cell, *parts)))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(hoisted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_the_weights_gradients_stand_after_the_loop():
    from phasepoint.scale.techniques.recurrence import recurrence

    weights, *rest = made(0)

    def carried(run):
        """Elements of what each loop of the gradient hands on from step to step."""
        jaxpr = jax.make_jaxpr(jax.grad(lambda weights: run(weights, *rest)[1][1].sum()))(weights)
        scans = [one for one in jaxpr.jaxpr.eqns if one.primitive.name == "scan"]
        counts = [one.params["num_carry"] for one in scans]
        firsts = [one.params["num_consts"] for one in scans]
        return [
            sum(math_size(var) for var in one.invars[first : first + count])
            for one, first, count in zip(scans, firsts, counts, strict=True)
        ]

    def math_size(var):
        return int(np.prod(var.aval.shape))

    weight_elements = sum(value.size for value in weights.values())
    assert max(carried(as_scan)) >= weight_elements
    assert max(carried(lambda *parts: recurrence(cell, *parts))) < weight_elements


def test_a_group_of_chips_is_a_small_torus_with_open_ends():
    pod = axes_of(parse_topology("tpu-v3:32x32"))
    sizes = [[axis.size for axis in axes_of_group(pod, chips)] for chips in (1, 2, 4, 8, 64, 512, 1024, 4096)]
    assert sizes == [[], [2], [2, 2], [2, 4], [8, 8], [16, 32], [32, 32], [32, 32]]
    assert [axis.is_ring for axis in axes_of_group(pod, 512)] == [False, True]
    assert reduce_s(4.0, axes_of_group(pod, 4)) < reduce_s(4.0, pod) / 10
    assert axes_of_group([Axis(4, True, 1.0)] * 3, 16)[-1].size == 4
