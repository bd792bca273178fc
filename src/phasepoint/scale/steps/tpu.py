"""A training step of a transformer on TPU pods as MaxText lays it out: weights sharded within a slice (FSDP), tensor
parallelism, replicas between slices.

Source of the layout's costs: "How to Scale Your Model", 2025, chapters 3 and 5 (https://jax-ml.github.io/scaling-book);
the layouts are those of AI-Hypercomputer/maxtext, `configs/tpu`.
"""

import math

from phasepoint.core.errors import UsageError
from phasepoint.devices.specs import DeviceSpec
from phasepoint.scale.steps.constants import Part, Parts
from phasepoint.scale.steps.transformer import BF16_BYTES, Transformer

SLICE_NETWORK_BYTES_PER_S = 3e9
"""Of one chip to another slice: 100 to 200 Gbit/s for a host of four to eight chips. What a pod has beside that is in
the constant of `slices`."""

TPU_PARTS = (
    Part("products", 1.15, "beside", "matrix products of the layers, forward and twice backward"),
    Part("recomputed", 1.1, "beside", "the same, done again in the backward pass"),
    Part("attention", 1.5, "beside", "products of queries, keys and values"),
    Part("logits", 1.2, "beside", "products with the vocabulary"),
    Part("element by element", 0.6, "beside", "norms, residuals, activations"),
    Part(
        "weights of other chips", 0.3, "beside", "gathering weights and adding up gradients, what products do not hide"
    ),
    Part("tensor links", 0.4, "beside", "activations between chips that share a matrix"),
    Part("update", 1.0, "beside", "the optimizer"),
    Part("slices", 0.3, "beside", "gradients between slices, what products do not hide"),
    Part("waits for slices", 1.0, "beside", "1 % of the products each time the slices double"),
    Part("waits for chips", 1.0, "beside", "0.3 % of the products each time a slice doubles"),
)
"""Priors: products at 87 % of the peak; two thirds of what goes over links hidden behind them."""

RECOMPUTED_MINIMAL = 0.15
"""Of the forward products that the policy "minimal" recomputes: it keeps what matrix products gave, and attention's
products are done again. An assumption."""

PASSES_OF_ELEMENTS = 40
"""How often a layer reads or writes its residual stream. A round number; its constant corrects it."""


def tpu_parts(
    model: Transformer,
    device: DeviceSpec,
    *,
    chips: int,
    slices: int = 1,
    tensor: int = 1,
    sequences_per_chip: float = 1.0,
    remat: str = "full",
) -> Parts:
    """What a step would take at the peak, part by part, on one chip.

    Args:
        model: the transformer.
        device: a device of the pod, which may be half a chip.
        chips: in all slices together.
        slices: joined by a network.
        tensor: chips that share each matrix.
        sequences_per_chip: of a step.
        remat: "full" (all of the forward pass is done again), "minimal", or "none".

    Raises:
        UsageError: chips that the slices or tensor parallelism cannot share; a device without known links.
    """
    if remat not in ("full", "minimal", "none"):
        raise UsageError(f"remat is full, minimal or none, not {remat!r}")
    if chips % slices or chips // slices % tensor:
        raise UsageError(f"{chips} chips can't be divided into {slices} slices of groups of {tensor}")
    ici, bf16 = device.link_bytes_per_s.get("ici"), device.flop_per_s.get("bf16")
    if ici is None or bf16 is None:
        raise UsageError(f"the links or bf16 rate of {device.name} are not known; see `phasepoint devices`")
    per_chip = device.devices_per_chip
    peak, memory = bf16.value * per_chip, device.memory_bytes_per_s.value * per_chip
    one_way = ici.value * per_chip / 2
    slice_chips, tokens = chips // slices, sequences_per_chip * model.seq
    weights = model.active_weights
    stored = sum(model.layer_weights) + 2 * model.vocab * model.dim
    products = 6 * tokens * weights / peak
    attention = model.layers * 6 * model.seq * tokens * model.attention_width / peak
    gathers = {"full": 3, "minimal": 2, "none": 2}[remat]
    return {
        "products": products,
        "recomputed": products / 3 * {"full": 1.0, "minimal": RECOMPUTED_MINIMAL, "none": 0.0}[remat],
        "attention": attention * (4 / 3 if remat == "full" else 1.0),
        "logits": 6 * tokens * model.dim * model.vocab / peak,
        "element by element": model.layers * tokens * model.dim * BF16_BYTES * PASSES_OF_ELEMENTS / memory,
        "weights of other chips": (gathers * BF16_BYTES + 4) * weights / tensor / one_way,
        "tensor links": model.layers * tokens * model.dim * BF16_BYTES * 8 * (tensor - 1) / tensor / one_way,
        "update": stored / slice_chips * 28 / memory,
        "slices": 2 * (slices - 1) / slices * 4 * stored / slice_chips / SLICE_NETWORK_BYTES_PER_S,
        "waits for slices": 0.01 * products * math.log2(slices),
        "waits for chips": 0.003 * products * math.log2(slice_chips),
    }


def counted_flop(model: Transformer, tokens: float) -> float:
    """Flop of a step as MaxText counts them: without what is recomputed, attention as if nothing were left out.

    Source: AI-Hypercomputer/maxtext, `calculate_tflops_training_per_device`.
    """
    attention = 6 * model.layers * model.attention_width * model.seq * tokens
    return 6 * tokens * (model.active_weights + model.dim * model.vocab) + attention
