"""Transformers whose dimensions were published, by name.

Its own file: a table.
"""

import re

from phasepoint.scale.steps.transformer import Experts, LatentAttention, Transformer

MODELS = {
    "llama3-8b": Transformer(32, 4096, 32, 128, 8, 14_336, 128_256, 8192),
    "llama3-70b": Transformer(80, 8192, 64, 128, 8, 28_672, 128_256, 8192),
    "llama3-405b": Transformer(126, 16_384, 128, 128, 8, 53_248, 128_256, 8192),
    "llama2-7b": Transformer(32, 4096, 32, 128, 32, 11_008, 32_000, 4096),
    "llama2-70b": Transformer(80, 8192, 64, 128, 8, 28_672, 32_000, 4096),
    "mixtral-8x7b": Transformer(32, 4096, 32, 128, 8, 14_336, 32_000, 4096, experts=Experts(8, 2, 0, 14_336)),
    "deepseekv2": Transformer(
        60, 5120, 128, 128, 128, 12_288, 102_400, 4096,
        experts=Experts(160, 6, 2, 1536, 1), latent=LatentAttention(1536, 512, 128, 64, 128),
    ),
    "deepseekv3": Transformer(
        61, 7168, 128, 128, 128, 18_432, 129_280, 4096,
        experts=Experts(256, 8, 1, 2048, 1), latent=LatentAttention(1536, 512, 128, 64, 128),
    ),
}  # fmt: skip
"""Published dimensions: Llama 2 (Touvron et al., 2023), Llama 3 (Dubey et al., 2024), Mixtral (Jiang et al., 2024),
DeepSeek-V2 and V3 (2024); one dense layer in DeepSeek-V3, as the shortened models have that were measured."""


def find_model(name: str) -> Transformer | None:
    """A published model by its name; hyphens, underscores and case do not matter.

    Example:
        >>> find_model("Llama3_70B").layers
        80
    """
    plain = {re.sub(r"[^a-z0-9]", "", known): model for known, model in MODELS.items()}
    return plain.get(re.sub(r"[^a-z0-9]", "", name.lower()))
