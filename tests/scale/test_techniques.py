"""Each technique gives on eight devices what one device gives; and those that need no second device, here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from technique_cases import CASES

from phasepoint.scale import (
    bucketed_batches,
    distributed_eval,
    lars,
    lstm,
    shard_weight_update,
    space_to_depth_conv,
    spatial_conv,
    warmup_then_decay,
)
from phasepoint.scale.techniques.batch_norm import batch_norm_groups
from phasepoint.scale.techniques.weight_update import replica_bytes


@pytest.fixture(scope="module")
def said():
    """What each case of eight devices said: nothing where it holds."""
    flags = f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}"
    cases = Path(__file__).with_name("technique_cases.py")
    ran = subprocess.run(
        [sys.executable, cases], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=True
    )
    return {row["case"]: row["said"] for row in map(json.loads, ran.stdout.splitlines())}


@pytest.mark.parametrize("case", CASES)
def test_eight_devices_give_what_one_gives(case, said):
    assert said[case] == ""


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


# Weight-update sharding


def test_an_axis_that_the_mesh_does_not_have():
    mesh = jax.make_mesh((1,), ("data",))
    with pytest.raises(ValueError, match="no axis 'rows'; it has 'data'"):
        shard_weight_update(optax.sgd(1.0), mesh, "rows")


@pytest.mark.parametrize(
    ("shapes", "replicas", "wanted"),
    [
        ([(8,)], 8, 4),
        ([(10,)], 8, 20),
        ([(7,)], 8, 28),
        ([()], 8, 4),
        ([(512, 512, 3, 3)], 2048, 512 * 9 * 4),
        ([(3, 3, 512, 1024)], 2048, 9 * 1024 * 4),
    ],
)
def test_bytes_that_a_replica_keeps(shapes, replicas, wanted):
    assert replica_bytes(shapes, replicas, 4) == wanted


# LARS


@pytest.mark.parametrize("scaled", [False, True])
def test_lars_is_the_published_formula(scaled):
    rates, momentum, decay, trust = [0.5, 0.3, 0.1], 0.9, 1e-2, 0.02
    optimizer = lars(
        lambda count: jnp.array(rates)[count],
        momentum=momentum,
        scaled_momentum=scaled,
        weight_decay=decay,
        trust=trust,
    )
    weights = {"w": normal(4, 3), "b": normal(3, seed=1)}
    state = optimizer.init(weights)
    w, b = (np.asarray(weights[name], np.float64) for name in "wb")
    past_w, past_b = np.zeros_like(w), np.zeros_like(b)
    for number, rate in enumerate(rates):
        gradients = {"w": normal(4, 3, seed=5 + number), "b": normal(3, seed=9 + number)}
        updates, state = optimizer.update(gradients, state, weights)
        weights = optax.apply_updates(weights, updates)
        g, h = (np.asarray(gradients[name], np.float64) for name in "wb")
        local = trust * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w))
        if scaled:
            past_w, past_b = momentum * past_w + g + decay * w, momentum * past_b + h
            w, b = w - rate * local * past_w, b - rate * past_b
        else:
            past_w, past_b = momentum * past_w + rate * local * (g + decay * w), momentum * past_b + rate * h
            w, b = w - past_w, b - past_b
        np.testing.assert_allclose(weights["w"], w, rtol=1e-5)
        np.testing.assert_allclose(weights["b"], b, rtol=1e-5)


def test_lars_of_weights_that_are_zero_is_finite():
    optimizer = lars(0.1)
    weights = {"w": jnp.zeros((2, 2))}
    updates, _ = optimizer.update(weights, optimizer.init(weights), weights)
    assert updates["w"].tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match="needs the weights"):
        optimizer.update(weights, optimizer.init(weights))


def test_the_schedule_ends_at_zero():
    rate = warmup_then_decay(10.0, 5, 25)
    assert float(rate(5)) == 10.0
    assert float(rate(15)) == 2.5
    assert float(rate(25)) == 0.0


# Batches of like lengths


def test_all_hosts_take_the_same_bucket_and_other_examples():
    lengths = np.random.default_rng(0).integers(1, 60, 1000)
    plans = [list(bucketed_batches(lengths, 8, boundaries=[10, 20, 40, 50], hosts=4, host=host)) for host in range(4)]
    assert len({tuple(pad for pad, _ in plan) for plan in plans}) == 1
    taken = np.concatenate([rows for plan in plans for _, rows in plan])
    assert len(taken) == len(set(taken.tolist()))
    fits = int((lengths <= 50).sum())
    assert fits - 32 < len(taken) <= fits
    assert all(lengths[rows].max() <= pad for plan in plans for pad, rows in plan)
    assert all(len(rows) == 8 for plan in plans for _, rows in plan)


def test_another_seed_is_another_epoch_and_the_same_seed_the_same():
    lengths = list(range(1, 41))
    first, same, other = (
        [rows.tolist() for _, rows in bucketed_batches(lengths, 4, boundaries=[20, 40], seed=seed)]
        for seed in (0, 0, 1)
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"boundaries": [4, 2]}, "must grow"),
        ({"boundaries": []}, "must grow"),
        ({"boundaries": [4], "hosts": 2, "host": 2}, "host 2 of 2 hosts does not exist"),
    ],
)
def test_buckets_that_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        list(bucketed_batches([1, 2], 1, **given))


# The rest on one device


def test_the_hoisted_projection_gives_the_same_forward_and_backward():
    given = normal(6, 3, 5), normal(5, 16, seed=1), normal(4, 16, seed=2), normal(16, seed=3)
    runs = [
        jax.value_and_grad(lambda *given, hoist=hoist: (lstm(*given, hoist=hoist)[0] ** 2).sum(), (0, 1, 2, 3))(*given)
        for hoist in (True, False)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *runs)


@pytest.mark.parametrize(
    ("rows", "size", "stride", "pad"),
    [
        (16, 7, 2, (3, 3)),
        (16, 7, 2, (2, 3)),
        (12, 3, 2, (0, 1)),
        (12, 5, 3, (1, 2)),
        (16, 4, 4, (0, 0)),
        (8, 3, 2, (1, 1)),
    ],
)
def test_space_to_depth_gives_the_same_forward_and_backward(rows, size, stride, pad):
    images, kernel = normal(2, rows, rows, 3), normal(size, size, 3, 8, seed=1)
    plain = jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), (pad, pad), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    blocks = space_to_depth_conv(images, kernel, stride=stride, padding=(pad, pad))
    np.testing.assert_allclose(blocks, plain, rtol=1e-4, atol=1e-4)
    slope = jax.grad(lambda k: (space_to_depth_conv(images, k, stride=stride, padding=(pad, pad)) ** 2).sum())(kernel)
    wanted = jax.grad(
        lambda k: (
            jax.lax.conv_general_dilated(
                images, k, (stride, stride), (pad, pad), dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            ** 2
        ).sum()
    )(kernel)
    np.testing.assert_allclose(slope, wanted, rtol=1e-3, atol=1e-3)


def test_messages_for_what_cannot_be_divided():
    mesh = jax.make_mesh((1,), ("data",))
    with pytest.raises(ValueError, match="no example to evaluate"):
        distributed_eval(lambda w, x: x, jnp.zeros((0, 3)), mesh, batch=1)
    with pytest.raises(ValueError, match="5 replicas can't be divided into groups of 2"):
        batch_norm_groups(5, 2)
    with pytest.raises(ValueError, match=r"9×9 can't be divided into blocks of 2×2"):
        space_to_depth_conv(jnp.zeros((1, 9, 9, 3)), jnp.zeros((3, 3, 3, 4)), padding=((1, 1), (1, 1)))
    with pytest.raises(ValueError, match="padding is 'SAME', 'VALID' or pairs"):
        spatial_conv(jnp.zeros((1, 8, 8, 3)), jnp.zeros((3, 3, 3, 4)), axes=(None, None), padding="FULL")
