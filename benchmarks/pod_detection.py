"""SSD's training step to plan for pods: plain JAX, as MLPerf Training v0.6 had it.

    phasepoint scale plan benchmarks/pod_detection.py:ssd --args-from ssd_args --to tpu-v3:32x32

ResNet-34 whose last stage keeps 38 × 38, five more stages, 8,732 boxes of 81 classes, hard negatives three to one
(Liu et al., 2016; the reference of MLPerf Training v0.6). From 1,024 cores on four share the rows of an image; batches,
and the groups whose examples are normalised together, are those of Google's runs.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from phasepoint.scale.techniques.space_to_depth import space_to_depth_conv
from pod_models import BF16, args_of, conv_shape, normalise, step_of
from pod_models import conv_norm as conv_norm_of

BLOCKS, WIDTHS, STRIDES = (3, 4, 6), (64, 128, 256), (1, 2, 1)
EXTRA = (
    (256, 512, 2, "SAME"),
    (256, 512, 2, "SAME"),
    (128, 256, 2, "SAME"),
    (128, 256, 1, "VALID"),
    (128, 256, 1, "VALID"),
)
BOXES, CLASSES, ALL_BOXES = (4, 6, 6, 6, 4, 4), 81, 8732

CORES = len(jax.devices())
MESH = jax.sharding.Mesh(np.array(jax.devices()).reshape(-1, 4 if CORES >= 1024 else 1), ("data", "rows"))
BATCH = 2048 if CORES >= 512 else 1024
GROUP = {32: 2, 128: 8, 1024: 8}.get(CORES, 16 if CORES >= 256 else 1)
conv_norm = partial(conv_norm_of, group=GROUP)


def ssd_shapes():
    shapes, channels = {"stem": conv_shape(7, 3, 64)}, 64
    for stage, (blocks, width) in enumerate(zip(BLOCKS, WIDTHS, strict=True)):
        for block in range(blocks):
            layers = {"a": conv_shape(3, channels, width), "b": conv_shape(3, width, width)}
            if channels != width:
                layers["skip"] = conv_shape(1, channels, width)
            shapes[f"s{stage}b{block}"], channels = layers, width
    outputs = [channels]
    for number, (middle, width, _, _) in enumerate(EXTRA):
        shapes[f"x{number}"] = {"a": conv_shape(1, channels, middle), "b": conv_shape(3, middle, width)}
        channels = width
        outputs.append(width)
    for number, (width, boxes) in enumerate(zip(outputs, BOXES, strict=True)):
        shapes[f"h{number}"] = {"place": (3, 3, width, boxes * 4), "kind": (3, 3, width, boxes * CLASSES)}
    return shapes


def head(kernel, x, last):
    y = lax.conv_general_dilated(x, kernel.astype(BF16), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y.reshape(len(x), -1, last)


def ssd_loss(weights, images, places, kinds):
    blocks = space_to_depth_conv(images.astype(BF16), weights["stem"]["kernel"].astype(BF16), padding=((2, 3), (2, 3)))
    x = normalise(weights["stem"], blocks, group=GROUP)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            layer, stride = weights[f"s{stage}b{block}"], STRIDES[stage] if not block else 1
            y = conv_norm(layer["b"], conv_norm(layer["a"], x, stride), act=False)
            x = jax.nn.relu(y + (conv_norm(layer["skip"], x, stride, act=False) if "skip" in layer else x))
    maps = [x]
    for number, (_, _, stride, padding) in enumerate(EXTRA):
        layer = weights[f"x{number}"]
        x = conv_norm(layer["b"], conv_norm(layer["a"], x), stride, padding=padding)
        maps.append(x)
    told = [head(weights[f"h{number}"]["place"], x, 4) for number, x in enumerate(maps)]
    classes = [head(weights[f"h{number}"]["kind"], x, CLASSES) for number, x in enumerate(maps)]
    told, classes = (jnp.concatenate(parts, axis=1).astype(jnp.float32) for parts in (told, classes))
    is_object = kinds > 0
    found = is_object.sum(1)
    off = jnp.abs(told - places).clip(1e-6)
    place_loss = (jnp.where(off < 1, off**2 / 2, off - 0.5).sum(-1) * is_object).sum(1)
    kind_loss = optax.softmax_cross_entropy_with_integer_labels(classes, kinds)
    hardest = jnp.argsort(jnp.argsort(-jnp.where(is_object, 0.0, kind_loss), axis=1), axis=1)
    counted = is_object | (hardest < 3 * found[:, None])
    return ((place_loss + (kind_loss * counted).sum(1)) / found.clip(1)).mean()


MOMENTUM = optax.sgd(1e-3, momentum=0.9)
ssd = step_of(ssd_loss, MOMENTUM, MESH)


def placed(shape, dtype, *axes):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, PartitionSpec(*axes)))


def ssd_args():
    batch = (
        placed((BATCH, 300, 300, 3), BF16, "data", "rows"),
        placed((BATCH, ALL_BOXES, 4), jnp.float32, "data"),
        placed((BATCH, ALL_BOXES), jnp.int32, "data"),
    )
    weights, state, *_ = args_of(ssd_shapes(), MOMENTUM)
    whole = partial(jax.tree.map, lambda leaf: placed(leaf.shape, leaf.dtype))
    return whole(weights), whole(state), *batch
