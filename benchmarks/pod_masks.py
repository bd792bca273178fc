"""Mask R-CNN's training step to plan for pods: plain JAX, as MLPerf Training v0.6 had it.

    phasepoint scale plan benchmarks/pod_masks.py:masks --args-from masks_args --to tpu-v3:4x4

ResNet-50 with a feature pyramid, a network that proposes regions, a head for boxes and one for masks (He et al., 2017;
the reference of MLPerf Training v0.6). Above 32 cores four share an image: its rows, and later its regions.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from pod_models import BF16, BLOCKS, WIDTHS, args_of, resnet_shapes, step_of

HEIGHT, WIDTH, LEVELS, ANCHORS, CLASSES, CHANNELS = 832, 1344, (2, 3, 4, 5, 6), 3, 91, 256
BEFORE, AFTER, REGIONS, FOUND, OBJECTS, OUTLINE = 2000, 1000, 512, 128, 100, 112
"""Proposals before and after suppression, regions and masks of an image, objects that it may hold, their outlines."""
TILE, ROUNDS = 512, 4
"""Proposals that are compared at a time, and comparisons of a tile with itself until nothing changes: an assumption."""

CORES = len(jax.devices())
PARTS = 4 if CORES > 32 else 1
MESH = jax.sharding.Mesh(np.array(jax.devices()).reshape(-1, PARTS), ("data", "rows"))
BATCH = 128


def divided(x, *axes):
    """Places of one replica's array on the cores that share its images."""
    return lax.with_sharding_constraint(x, NamedSharding(jax.sharding.get_abstract_mesh(), PartitionSpec(*axes)))


# The network


def dense(features, units):
    return {"kernel": (features, units), "bias": (units,)}


def biased(kernel, channels_in, channels_out):
    return {"kernel": (kernel, kernel, channels_in, channels_out), "bias": (channels_out,)}


def masks_shapes():
    shapes = {name: layer for name, layer in resnet_shapes().items() if name != "head"}
    for stage, width in enumerate(WIDTHS):
        shapes[f"lateral{stage + 2}"] = biased(1, 4 * width, CHANNELS)
        shapes[f"smooth{stage + 2}"] = biased(3, CHANNELS, CHANNELS)
    shapes |= {"propose": biased(3, CHANNELS, CHANNELS), "score": biased(1, CHANNELS, ANCHORS)}
    shapes |= {"shift": biased(1, CHANNELS, 4 * ANCHORS)}
    shapes |= {"fc6": dense(49 * CHANNELS, 1024), "fc7": dense(1024, 1024)}
    shapes |= {"kind": dense(1024, CLASSES), "box": dense(1024, 4 * CLASSES)}
    shapes |= {f"mask{layer}": biased(3, CHANNELS, CHANNELS) for layer in range(4)}
    return shapes | {"grow": biased(2, CHANNELS, CHANNELS), "outline": biased(1, CHANNELS, CLASSES)}


def conv(layer, x, stride=1):
    y = lax.conv_general_dilated(
        x, layer["kernel"].astype(BF16), (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y + layer["bias"].astype(BF16)


def frozen(layer, x, stride=1, act=True):
    """A convolution whose normalisation is kept as it was pretrained."""
    y = lax.conv_general_dilated(
        x, layer["kernel"].astype(BF16), (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = y * lax.stop_gradient(layer["scale"]).astype(BF16) + lax.stop_gradient(layer["bias"]).astype(BF16)
    return jax.nn.relu(y) if act else y


def pyramid(weights, images):
    """Features of five levels; what comes before the second stage is not trained."""
    x = frozen(weights["stem"], images.astype(BF16), 2)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    found = {}
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            layer, stride = weights[f"s{stage}b{block}"], 2 if stage and not block else 1
            y = frozen(layer["c"], frozen(layer["b"], frozen(layer["a"], x), stride), act=False)
            skip = frozen(layer["skip"], x, stride, act=False) if "skip" in layer else x
            x = jax.nn.relu(y + skip)
        x = lax.stop_gradient(x) if stage == 0 else x
        found[stage + 2] = x
    top, levels = None, {}
    for level in (5, 4, 3, 2):
        side = conv(weights[f"lateral{level}"], found[level])
        if top is not None:
            side = side + top.repeat(2, axis=1).repeat(2, axis=2)[:, : side.shape[1], : side.shape[2]]
        top = side
        levels[level] = conv(weights[f"smooth{level}"], top)
    levels[6] = levels[5][:, ::2, ::2]
    return levels


# Regions


def overlap(a, b):
    """Intersection over union of boxes [.., n, 4] and [.., m, 4], y0 x0 y1 x1."""
    low = jnp.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = jnp.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    both = jnp.prod((high - low).clip(0), axis=-1)
    area = [jnp.prod((one[..., 2:] - one[..., :2]).clip(0), axis=-1) for one in (a, b)]
    return both / (area[0][..., :, None] + area[1][..., None, :] - both + 1e-8)


def suppress(boxes, most=0.7):
    """Boxes in the order of their scores; those that a better one covers become empty, tile by tile."""
    kept = []
    order = np.tril(np.ones((TILE, TILE), bool), -1)
    for first in range(0, boxes.shape[1], TILE):
        tile = boxes[:, first : first + TILE]
        for better in kept:
            tile = tile * (overlap(tile, better) < most).all(-1, keepdims=True)
        covers = (overlap(tile, tile) >= most) & order[: tile.shape[1], : tile.shape[1]]

        def once(_, stays, covers=covers):
            return ~(covers & stays[:, None, :]).any(-1)

        stays = lax.fori_loop(0, ROUNDS, once, jnp.ones(tile.shape[:2], bool))
        kept.append(tile * stays[..., None])
    return jnp.concatenate(kept, axis=1)


def best(scores, values, count):
    scores, places = lax.top_k(scores, min(count, scores.shape[1]))
    return scores, jnp.take_along_axis(values, places[..., None], axis=1)


def proposals(scores, shifts, anchors):
    """The most promising boxes of all levels."""
    found = []
    for level in LEVELS:
        flat = scores[level].reshape(len(scores[level]), -1)
        moved = (anchors[level] + shifts[level].astype(jnp.float32).reshape(len(flat), -1, 4)).clip(0, WIDTH)
        top, boxes = best(flat.astype(jnp.float32), moved, BEFORE)
        found.append(
            best(jnp.where(jnp.prod(boxes[..., 2:] - boxes[..., :2], -1) > 0, top, -1e9), suppress(boxes), AFTER)
        )
    return best(*(jnp.concatenate(parts, axis=1) for parts in zip(*found, strict=True)), AFTER)[1]


def crop(levels, boxes, size):
    """Features of each region on a grid, from the level of its size: four neighbours of each point, weighted."""
    images, count = boxes.shape[:2]
    flat = jnp.concatenate([levels[level].reshape(images, -1, CHANNELS) for level in LEVELS[:4]], axis=1)
    flat = divided(flat, None, None, None)
    sides = np.array([levels[level].shape[1:3] for level in LEVELS[:4]])
    starts = np.concatenate([[0], np.cumsum(sides.prod(1))[:-1]])
    extent = jnp.sqrt(jnp.prod((boxes[..., 2:] - boxes[..., :2]).clip(1), -1))
    chosen = (4 + jnp.floor(jnp.log2(extent / 224))).clip(2, 5).astype(jnp.int32) - 2
    scale = 1.0 / 2.0 ** (chosen + 2)
    steps = (np.arange(size) + 0.5) / size
    at = [
        (boxes[..., axis] * scale)[..., None] + ((boxes[..., axis + 2] - boxes[..., axis]) * scale)[..., None] * steps
        for axis in (0, 1)
    ]
    bounds = jnp.asarray(sides)[chosen]
    low = [jnp.floor(one) for one in at]
    near = [
        jnp.stack([one, one + 1], -1).reshape(images, count, 2 * size).clip(0, bounds[..., axis, None] - 1)
        for axis, one in enumerate(low)
    ]
    part = [(one - floor)[..., None] * np.array([-1, 1]) + np.array([1, 0]) for one, floor in zip(at, low, strict=True)]
    rows, columns = near
    width = bounds[..., 1][..., None, None]
    places = jnp.asarray(starts)[chosen][..., None, None] + rows[..., :, None] * width + columns[..., None, :]
    taken = jax.vmap(lambda features, at: features[at])(flat, places.astype(jnp.int32))
    weight = part[0].reshape(images, count, -1, 1) * part[1].reshape(images, count, 1, -1)
    taken = taken * weight[..., None].astype(BF16)
    return taken.reshape(images, count, size, 2, size, 2, CHANNELS).sum((3, 5))


def box_head(weights, x):
    x = x.reshape(*x.shape[:2], -1)
    for name in ("fc6", "fc7"):
        x = jax.nn.relu(x @ weights[name]["kernel"].astype(BF16) + weights[name]["bias"].astype(BF16))
    return [x @ weights[name]["kernel"].astype(BF16) + weights[name]["bias"].astype(BF16) for name in ("kind", "box")]


def mask_head(weights, x):
    images, count = x.shape[:2]
    x = x.reshape(-1, *x.shape[2:])
    for layer in range(4):
        x = jax.nn.relu(conv(weights[f"mask{layer}"], x))
    grow = weights["grow"]
    x = lax.conv_transpose(x, grow["kernel"].astype(BF16), (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = conv(weights["outline"], jax.nn.relu(x + grow["bias"].astype(BF16)))
    return x.reshape(images, count, *x.shape[1:])


def outlines(objects, boxes, object_boxes):
    """Outlines of objects within regions, 28 × 28, by two products with weights of interpolation."""
    grid = (np.arange(28) + 0.5) / 28

    def along(axis):
        size = (object_boxes[..., axis + 2] - object_boxes[..., axis]).clip(1)
        at = boxes[..., axis, None] + (boxes[..., axis + 2] - boxes[..., axis])[..., None] * grid
        at = (at - object_boxes[..., axis, None]) / size[..., None] * OUTLINE
        return (1 - jnp.abs(at[..., None] - np.arange(OUTLINE))).clip(0).astype(BF16)

    return jnp.einsum("bnyi,bnij,bnxj->bnyx", along(0), objects, along(1))


# Losses


def huber(off):
    off = jnp.abs(off)
    return jnp.where(off < 1, off**2 / 2, off - 0.5)


def masks_loss(weights, images, anchors, wanted, shifts, boxes, kinds, objects):
    levels = pyramid(weights, images)
    told = {level: jax.nn.relu(conv(weights["propose"], levels[level])) for level in LEVELS}
    scores = {level: conv(weights["score"], told[level]) for level in LEVELS}
    moves = {level: conv(weights["shift"], told[level]) for level in LEVELS}
    score = jnp.concatenate([scores[level].reshape(len(images), -1) for level in LEVELS], 1).astype(jnp.float32)
    move = jnp.concatenate([moves[level].reshape(len(images), -1, 4) for level in LEVELS], 1).astype(jnp.float32)
    counted = wanted >= 0
    loss = (optax.sigmoid_binary_cross_entropy(score, wanted) * counted).sum() / 256
    loss = loss + (huber(move - shifts).sum(-1) * (wanted > 0)).sum() / 256

    sizes = [int(np.prod(scores[level].shape[1:])) for level in LEVELS]
    parts = dict(zip(LEVELS, jnp.split(anchors, np.cumsum(sizes)[:-1], axis=1), strict=True))
    regions = lax.stop_gradient(jnp.concatenate([proposals(scores, moves, parts), boxes], axis=1))
    shared = overlap(regions, boxes)
    found, which = shared.max(-1), shared.argmax(-1)
    facts = jnp.concatenate([regions, which[..., None].astype(jnp.float32), found[..., None]], -1)
    _, facts = best(found, facts, REGIONS)
    regions, which, found = facts[..., :4], facts[..., 4].astype(jnp.int32), facts[..., 5]
    regions = divided(regions, None, "rows", None)
    kind = jnp.where(found > 0.5, jnp.take_along_axis(kinds, which, 1), 0)
    target = jnp.take_along_axis(boxes, which[..., None], 1)

    names, places = box_head(weights, divided(crop(levels, regions, 7), None, "rows"))
    loss = loss + optax.softmax_cross_entropy_with_integer_labels(names.astype(jnp.float32), kind).mean()
    one = jax.nn.one_hot(kind, CLASSES, dtype=BF16)
    place = jnp.einsum("bnkc,bnk->bnc", places.reshape(*places.shape[:2], CLASSES, 4), one).astype(jnp.float32)
    loss = loss + (huber(place - (target - regions) / 10).sum(-1) * (kind > 0)).mean()

    inside = divided(regions[:, :FOUND], None, "rows", None)
    drawn = mask_head(weights, divided(crop(levels, inside, 14), None, "rows"))
    drawn = jnp.einsum("bnyxk,bnk->bnyx", drawn, one[:, :FOUND]).astype(jnp.float32)
    one_object = jax.nn.one_hot(which[:, :FOUND], OBJECTS, dtype=BF16)
    shapes = jnp.einsum("bnm,bmyx->bnyx", one_object, objects)
    wanted_masks = outlines(shapes, inside, target[:, :FOUND]).astype(jnp.float32)
    by_pixel = optax.sigmoid_binary_cross_entropy(drawn, wanted_masks).mean((2, 3))
    return loss + (by_pixel * (kind[:, :FOUND] > 0)).mean()


MOMENTUM = optax.sgd(0.16, momentum=0.9)
masks = step_of(masks_loss, MOMENTUM, MESH)

ALL_ANCHORS = sum(-(-HEIGHT // 2**level) * -(-WIDTH // 2**level) * ANCHORS for level in LEVELS)


def placed(shape, dtype, *axes):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, PartitionSpec(*axes)))


def masks_args():
    inputs = (
        placed((BATCH, HEIGHT, WIDTH, 3), BF16, "data", "rows"),
        placed((BATCH, ALL_ANCHORS, 4), jnp.float32, "data"),
        placed((BATCH, ALL_ANCHORS), jnp.float32, "data"),
        placed((BATCH, ALL_ANCHORS, 4), jnp.float32, "data"),
        placed((BATCH, OBJECTS, 4), jnp.float32, "data"),
        placed((BATCH, OBJECTS), jnp.int32, "data"),
        placed((BATCH, OBJECTS, OUTLINE, OUTLINE), BF16, "data"),
    )
    weights, state, *_ = args_of(masks_shapes(), MOMENTUM)
    whole = partial(jax.tree.map, lambda leaf: placed(leaf.shape, leaf.dtype))
    return whole(weights), whole(state), *inputs
