"""Techniques that are left out: the same results, by another program."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from phasepoint.core.errors import UsageError
from phasepoint.learn.predict.tpu.compile import LEFT_OUT, Function, left_out
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale import lstm, shard_weight_update, space_to_depth_conv, two_level_all_reduce
from phasepoint.scale.plan.what_if import leave_out
from phasepoint.scale.techniques.left_out import CAN_BE_LEFT_OUT

CHANCE = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(CHANCE.standard_normal(shape), jnp.float32)


def update_sharded():
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    weights = {"w": normal(16, 8)}

    def step(gradients):
        optimizer = shard_weight_update(optax.adam(1e-2), mesh)
        return optimizer.update(gradients, optimizer.init(weights), weights)[0]

    return step, ({"w": normal(16, 8)},)


def sum_gradients():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("x", "y"))

    def step(gradients):
        def add(parts):
            return two_level_all_reduce(parts, ("x", "y"), mean=True)

        spec = PartitionSpec()
        return jax.shard_map(add, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(gradients)

    return step, ({"a": normal(5), "b": normal(3, 2)},)


def first_convolution():
    def step(images, kernel):
        return space_to_depth_conv(images, kernel, padding=((3, 3), (3, 3)))

    return step, (normal(2, 16, 16, 3), normal(7, 7, 3, 8))


def recurrent_layer():
    return (lambda *parts: lstm(*parts)[0]), (normal(5, 2, 6), normal(6, 16), normal(4, 16), normal(16))


CASES = {
    "weight-update-sharding": update_sharded,
    "two-level-all-reduce": sum_gradients,
    "space-to-depth": first_convolution,
    "lstm-projection": recurrent_layer,
}


@pytest.mark.parametrize("name", CAN_BE_LEFT_OUT)
def test_without_a_technique_the_result_is_the_same_and_the_program_another(name):
    step, values = CASES[name]()

    def run(*left):
        with left_out(left):
            traced = jax.jit(lambda *them: step(*them)).trace(*values)  # noqa: PLW0108 - a new function is traced anew
        return str(traced.jaxpr), traced.lower().compile()(*values)

    plain, without = run(name)
    used, whole = run(*(other for other in CAN_BE_LEFT_OUT if other != name))
    assert used != plain
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5), whole, without)


def test_what_was_left_out_before_is_left_out_again(monkeypatch):
    import os

    monkeypatch.setenv(LEFT_OUT, "space-to-depth")
    with left_out(["lstm-projection"]):
        assert os.environ[LEFT_OUT] == "lstm-projection"
    assert os.environ[LEFT_OUT] == "space-to-depth"
    monkeypatch.delenv(LEFT_OUT)
    with pytest.raises(KeyError), left_out([]):
        raise KeyError
    assert LEFT_OUT not in os.environ


STEP = """
import jax, jax.numpy as jnp
from phasepoint.scale import lstm
def loss(weights, words):
    states, _ = lstm(words.swapaxes(0, 1), *weights)
    return jnp.square(states).sum()
def step(weights, words):
    gradients = jax.grad(loss)(weights, words)
    return jax.tree.map(lambda one, other: one - 0.1 * other, weights, gradients)
def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)
args = ((shape(256, 1024), shape(256, 1024), shape(1024)), shape(64, 20, 256))
"""


def test_a_step_without_what_it_uses_and_without_what_it_does_not_use(tmp_path, monkeypatch):
    monkeypatch.setattr("phasepoint.scale.plan.program.has_compiler", lambda: False)
    (tmp_path / "train.py").write_text(STEP)
    asked, topology = Function(tmp_path / "train.py", "step", args_from="args"), parse_topology("v3:2x2")
    seen = []
    whole, others = leave_out(asked, topology, 64, [], progress=lambda done, count: seen.append((done, count)))
    assert [other.technique for other in others] == list(CAN_BE_LEFT_OUT)
    assert [other.technique for other in others if other.is_used] == ["lstm-projection"]
    assert seen == [(number, 5) for number in range(1, 6)]
    assert whole.step_ps == others[0].row.step_ps != others[3].row.step_ps
    with pytest.raises(UsageError, match="--without 'magic': expected one of weight-update-sharding"):
        leave_out(asked, topology, 64, ["magic"])
