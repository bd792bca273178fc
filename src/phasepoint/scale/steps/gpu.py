"""A training step of a transformer on GPUs as Megatron lays it out: tensor, pipeline, data and expert parallelism.

Source of the layout's costs: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", 2021; Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022.
"""

from phasepoint.core.errors import UsageError
from phasepoint.devices.specs import DeviceSpec, Rate
from phasepoint.scale.steps.constants import Part, Parts
from phasepoint.scale.steps.transformer import BF16_BYTES, Layout, Transformer

NETWORK_BYTES_PER_S = 25e9
"""Of one GPU to another node: HDR InfiniBand, 200 Gbit/s a GPU, as in the clusters that were measured. What a cluster
has beside that is in the constants of `*_network`."""

UPDATE_BYTES = 16
"""Of a weight in an update of Adam: weight, gradient and two moments, read and written in part in float32."""

GPU_PARTS = (
    Part("products", 1.4, "device", "matrix products of the layers, forward and twice backward"),
    Part("products, few rows", 0.1, "device", "the same, where a micro-batch has few tokens"),
    Part("products, few columns", 0.1, "device", "the same, where a device has few columns"),
    Part("attention", 2.0, "device", "products of queries, keys and values"),
    Part("scores", 3.0, "device", "softmax and dropout of scores that are kept in memory"),
    Part("norms", 30.0, "device", "norms, residuals and dropout, of all tokens on each device"),
    Part("activations", 6.0, "device", "what the MLP and the heads do element by element"),
    Part("weights", 1.0, "device", "reading weights, writing their gradients"),
    Part("routing", 12.0, "device", "sorting tokens by expert and back"),
    Part("starts", 1.0, "host", "starting a layer's kernels, ms"),
    Part("tensor links", 1.5, "beside", "all-reduce of activations within a node"),
    Part("tensor hops", 1.0, "beside", "the same: one hop, 10 µs"),
    Part("tensor calls", 3.0, "beside", "the same: one call, 10 µs"),
    Part("tensor network", 0.5, "beside", "all-reduce of activations between nodes"),
    Part("expert links", 2.0, "beside", "tokens to their experts and back"),
    Part("logits", 1.5, "beside", "products with the vocabulary"),
    Part("loss", 1.0, "beside", "softmax over the vocabulary"),
    Part("pipeline network", 1.0, "beside", "activations to the next stage"),
    Part("pipeline calls", 1.0, "beside", "the same: one call, 100 µs"),
    Part("data links", 1.0, "beside", "gradients of replicas within a node"),
    Part("data network", 0.5, "beside", "gradients of replicas between nodes"),
    Part("update", 1.0, "beside", "the optimizer"),
    Part("step", 5.0, "beside", "once a step, ms"),
)
"""Priors: products at 70 % of the peak, bytes at some 60 to 100 % of the bandwidth times how often a tensor is read and
written in a layer, links at some 60 %."""


def node_link(device: DeviceSpec) -> Rate | None:
    """The links between the GPUs of a node; None of a device that has none."""
    links = device.link_bytes_per_s
    return links.get("nvlink") or links.get("infinity-fabric")


def weights_of_one(model: Transformer, layout: Layout) -> float:
    """Weights of the model that one device holds: of the first stage, with the embedding."""
    dense, experts = model.layer_weights
    embedding = model.vocab * model.dim * (2 if layout.pipeline == 1 and model.gated else 1)
    return (dense / layout.pipeline + embedding) / layout.tensor + experts / layout.pipeline / layout.expert


def gpu_parts(model: Transformer, layout: Layout, device: DeviceSpec, *, keeps_scores: bool = False) -> Parts:
    """What a step would take at the peak, part by part, on its slowest device.

    Args:
        model: the transformer.
        layout: its place on the devices.
        device: each of them.
        keeps_scores: whether attention writes its scores to memory (before FlashAttention).

    Raises:
        UsageError: the device's peaks are not known.
    """
    link, bf16 = node_link(device), device.flop_per_s.get("bf16")
    if link is None or bf16 is None:
        raise UsageError(f"the links or bf16 rate of {device.name} are not known; see `phasepoint devices`")
    peak, memory = bf16.value, device.memory_bytes_per_s.value
    one_way = link.value / 2
    tensor, stages, slots = layout.tensor, layout.pipeline, layout.slots
    tokens = layout.micro_batch * model.seq
    rows = slots * model.layers / stages  # layers that a device passes in a step
    stream = tokens * model.dim * BF16_BYTES
    products = slots * 6 * tokens * model.active_weights / stages / tensor / peak
    seen = 0.5 if model.causal else 1.0
    moe_rows = rows * (model.layers - model.dense_layers) / model.layers
    own = weights_of_one(model, layout)
    logit_slots = slots if stages == 1 else layout.micro_batches
    ring = 2 * (tensor - 1) / tensor * stream
    replica_ring = 2 * (layout.data - 1) / layout.data * own * BF16_BYTES
    crosses = layout.devices > layout.node and layout.data > 1
    active = 0 if model.experts is None else model.experts.active
    return {
        "products": products,
        "products, few rows": products * 128 / tokens,
        "products, few columns": products * 64 * tensor / model.dim,
        "attention": rows * 6 * seen * layout.micro_batch * model.seq**2 * model.attention_width / tensor / peak,
        "scores": rows * 3 * layout.micro_batch * model.heads / tensor * model.seq**2 * BF16_BYTES / memory
        if keeps_scores
        else 0.0,
        "norms": rows * stream / memory,
        "activations": rows
        * tokens
        * (model.active_mlp_dim + model.attention_width / 2)
        / tensor
        * BF16_BYTES
        / memory,
        "weights": slots * own * 3 * BF16_BYTES / memory,
        "routing": moe_rows * stream * active / memory,
        "starts": rows * 1e-3,
        "tensor links": rows * 4 * ring / one_way if 1 < tensor <= layout.node else 0.0,
        "tensor hops": rows * 4 * (tensor - 1) * 1e-5,
        "tensor calls": rows * 4 * 1e-5 if tensor > 1 else 0.0,
        "tensor network": rows * 4 * ring / NETWORK_BYTES_PER_S if tensor > layout.node else 0.0,
        "expert links": moe_rows * 4 * stream * active * (layout.expert - 1) / layout.expert / one_way,
        "logits": logit_slots * 6 * tokens * model.dim * model.vocab / tensor / peak,
        "loss": logit_slots * tokens * model.vocab / tensor * 12 / memory,
        "pipeline network": slots * 2 * stream / NETWORK_BYTES_PER_S if stages > 1 else 0.0,
        "pipeline calls": slots * 1e-4 if stages > 1 else 0.0,
        "data links": 0.0 if crosses else replica_ring / one_way,
        "data network": replica_ring / NETWORK_BYTES_PER_S * min(tensor, layout.node) if crosses else 0.0,
        "update": own * UPDATE_BYTES / memory,
        "step": 1e-3,
    }
