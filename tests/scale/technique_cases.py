"""Each technique on eight host devices against the same on one: started by test_techniques.py in a process of its own.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python technique_cases.py      # one line of JSON a case
"""

import json
import traceback
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from phasepoint.scale import (
    distributed_batch_norm,
    distributed_eval,
    shard_weight_update,
    spatial_conv,
    two_level_all_reduce,
)

CLOSE = {"rtol": 2e-5, "atol": 2e-6}
RNG = np.random.default_rng(0)


def device_mesh(sizes, names):
    """Placement left to the compiler, as it is by `Mesh` itself; `jax.make_mesh` asks for explicit types since 0.9."""
    return Mesh(np.array(jax.devices()).reshape(sizes), names)


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **(CLOSE | tolerance)), tree, other)


# Weight-update sharding


def network(weights, inputs):
    hidden = jnp.tanh(inputs @ weights["in"] + weights["bias"])
    return (hidden.reshape(len(inputs), 4, 12) * weights["scale"]).sum((1, 2)) + (hidden @ weights["out"])[:, 0]


def train(optimizer, mesh, steps=3):
    """Weights and state after a few data-parallel steps, and the program of a step."""
    random = np.random.default_rng(1)
    shapes = {"in": (24, 48), "bias": (48,), "scale": (4, 12), "out": (48, 1)}
    weights = {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    weights = jax.device_put(weights, NamedSharding(mesh, P()))
    state = jax.jit(optimizer.init)(weights)

    @jax.jit
    def step(weights, state, inputs):
        loss = lambda weights: jnp.square(network(weights, inputs)).mean()  # noqa: E731
        updates, state = optimizer.update(jax.grad(loss)(weights), state, weights)
        return optax.apply_updates(weights, updates), state

    for _ in range(steps):
        inputs = jax.device_put(jnp.asarray(random.normal(size=(16, 24)), jnp.float32), NamedSharding(mesh, P("data")))
        weights, state = step(weights, state, inputs)
    return weights, state, step.lower(weights, state, inputs).compile().as_text()


OPTIMIZERS = {
    "sgd": lambda: optax.sgd(1e-2, momentum=0.9),
    "adam": lambda: optax.adam(1e-2),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2)),
    "lamb": lambda: optax.lamb(1e-2, mask=lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree)),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=8),
    "multi": lambda: optax.MultiSteps(optax.adam(1e-2), 2),
}


def case_sharded_update(name):
    mesh = device_mesh((8,), ("data",))
    plain = train(OPTIMIZERS[name](), mesh)
    sharded = train(shard_weight_update(OPTIMIZERS[name](), mesh), mesh)
    assert_close(sharded[0], plain[0])
    assert_close(sharded[1], plain[1])
    assert "all-gather" in sharded[2], "the updates of the replicas are not brought together"
    for leaf in jax.tree.leaves(sharded[1]):
        if leaf.shape == (24, 48):
            assert {shard.data.size for shard in leaf.addressable_shards} == {24 * 48 // 8}


def case_sharded_update_over_two_axes_beside_a_model_axis():
    mesh = device_mesh((2, 2, 2), ("data", "model", "more"))
    plain = train(optax.adam(1e-2), mesh)
    sharded = train(shard_weight_update(optax.adam(1e-2), mesh, ("data", "more")), mesh)
    assert_close(sharded[0], plain[0])
    moment = sharded[1][0].mu["in"]
    assert {shard.data.size for shard in moment.addressable_shards} == {24 * 48 // 4}


# Gradient summation


def case_two_level_sum(axes, bucket_bytes, dtype, mean):
    mesh = device_mesh((2, 4), ("x", "y"))
    tree = {"a": normal(8, 5, 3), "b": normal(8, 7), "c": normal(8, 1), "d": normal(8, 130).astype(jnp.bfloat16)}
    add = jax.shard_map(
        lambda part: two_level_all_reduce(
            jax.tree.map(lambda leaf: leaf[0], part), axes, bucket_bytes=bucket_bytes, dtype=dtype, mean=mean
        ),
        mesh=mesh,
        in_specs=P(("x", "y")),
        out_specs=P() if len(axes) == 2 else P("y"),
        check_vma=False,
    )
    got = jax.jit(add)(tree)

    def plain(leaf):
        parts = leaf.astype(jnp.float32).reshape(2, 4, *leaf.shape[1:])
        total = parts.sum((0, 1)) if len(axes) == 2 else jnp.concatenate(list(parts.sum(0)))
        return total / (8 if mean else 1)

    wanted = jax.tree.map(plain, tree)
    loose = {"rtol": 0.05, "atol": 0.1}
    for name, leaf in got.items():
        assert leaf.dtype == tree[name].dtype
        assert_close(leaf.astype(jnp.float32), wanted[name], **(loose if dtype or name == "d" else {}))
    if axes == ("x", "y"):
        text = jax.jit(add).lower(tree).compile().as_text()
        assert all(f" {kind}(" in text for kind in ("reduce-scatter", "all-gather", "all-reduce"))


# Spatial partitioning

CONVOLUTIONS = {
    "3x3": {"size": 3},
    "7x7, stride 2": {"size": 7, "strides": (2, 2), "padding": ((3, 3), (3, 3))},
    "3x3, stride 2": {"size": 3, "strides": (2, 2)},
    "1x1, stride 2": {"size": 1, "strides": (2, 2)},
    "3x3, dilation 4": {"size": 3, "rhs_dilation": (4, 4)},
    "3x3, dilation 2, stride 2": {"size": 3, "rhs_dilation": (2, 2), "strides": (2, 2)},
    "9x9, further than a neighbour": {"size": 9, "rows": 16, "padding": ((4, 4), (4, 4))},
    "17x17, dilation 1, three neighbours": {"size": 17, "rows": 16, "padding": ((8, 8), (8, 8))},
    "5x5, one-sided": {"size": 5, "padding": ((4, 0), (0, 4))},
    "4x4, stride 4": {"size": 4, "strides": (4, 4), "padding": "VALID"},
    "3x3, fewer results": {"size": 3, "rows": 34 * 4, "padding": ((4, 2), (4, 2)), "strides": (3, 3), "results": 46},
    "grouped": {"size": 3, "groups": 4},
}


def case_spatial_conv(name, axes):
    given = dict(CONVOLUTIONS[name])
    size, rows, groups = given.pop("size"), given.pop("rows", 32), given.pop("groups", 1)
    given.pop("results", None)
    padding = given.setdefault("padding", "SAME")
    images, kernel = normal(2, rows, rows, 4), normal(size, size, 4 // groups, 8)
    plain = partial(
        jax.lax.conv_general_dilated,
        window_strides=given.get("strides", (1, 1)),
        padding=padding,
        rhs_dilation=given.get("rhs_dilation", (1, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    mesh = device_mesh((4, 2), ("rows", "columns"))
    spec = P(None, *axes)
    parts = jax.shard_map(
        lambda x, k: spatial_conv(x, k, axes=axes, feature_group_count=groups, **given),
        mesh=mesh,
        in_specs=(spec, P()),
        out_specs=spec,
    )
    wanted = plain(images, kernel)
    if any(axis and wanted.shape[1 + dim] % mesh.shape[axis] for dim, axis in enumerate(axes)):
        try:
            parts(images, kernel)
        except ValueError as error:
            assert "can't be divided among" in str(error)  # noqa: PT017
            return
        raise AssertionError("an uneven result was not refused")
    assert_close(jax.jit(parts)(images, kernel), wanted, rtol=1e-4, atol=1e-4)
    weights = normal(*wanted.shape)
    backward = [
        jax.jit(jax.grad(lambda x, k, run=run: (run(x, k) * weights).sum(), (0, 1)))(images, kernel)
        for run in (parts, plain)
    ]
    assert_close(*backward, rtol=1e-4, atol=1e-3)


# Batch norm, evaluation


def case_batch_norm(group_size):
    mesh = device_mesh((8,), ("data",))
    examples, scale, bias = normal(32, 3, 5) * 3 + 1, normal(5), normal(5)
    norm = jax.shard_map(
        lambda x, s, b: distributed_batch_norm(x, s, b, axis_name="data", group_size=group_size)[0],
        mesh=mesh,
        in_specs=(P("data"), P(), P()),
        out_specs=P("data"),
        check_vma=False,
    )

    def plain(examples, scale, bias):
        groups = examples.reshape(8 // (group_size or 8), -1, 3, 5)
        mean, var = groups.mean((1, 2), keepdims=True), groups.var((1, 2), keepdims=True)
        return ((groups - mean) / jnp.sqrt(var + 1e-5) * scale + bias).reshape(examples.shape)

    assert_close(jax.jit(norm)(examples, scale, bias), plain(examples, scale, bias), atol=1e-5)
    weights = normal(*examples.shape)
    backward = [
        jax.jit(jax.grad(lambda *given, run=run: (run(*given) * weights).sum(), (0, 1, 2)))(examples, scale, bias)
        for run in (norm, plain)
    ]
    assert_close(*backward, rtol=1e-4, atol=1e-4)


def case_evaluation(count, batch):
    mesh = device_mesh((8,), ("data",))
    examples = {"x": normal(count, 4), "y": normal(count)}
    weights = normal(4)

    def measure(weights, batch):
        error = jnp.square(batch["x"] @ weights - batch["y"])
        return {"loss": error, "right": error < 1}

    evaluate = distributed_eval(measure, examples, mesh, batch=batch)
    wanted = jax.tree.map(jnp.mean, measure(weights, examples))
    assert_close(evaluate(weights), wanted)
    assert_close(evaluate(weights * 2), jax.tree.map(jnp.mean, measure(weights * 2, examples)))


CASES = {
    **{f"sharded update: {name}": partial(case_sharded_update, name) for name in OPTIMIZERS},
    "sharded update: two axes": case_sharded_update_over_two_axes_beside_a_model_axis,
    **{
        f"sum: {axes}, {size}, {dtype and dtype.__name__}, mean {mean}": partial(
            case_two_level_sum, axes, size, dtype, mean
        )
        for axes, size, dtype, mean in [
            (("x", "y"), 1 << 20, None, False),
            (("x", "y"), 40, None, True),
            (("y", "x"), 64, jnp.bfloat16, True),
            (("x",), 1 << 20, None, False),
        ]
    },
    **{
        f"spatial: {name}, {axes}": partial(case_spatial_conv, name, axes)
        for name in CONVOLUTIONS
        for axes in (("rows", None), ("rows", "columns"))
    },
    **{f"batch norm: {size}": partial(case_batch_norm, size) for size in (None, 1, 2, 4)},
    **{
        f"evaluation: {count} by {batch}": partial(case_evaluation, count, batch) for count, batch in [(50, 16), (7, 8)]
    },
}


def main():
    for name, case in CASES.items():
        try:
            case()
            said = ""
        except Exception:  # noqa: BLE001
            said = traceback.format_exc()
        print(json.dumps({"case": name, "said": said}), flush=True)


if __name__ == "__main__":
    main()
