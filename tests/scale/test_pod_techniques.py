"""The collectives that techniques must show in the program that the TPU's compiler makes for a slice."""

import pytest

from phasepoint.learn.predict.tpu.compile import Function, has_compiler
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.plan.what_if import leave_out

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the TPU's compiler (libtpu) is not installed")

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from phasepoint.scale import distributed_batch_norm, shard_weight_update, spatial_conv, two_level_all_reduce

devices = np.array(jax.devices())
mesh, torus = Mesh(devices, ("data",)), Mesh(devices.reshape(4, -1), ("x", "y"))

def shape(*sizes, place=None):
    return jax.ShapeDtypeStruct(sizes, jnp.float32, sharding=place)

def loss(weights, x):
    return jnp.square(jnp.tanh(x @ weights["a"]) @ weights["b"]).mean()

weights = {"a": shape(1024, 4096), "b": shape(4096, 1024)}
batch = shape(4096, 1024)
optimizer = shard_weight_update(optax.adam(1e-3), mesh)

def weight_update(weights, state, x):
    updates, state = optimizer.update(jax.grad(loss)(weights, x), state, weights)
    return optax.apply_updates(weights, updates), state

weight_update_args = weights, jax.eval_shape(optax.adam(1e-3).init, weights), batch

def two_level(weights, x):
    def part(weights, x):
        gradients = two_level_all_reduce(jax.grad(loss)(weights, x), ("x", "y"), mean=True)
        return jax.tree.map(lambda one, other: one - 0.1 * other, weights, gradients)
    spread = jax.shard_map(part, mesh=torus, in_specs=(P(), P(("x", "y"))), out_specs=P(), check_vma=False)
    return spread(weights, x)

two_level_args = weights, batch

def spatial(kernel, images):
    def part(kernel, images):
        def loss(kernel):
            return jnp.square(spatial_conv(images, kernel, axes=("data", None))).sum()
        return kernel - 0.1 * jax.lax.psum(jax.grad(loss)(kernel), "data")
    spread = jax.shard_map(part, mesh=mesh, in_specs=(P(), P(None, "data")), out_specs=P(), check_vma=False)
    return spread(kernel, images)

spatial_args = shape(3, 3, 16, 16), shape(len(devices), 512, 512, 16, place=NamedSharding(mesh, P(None, "data")))

def batch_norm(scale, examples):
    def part(scale, examples):
        normal = distributed_batch_norm(examples, scale, scale, axis_name="data", group_size=4)[0]
        return scale - 0.1 * jnp.square(normal).mean()
    return jax.shard_map(part, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)(scale, examples)

batch_norm_args = shape(256), shape(4096, 256)
"""


@pytest.fixture
def collectives(tmp_path):
    """Opcodes and sizes of groups in a step's program, as it is and without a technique."""
    (tmp_path / "train.py").write_text(SCRIPT)

    def of(step, *without):
        asked = Function(tmp_path / "train.py", step, args_from=f"{step}_args")
        whole, others = leave_out(asked, parse_topology("v3:4x4"), None, without or ["lstm-projection"])
        rows = [whole, *(other.row for other in others)]
        return [{(one.opcode, one.group) for one in row.collectives} for row in rows]

    return of


def test_a_sharded_update_gathers_what_each_replica_updated(collectives):
    whole, plain = collectives("weight_update", "weight-update-sharding")
    assert "all-gather" in {opcode for opcode, _ in whole}
    assert {opcode for opcode, _ in plain} == {"all-reduce"}


def test_two_levels_sum_along_one_axis_and_then_the_other(collectives):
    whole, plain = collectives("two_level", "two-level-all-reduce")
    assert {group for _, group in whole} == {4, 8}
    assert {group for _, group in plain} <= {0, 32}


def test_a_spatial_convolution_sends_borders_to_neighbours(collectives):
    whole, _ = collectives("spatial")
    assert "collective-permute" in {opcode for opcode, _ in whole}


def test_batch_norm_adds_up_within_its_groups(collectives):
    whole, _ = collectives("batch_norm")
    assert ("all-reduce", 4) in whole
