"""A small training step for each technique of `phasepoint.scale`, and the same step without it, in one file of JAX.

    phasepoint scale what-if benchmarks/pod_technique_steps.py:weight_update --args-from weight_update_args --to …

Sizes are such that the technique has something to do; on host devices they are smaller.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from phasepoint.scale import (
    distributed_batch_norm,
    lstm,
    shard_weight_update,
    space_to_depth_conv,
    spatial_conv,
    two_level_all_reduce,
)

DEVICES = np.array(jax.devices())
COUNT = DEVICES.size
IS_HOST = DEVICES[0].platform == "cpu"
DATA, TORUS = Mesh(DEVICES, ("data",)), Mesh(DEVICES.reshape(4, -1), ("x", "y"))
IMAGES = Mesh(DEVICES.reshape(-1, 4), ("image", "rows"))
TYPE = jnp.float32 if IS_HOST else jnp.bfloat16


def struct(*sizes, dtype=jnp.float32, mesh=None, spec=None):
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=mesh and NamedSharding(mesh, spec))


def spread(part, mesh, arguments):
    return jax.shard_map(part, mesh=mesh, in_specs=arguments, out_specs=P(), check_vma=False)


def descend(weights, slopes):
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes)


# Weights that are many beside the batch, with Adam


WIDTH, EXAMPLES = (512, 32) if IS_HOST else (4096, 128)
LAYERS = {f"layer {number}": struct(WIDTH, WIDTH) for number in range(4)}
ADAM = optax.adam(1e-3)
SHARDED = shard_weight_update(ADAM, DATA)


def layers_loss(weights, x):
    for weight in weights.values():
        x = jnp.tanh(x @ weight.astype(TYPE))
    return jnp.square(x.astype(jnp.float32)).mean()


def weight_update(weights, state, x):
    updates, state = SHARDED.update(jax.grad(layers_loss)(weights, x), state, weights)
    return optax.apply_updates(weights, updates), state


weight_update_args = LAYERS, jax.eval_shape(ADAM.init, LAYERS), struct(COUNT * EXAMPLES, WIDTH, dtype=TYPE)


def two_level(weights, x):
    def part(weights, x):
        slopes = jax.grad(layers_loss)(weights, x)
        return descend(weights, two_level_all_reduce(slopes, ("x", "y"), mean=True))

    return spread(part, TORUS, (P(), P(("x", "y"))))(weights, x)


two_level_args = LAYERS, struct(COUNT * EXAMPLES, WIDTH, dtype=TYPE)


# A first convolution of three channels, and one of a few large images


def first_conv(kernel, images):
    def part(kernel, images):
        def loss(kernel):
            found = space_to_depth_conv(images, kernel.astype(TYPE), padding=((3, 3), (3, 3)))
            return jnp.square(found.astype(jnp.float32)).mean()

        return kernel - 0.1 * lax.pmean(jax.grad(loss)(kernel), "data")

    return spread(part, DATA, (P(), P("data")))(kernel, images)


first_conv_args = struct(7, 7, 3, 64), struct(COUNT * (2 if IS_HOST else 32), 224, 224, 3, dtype=TYPE)

SIDE, CHANNELS = (128, 8) if IS_HOST else (512, 64)
KERNELS = {f"conv {number}": struct(3, 3, CHANNELS, CHANNELS) for number in range(4)}


def convs(kernels, images, conv):
    for kernel in kernels.values():
        images = jax.nn.relu(conv(images, kernel.astype(TYPE)))
    return jnp.square(images.astype(jnp.float32)).sum()


def spatial(kernels, images):
    def part(kernels, images):
        slopes = jax.grad(partial(convs, conv=partial(spatial_conv, axes=("rows", None))))(kernels, images)
        return descend(kernels, lax.psum(slopes, ("image", "rows")))

    return spread(part, IMAGES, (P(), P("image", "rows")))(kernels, images)


spatial_args = (
    KERNELS,
    struct(COUNT // 4, SIDE, SIDE, CHANNELS, dtype=TYPE, mesh=IMAGES, spec=P("image", "rows")),
)


def whole_images(kernels, images):
    def part(kernels, images):
        def conv(images, kernel):
            return lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        return descend(kernels, lax.psum(jax.grad(partial(convs, conv=conv))(kernels, images), "data"))

    return spread(part, DATA, (P(), P("data")))(kernels, images)


whole_images_args = KERNELS, struct(COUNT, SIDE, SIDE, CHANNELS, dtype=TYPE, mesh=DATA, spec=P("data"))


# Batch norm over four replicas, and over one


def normalise(group, scale, images):
    def part(scale, images):
        def loss(scale):
            found = distributed_batch_norm(images, scale, scale, axis_name="data", group_size=group)[0]
            return jnp.square(found.astype(jnp.float32)).mean()

        return scale - 0.1 * lax.pmean(jax.grad(loss)(scale), "data")

    return spread(part, DATA, (P(), P("data")))(scale, images)


batch_norm, batch_norm_alone = partial(normalise, 4), partial(normalise, 1)
batch_norm_args = batch_norm_alone_args = (
    struct(64), struct(COUNT * (2 if IS_HOST else 16), 56, 56, 64, dtype=TYPE, mesh=DATA, spec=P("data")),
)  # fmt: skip


# A recurrent layer


UNITS, WORDS = (128, 16) if IS_HOST else (1024, 64)
GATES = {"input": struct(UNITS, 4 * UNITS), "hidden": struct(UNITS, 4 * UNITS), "bias": struct(4 * UNITS)}


def recurrent(weights, x):
    def part(weights, x):
        def loss(weights):
            given = {name: weight.astype(TYPE) for name, weight in weights.items()}
            states, _ = lstm(x.swapaxes(0, 1), given["input"], given["hidden"], given["bias"])
            return jnp.square(states.astype(jnp.float32)).mean()

        return descend(weights, lax.pmean(jax.grad(loss)(weights), "data"))

    return spread(part, DATA, (P(), P("data")))(weights, x)


recurrent_args = GATES, struct(COUNT * (4 if IS_HOST else 64), WORDS, UNITS, dtype=TYPE)
