"""The memory that a transformer's training step needs on one device, in closed form, part by part.

Sources: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, equation 4 (a
layer keeps 34 / t bytes for each token and dimension, t devices sharing matrices and sequence);
Rajbhandari et al., "ZeRO", 2020, section 3 (bytes of weights, gradients and an optimizer with two moments).
"""

from collections.abc import Mapping

from phasepoint.scale.steps.gpu import weights_of_one
from phasepoint.scale.steps.transformer import BF16_BYTES, Layout, Transformer

Memory = Mapping[str, float]
"""Bytes by a part's name."""

F32_BYTES = 4
"""Of an element of float32."""

MOMENTS_BYTES = 8
"""Of a weight: Adam's two moments in float32."""

RUNTIME_BYTES = {"tpu": 0.25 * 2**30, "gpu": 1.5 * 2**30}
"""What is not the program's: of 16 GiB of a TPU v5e its compiler gives out 15.75; a CUDA context with a few
communicators takes one to two GiB (an assumption)."""


def tpu_memory(
    model: Transformer, *, chips: int, slices: int, tensor: int, sequences_per_chip: float, remat: str
) -> Memory:
    """Bytes of a step on one chip as MaxText lays it out: everything divided among the chips of a slice.

    Args:
        model: the transformer.
        chips: in all slices together.
        slices: joined by a network; each holds the whole model.
        tensor: chips that share each matrix.
        sequences_per_chip: of a step.
        remat: "full", "minimal" or "none": what of the forward pass is done again.
    """
    stored = sum(model.layer_weights) + 2 * model.vocab * model.dim
    own, tokens = stored / (chips // slices), sequences_per_chip * model.seq
    heads = model.attention_width / 2 + 2 * model.key_heads * model.head_dim
    gates = 2 if model.gated else 1
    mixed, inner = model.attention_width / 2, model.active_mlp_dim
    again = 5 * model.dim + heads + mixed + (gates + 1) * inner
    # What JAX keeps of a layer as it stands: norms in float32 twice, every head's keys and values, steps of the gate.
    all_kept = 12 * model.dim + 5 * mixed + (2 * gates + 1) * inner
    kept = {"full": model.dim, "minimal": 3 * model.dim + heads + gates * inner, "none": all_kept}[remat]
    layer = sum(model.layer_weights) / model.layers
    return {
        "weights": own * F32_BYTES,
        "optimizer": own * MOMENTS_BYTES,
        "gradients": own * F32_BYTES,
        "weights of other chips": 2 * layer / tensor * BF16_BYTES,
        "kept for the backward pass": model.layers * tokens * kept * BF16_BYTES,
        "a layer's backward pass": 2 * tokens * again * BF16_BYTES,
        "logits": tokens * model.vocab * (BF16_BYTES + F32_BYTES),
        "runtime": RUNTIME_BYTES["tpu"],
    }


def gpu_memory(model: Transformer, layout: Layout, *, keeps_scores: bool = False, recomputes: bool = False) -> Memory:
    """Bytes of a step on a GPU of the first stage as Megatron lays it out, its optimizer divided among replicas.

    The first stage holds as many micro-batches as there are stages, the most of all (1F1B). Devices that share matrices
    share the sequence as well, outside of them.

    Args:
        model: the transformer.
        layout: its place on the devices.
        keeps_scores: whether attention keeps its scores (before FlashAttention).
        recomputes: whether the forward pass of each layer is done again, so that only what goes into it is kept.
    """
    own, tensor = weights_of_one(model, layout), layout.tensor
    tokens = layout.micro_batch * model.seq
    heads = model.attention_width + 2 * model.key_heads * model.head_dim
    divided = 2 * heads + (8 if model.gated else 4) * model.active_mlp_dim
    scores = 5 * model.heads * model.seq if keeps_scores else 0
    layer = tokens * (10 * model.dim + divided + scores) / tensor
    kept = BF16_BYTES * tokens * model.dim / tensor if recomputes else layer
    in_flight = min(layout.pipeline, layout.micro_batches)
    logits = tokens * model.vocab / tensor * (BF16_BYTES + F32_BYTES) if layout.pipeline == 1 else 0.0
    return {
        "weights": own * BF16_BYTES,
        "optimizer": own * (F32_BYTES + MOMENTS_BYTES) / layout.data,
        "gradients": own * F32_BYTES,
        "kept for the backward pass": model.layers / layout.pipeline * in_flight * kept,
        "a layer's backward pass": layer if recomputes else 0.0,
        "logits": logits,
        "runtime": RUNTIME_BYTES["gpu"],
    }
