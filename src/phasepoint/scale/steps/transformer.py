"""A transformer and how it is laid out over devices: the facts from which a step's parts follow."""

import math
from dataclasses import dataclass

from phasepoint.core.errors import UsageError

BF16_BYTES = 2
"""Of an element of bf16."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in the place of the MLP.

    Attributes:
        count: experts of a layer.
        active: that a token is sent to.
        shared: that every token passes.
        mlp_dim: width of one.
        dense_layers: layers at the beginning with a plain MLP.
    """

    count: int
    active: int
    shared: int
    mlp_dim: int
    dense_layers: int = 0


@dataclass(frozen=True)
class LatentAttention:
    """Attention through compressed queries and keys (DeepSeek-V2, 2024, section 2.1).

    Attributes:
        query_rank: width of the compressed queries; 0 where they are not compressed (DeepSeek-V2-Lite).
        key_rank: width of the compressed keys and values.
        plain_dim: of a head's queries and keys, without positions.
        rotary_dim: of a head's queries and keys, with positions.
        value_dim: of a head's values.
    """

    query_rank: int
    key_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int


@dataclass(frozen=True)
class Transformer:
    """A decoder.

    Attributes:
        layers: of the model.
        dim: width of the residual stream.
        heads: of queries.
        head_dim: width of a head.
        key_heads: heads of keys and values.
        mlp_dim: width of the MLP.
        vocab: tokens.
        seq: tokens of a sequence.
        gated: whether the MLP has a gate, a third matrix.
        causal: whether attention leaves out what is not seen, half of it.
        experts: None for a dense model.
        latent: None for plain attention.
        note: what of the model is not in it, in words.
    """

    layers: int
    dim: int
    heads: int
    head_dim: int
    key_heads: int
    mlp_dim: int
    vocab: int
    seq: int
    gated: bool = True
    causal: bool = True
    experts: Experts | None = None
    latent: LatentAttention | None = None
    note: str = ""

    @property
    def attention_weights(self) -> int:
        """Of one layer."""
        if self.latent is None:
            return self.dim * self.head_dim * (2 * self.heads + 2 * self.key_heads)
        latent = self.latent
        queries = self.heads * (latent.plain_dim + latent.rotary_dim)
        query = latent.query_rank * (self.dim + queries) if latent.query_rank else self.dim * queries
        key = self.dim * (latent.key_rank + latent.rotary_dim)
        value = latent.key_rank * self.heads * (latent.plain_dim + latent.value_dim)
        return query + key + value + self.heads * latent.value_dim * self.dim

    @property
    def attention_width(self) -> int:
        """Dimensions of queries and values of all heads together: the products of attention take s² times this."""
        if self.latent is None:
            return 2 * self.heads * self.head_dim
        return self.heads * (self.latent.plain_dim + self.latent.rotary_dim + self.latent.value_dim)

    @property
    def dense_layers(self) -> int:
        """Layers with a plain MLP."""
        return self.layers if self.experts is None else min(self.experts.dense_layers, self.layers)

    def mlp_weights(self, width: int) -> int:
        """Of one MLP of a width."""
        return (3 if self.gated else 2) * self.dim * width

    @property
    def active_mlp_dim(self) -> float:
        """Mean over the layers of the MLP's width that one token passes."""
        if self.experts is None:
            return self.mlp_dim
        moe = self.experts.mlp_dim * (self.experts.active + self.experts.shared)
        return (self.dense_layers * self.mlp_dim + (self.layers - self.dense_layers) * moe) / self.layers

    @property
    def active_weights(self) -> float:
        """Of all layers, that one token passes; embeddings apart."""
        return self.layers * (self.attention_weights + (3 if self.gated else 2) * self.dim * self.active_mlp_dim)

    @property
    def layer_weights(self) -> tuple[float, float]:
        """Of all layers: those that every device needs, and those of experts, which `expert_parallel` divides."""
        dense = self.layers * self.attention_weights + self.dense_layers * self.mlp_weights(self.mlp_dim)
        if self.experts is None:
            return dense, 0.0
        moe_layers = self.layers - self.dense_layers
        shared = moe_layers * self.mlp_weights(self.experts.mlp_dim * self.experts.shared)
        return dense + shared, moe_layers * self.experts.count * self.mlp_weights(self.experts.mlp_dim)


@dataclass(frozen=True)
class Layout:
    """How a step is spread over devices.

    Attributes:
        devices: in all.
        tensor: devices that share each matrix.
        pipeline: stages of layers.
        data: replicas.
        expert: devices that share the experts.
        micro_batch: sequences of a replica at a time.
        micro_batches: of a replica in a step.
        node: devices that fast links join.
    """

    devices: int
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    micro_batch: float = 1
    micro_batches: int = 1
    node: int = 8

    def __post_init__(self) -> None:
        if min(self.devices, self.tensor, self.pipeline, self.data, self.expert, self.micro_batches, self.node) < 1:
            raise UsageError(f"a layout is made of positive numbers; this one is {self}")
        if self.tensor * self.pipeline * self.data != self.devices:
            raise UsageError(
                f"{self.tensor} (tensor) × {self.pipeline} (pipeline) × {self.data} (data) are "
                f"{self.tensor * self.pipeline * self.data} devices, not {self.devices}"
            )
        if not math.isfinite(self.micro_batch) or self.micro_batch <= 0:
            raise UsageError(f"a micro-batch has at least one sequence; this one has {self.micro_batch}")

    @property
    def slots(self) -> int:
        """Micro-batches that pass the slowest stage, and those that it waits for: 1F1B, or GPipe."""
        return self.micro_batches + self.pipeline - 1
