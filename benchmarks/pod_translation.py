"""GNMT's training step to plan for pods: plain JAX, as MLPerf Training v0.6 had it.

    phasepoint scale plan benchmarks/pod_translation.py:gnmt --args-from gnmt_args --to tpu-v3:16x16 --batch 4096

A bidirectional and three plain encoder layers, four decoder layers with attention from the first, 1,024 units each
(Wu et al., 2016); the input projections of all layers stand before their loops.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from phasepoint.scale import lstm, recurrence, shard_weight_update
from pod_models import BF16, MESH, sharded_args, step_of, struct

UNITS, WORDS, LENGTH = 1024, 32_320, 32
"""Steps of the loops: sentences of some 27 words (`TOKENS_A_SENTENCE`, less those above 48) come in batches of like
lengths, ten words apart, and a batch ends with its longest."""


def layer_shape(features):
    return {"in": (features, 4 * UNITS), "hidden": (UNITS, 4 * UNITS), "bias": (4 * UNITS,)}


def gnmt_shapes():
    encoder = {"forward": layer_shape(UNITS), "backward": layer_shape(UNITS), "e1": layer_shape(2 * UNITS)}
    encoder |= {f"e{layer}": layer_shape(UNITS) for layer in (2, 3)}
    decoder = {f"d{layer}": layer_shape(2 * UNITS) for layer in range(4)}
    attention = {"query": (UNITS, UNITS), "memory": (UNITS, UNITS), "score": (UNITS,)}
    words = {"source": (WORDS, UNITS), "target": (WORDS, UNITS), "out": (UNITS, WORDS)}
    return {**encoder, **decoder, "attention": attention, **words}


def run_layer(layer, inputs):
    return lstm(inputs, *(layer[name].astype(BF16) for name in ("in", "hidden", "bias")))[0]


def attending_layer(layer, attention, inputs, memory):
    """The first decoder layer: what it attends to with its state goes into its next step, and into those above."""
    into, hidden = layer["in"].astype(BF16), layer["hidden"].astype(BF16)
    weights = {"gates": jnp.concatenate([into[UNITS:], hidden]), "query": attention["query"].astype(BF16)}
    keys = memory @ attention["memory"].astype(BF16)

    def step(carry, given, shared, product):
        (hidden, cell, context), (keys, memory, score) = carry, shared
        gates = given + product("gates", jnp.concatenate([context, hidden], axis=-1))
        enter, forget, new, leave = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        scores = (jnp.tanh(keys + product("query", hidden)) * score).sum(-1)
        shares = jax.nn.softmax(scores.astype(jnp.float32), axis=0).astype(BF16)
        context = (shares[..., None] * memory).sum(0)
        return (hidden, cell, context), (hidden, context)

    zeros = jnp.zeros((inputs.shape[1], UNITS), BF16)
    projected = inputs @ into[:UNITS] + layer["bias"].astype(BF16)
    shared = keys, memory, attention["score"].astype(BF16)
    return recurrence(step, weights, (zeros, zeros, zeros), projected, shared)[1]


def gnmt_loss(weights, source, target):
    x = weights["source"].astype(BF16)[source.T]
    both = run_layer(weights["forward"], x), run_layer(weights["backward"], x[::-1])[::-1]
    x = run_layer(weights["e1"], jnp.concatenate(both, axis=-1))
    x = x + run_layer(weights["e2"], x)
    memory = x + run_layer(weights["e3"], x)
    y, context = attending_layer(weights["d0"], weights["attention"], weights["target"].astype(BF16)[target.T], memory)
    for layer in (1, 2, 3):
        above = run_layer(weights[f"d{layer}"], jnp.concatenate([y, context], axis=-1))
        y = above if layer == 1 else y + above
    logits = (y @ weights["out"].astype(BF16)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, target.T).mean()


ADAM = optax.adam(1e-3)
SHARDED = shard_weight_update(ADAM, MESH, gather=False)
gnmt = step_of(gnmt_loss, SHARDED)
SENTENCES = struct((len(MESH.devices), LENGTH), jnp.int32), struct((len(MESH.devices), LENGTH), jnp.int32)
gnmt_args = partial(sharded_args, gnmt_shapes(), ADAM, SHARDED, MESH, *SENTENCES)
