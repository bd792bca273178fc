"""GNMT's training step to plan for pods: plain JAX, as MLPerf Training v0.6 had it.

    phasepoint scale plan benchmarks/pod_translation.py:gnmt --args-from gnmt_args --to tpu-v3:16x16 --batch 4096

A bidirectional and three plain encoder layers, four decoder layers with attention from the first, 1,024 units each
(Wu et al., 2016); the input projections of all layers stand before their loops.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax

from phasepoint.scale import lstm
from pod_models import BF16, MESH, args_of, step_of, struct

UNITS, WORDS, LENGTH = 1024, 32_320, 50


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
    into, hidden_weights = layer["in"].astype(BF16), layer["hidden"].astype(BF16)
    projected = inputs @ into[:UNITS] + layer["bias"].astype(BF16)
    keys = memory @ attention["memory"].astype(BF16)
    query, score = attention["query"].astype(BF16), attention["score"].astype(BF16)

    def step(carry, given):
        hidden, cell, context = carry
        gates = given + context @ into[UNITS:] + hidden @ hidden_weights
        enter, forget, new, leave = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        scores = (jnp.tanh(keys + hidden @ query) * score).sum(-1)
        shares = jax.nn.softmax(scores.astype(jnp.float32), axis=0).astype(BF16)
        context = (shares[..., None] * memory).sum(0)
        return (hidden, cell, context), (hidden, context)

    zeros = jnp.zeros((inputs.shape[1], UNITS), BF16)
    return lax.scan(step, (zeros, zeros, zeros), projected)[1]


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
gnmt = step_of(gnmt_loss, ADAM)
SENTENCES = struct((len(MESH.devices), LENGTH), jnp.int32), struct((len(MESH.devices), LENGTH), jnp.int32)
gnmt_args = partial(args_of, gnmt_shapes(), ADAM, *SENTENCES)
