"""A transformer from the `config.json` of a Hugging Face model."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from phasepoint.core.errors import UsageError
from phasepoint.scale.steps.models import MODELS, find_model
from phasepoint.scale.steps.transformer import Experts, LatentAttention, Transformer

NOT_GATED = frozenset(
    {"bert", "bloom", "distilbert", "electra", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt"}
    | {"opt", "phi", "roberta", "starcoder2", "xlm-roberta"}
)
"""Families whose MLP has two matrices (`model_type`); all others have a gate."""

SEES_ALL = frozenset({"bert", "distilbert", "electra", "roberta", "xlm-roberta"})
"""Families that are no decoders: every token sees every other."""

_NEEDED = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "dim": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocab": ("vocab_size",),
}


def find_transformer(what: str, seq: int) -> Transformer:
    """A published model by its name (`llama3-70b`), or what a `config.json` describes.

    Raises:
        UsageError: it is neither.
    """
    known = find_model(what)
    if known is not None:
        return replace(known, seq=seq)
    if not Path(what).exists():
        names = ", ".join(MODELS)
        raise UsageError(
            f"{what}: neither a file nor a model of a name that is known ({names}); expected those, the config.json of "
            "a Hugging Face model, or a training step as in train.py:step"
        )
    return read_transformer(Path(what), seq)


def read_transformer(path: Path, seq: int) -> Transformer:
    """The transformer that a `config.json` describes.

    Args:
        path: of the file, or of the folder that holds it.
        seq: tokens of a sequence in training.

    Raises:
        UsageError: there is no such file, it is no JSON, or what makes a transformer is not in it.
    """
    path = path / "config.json" if path.is_dir() else path
    try:
        read = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected the config.json of a Hugging Face model") from error
    except ValueError as error:
        raise UsageError(f"{path}: no JSON ({error}); expected the config.json of a Hugging Face model") from error
    if not isinstance(read, dict):
        raise UsageError(f"{path}: no JSON object; expected the config.json of a Hugging Face model")
    text = read.get("text_config")
    config: Mapping[str, Any] = {**read, **text} if isinstance(text, dict) else read
    try:
        return transformer_of_config(config, seq)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def transformer_of_config(config: Mapping[str, Any], seq: int) -> Transformer:
    """The same of a config that was read.

    Raises:
        UsageError: a number that makes a transformer is missing, or is none.

    Example:
        >>> config = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "vocab_size": 50257}
        >>> transformer_of_config(config | {"model_type": "gpt2"}, 1024).mlp_dim
        3072
    """
    sizes = {what: _number(config, names, 0) for what, names in _NEEDED.items()}
    for what, size in sizes.items():
        if not size:
            raise UsageError(f"no {' or '.join(_NEEDED[what])}, which a transformer has")
    layers, dim, heads, vocab = (sizes[what] for what in ("layers", "dim", "heads", "vocab"))
    family = str(config.get("model_type", ""))
    mlp_dim = _number(config, ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 4 * dim)
    head_dim = _number(config, ("head_dim",), max(dim // heads, 1))
    key_heads = _number(config, ("num_key_value_heads", "num_kv_heads"), 1 if config.get("multi_query") else heads)
    return Transformer(
        layers=layers,
        dim=dim,
        heads=heads,
        head_dim=head_dim,
        key_heads=key_heads,
        mlp_dim=mlp_dim,
        vocab=vocab,
        seq=seq,
        gated=family not in NOT_GATED,
        causal=family not in SEES_ALL,
        experts=_experts(config, layers, mlp_dim),
        latent=_latent(config, head_dim),
    )


def _experts(config: Mapping[str, Any], layers: int, mlp_dim: int) -> Experts | None:
    count = _number(config, ("num_local_experts", "n_routed_experts", "num_experts"), 0)
    if count < 2:
        return None
    width = _number(config, ("moe_intermediate_size",), mlp_dim)
    shared = _number(config, ("n_shared_experts",), 0)
    shared += round(_number(config, ("shared_expert_intermediate_size",), 0) / width)
    active = _number(config, ("num_experts_per_tok", "num_experts_per_token"), 1)
    return Experts(count, active, shared, width, min(_number(config, ("first_k_dense_replace",), 0), layers))


def _latent(config: Mapping[str, Any], head_dim: int) -> LatentAttention | None:
    key_rank = _number(config, ("kv_lora_rank",), 0)
    if not key_rank:
        return None
    plain, rotary = _number(config, ("qk_nope_head_dim",), head_dim), _number(config, ("qk_rope_head_dim",), 0)
    value = _number(config, ("v_head_dim",), head_dim)
    return LatentAttention(_number(config, ("q_lora_rank",), 0), key_rank, plain, rotary, value)


def _number(config: Mapping[str, Any], names: tuple[str, ...], otherwise: int) -> int:
    """The first of the names that has a value; null counts as left out."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(f"{name} is {value!r}; expected a whole number")
        return value
    return otherwise
