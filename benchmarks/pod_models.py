"""Training steps to plan for pods: plain JAX, one file, with and without sharding of the weight update.

    phasepoint scale plan benchmarks/pod_models.py:resnet --args-from resnet_args --to tpu-v3:32x32 --batch 32768
    phasepoint scale plan benchmarks/pod_models.py:transformer_sharded --args-from transformer_sharded_args --to …

ResNet-50 v1.5 with LARS and the encoder-decoder Transformer (big) with Adam, as MLPerf Training v0.6 had them: bf16
arithmetic, f32 weights.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from phasepoint.scale import distributed_batch_norm, lars, shard_weight_update, warmup_then_decay

BF16 = jnp.bfloat16
MESH = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
BATCH_NORM_GROUP = 8 if MESH.size > 1024 else 1
"""Replicas whose examples are normalised together, as in Google's runs."""


# ResNet-50

BLOCKS, WIDTHS = (3, 4, 6, 3), (64, 128, 256, 512)


def conv_shape(kernel, channels_in, channels_out):
    return {"kernel": (kernel, kernel, channels_in, channels_out), "scale": (channels_out,), "bias": (channels_out,)}


def resnet_shapes():
    shapes, channels = {"stem": conv_shape(7, 3, 64)}, 64
    for stage, (blocks, width) in enumerate(zip(BLOCKS, WIDTHS, strict=True)):
        for block in range(blocks):
            layers = {"a": conv_shape(1, channels, width), "b": conv_shape(3, width, width)}
            layers["c"] = conv_shape(1, width, 4 * width)
            if block == 0:
                layers["skip"] = conv_shape(1, channels, 4 * width)
            shapes[f"s{stage}b{block}"], channels = layers, 4 * width
    return {**shapes, "head": {"kernel": (2048, 1001), "bias": (1001,)}}


def conv_norm(layer, x, stride=1, act=True, padding="SAME", group=BATCH_NORM_GROUP):
    x = lax.conv_general_dilated(
        x, layer["kernel"].astype(BF16), (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return normalise(layer, x, act, group)


def normalise(layer, x, act=True, group=BATCH_NORM_GROUP):
    """Each replica normalises by its own examples, or by those of the group of replicas that it is in."""
    scale, bias = layer["scale"], layer["bias"]
    y, _, _ = distributed_batch_norm(x, scale, bias, axis_name="data", group_size=group)
    y = y.astype(BF16)
    return jax.nn.relu(y) if act else y


def resnet_loss(weights, images, labels):
    x = conv_norm(weights["stem"], images.astype(BF16), 2)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            layer, stride = weights[f"s{stage}b{block}"], 2 if stage and not block else 1
            y = conv_norm(layer["b"], conv_norm(layer["a"], x), stride)
            y = conv_norm(layer["c"], y, act=False)
            skip = conv_norm(layer["skip"], x, stride, act=False) if "skip" in layer else x
            x = jax.nn.relu(y + skip)
    logits = x.mean((1, 2)) @ weights["head"]["kernel"].astype(BF16) + weights["head"]["bias"].astype(BF16)
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


# Transformer (big): Vaswani et al., 2017; sentences are packed into sequences of 256

LAYERS, DIM, HEADS, HIDDEN, VOCAB, LENGTH = 6, 1024, 16, 4096, 33_708, 256


def attention_shape():
    return dict.fromkeys(("q", "k", "v", "o"), (DIM, DIM)) | {"norm": (DIM,)}


def transformer_shapes():
    feed = {"in": (DIM, HIDDEN), "out": (HIDDEN, DIM), "norm": (DIM,)}
    encoder = {f"e{layer}": {"self": attention_shape(), "feed": feed} for layer in range(LAYERS)}
    decoder = {
        f"d{layer}": {"self": attention_shape(), "cross": attention_shape(), "feed": feed} for layer in range(LAYERS)
    }
    return {"embedding": (VOCAB, DIM), **encoder, **decoder}


def norm(x, scale):
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * scale).astype(BF16)


def attend(weights, x, memory, causal):
    def heads(name, value):
        return (value @ weights[name].astype(BF16)).reshape(*value.shape[:2], HEADS, -1)

    x = norm(x, weights["norm"])
    memory = x if memory is None else memory
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("q", x), heads("k", memory)) / np.sqrt(DIM / HEADS)
    if causal:
        scores = jnp.where(np.tril(np.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    shares = jax.nn.softmax(scores.astype(jnp.float32)).astype(BF16)
    out = jnp.einsum("bhqk,bkhd->bqhd", shares, heads("v", memory))
    return out.reshape(*x.shape) @ weights["o"].astype(BF16)


def feed_forward(weights, x):
    x = norm(x, weights["norm"])
    return jax.nn.relu(x @ weights["in"].astype(BF16)) @ weights["out"].astype(BF16)


def transformer_loss(weights, source, target):
    embed = weights["embedding"].astype(BF16)
    x = embed[source]
    for layer in range(LAYERS):
        block = weights[f"e{layer}"]
        x = x + attend(block["self"], x, None, causal=False)
        x = x + feed_forward(block["feed"], x)
    y = embed[target]
    for layer in range(LAYERS):
        block = weights[f"d{layer}"]
        y = y + attend(block["self"], y, None, causal=True)
        y = y + attend(block["cross"], y, x, causal=False)
        y = y + feed_forward(block["feed"], y)
    logits = (y @ embed.T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()


# Steps


def step_of(loss, optimizer, mesh=MESH):
    """Each replica's gradient of its own examples, their mean, and the update."""

    def slopes_of(weights, *batch):
        return jax.tree.map(partial(lax.pmean, axis_name="data"), jax.value_and_grad(loss)(weights, *batch))

    def step(weights, state, *batch):
        places = (PartitionSpec(), *[PartitionSpec("data")] * len(batch))
        value, slopes = jax.shard_map(
            slopes_of, mesh=mesh, in_specs=places, out_specs=PartitionSpec(), axis_names={"data"}, check_vma=False
        )(weights, *batch)
        updates, state = optimizer.update(slopes, state, weights)
        weights = jax.tree.map(partial(whole_on, mesh), optax.apply_updates(weights, updates))
        return weights, state, value

    return jax.jit(step, donate_argnums=(0, 1))


def whole_on(mesh, leaf):
    """The same on all devices."""
    return lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec()))


def struct(shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def args_of(shapes, optimizer, *batch):
    weights = jax.tree.map(struct, shapes, is_leaf=lambda shape: isinstance(shape, tuple))
    return weights, jax.eval_shape(optimizer.init, weights), *batch


def sharded_args(shapes, inner, optimizer, mesh, *batch):
    """The same with each replica's part of the optimizer's state where `shard_weight_update` puts it."""
    weights, state, *_ = args_of(shapes, inner)
    weights = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, PartitionSpec())),
        weights,
    )
    placed = jax.jit(optimizer.init).lower(weights).compile().output_shardings
    state = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), state, placed)
    return weights, state, *batch


LARS = lars(warmup_then_decay(31.2, 5 * 40, 72 * 40), weight_decay=1e-4)
ADAM = optax.adam(1e-3, b2=0.98)
resnet, transformer = step_of(resnet_loss, LARS), step_of(transformer_loss, ADAM)
SHARDED_LARS, SHARDED_ADAM = (shard_weight_update(one, MESH, gather=False) for one in (LARS, ADAM))
resnet_sharded, transformer_sharded = step_of(resnet_loss, SHARDED_LARS), step_of(transformer_loss, SHARDED_ADAM)

IMAGES = struct((len(MESH.devices), 224, 224, 3), BF16), struct((len(MESH.devices),), jnp.int32)
TOKENS = struct((len(MESH.devices), LENGTH), jnp.int32), struct((len(MESH.devices), LENGTH), jnp.int32)

resnet_args = partial(args_of, resnet_shapes(), LARS, *IMAGES)
transformer_args = partial(args_of, transformer_shapes(), ADAM, *TOKENS)
resnet_sharded_args = partial(sharded_args, resnet_shapes(), LARS, SHARDED_LARS, MESH, *IMAGES)
transformer_sharded_args = partial(sharded_args, transformer_shapes(), ADAM, SHARDED_ADAM, MESH, *TOKENS)
