"""A transformer from the `config.json` of a Hugging Face model."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from phasepoint.core.errors import UsageError
from phasepoint.scale.steps.models import MODELS, find_model
from phasepoint.scale.steps.transformer import Experts, LatentAttention, Transformer

GATED = ("bitnet", "gemma", "gte", "modernbert", "vaultgemma")
"""Families (how `model_type` begins) whose MLP has a gate, a third matrix, though their activation is none that tells
so: SiLU."""

SEES_ALL = frozenset({"electra", "gte", "mpnet", "nystromformer"})
"""Families that are no decoders, as those with "bert" in their names and those with token types: every token sees every
other."""

_OTHER_LAYERS = {
    "conv_L_cache": "convolutions in place of attention",
    "encoder_layers": "an encoder and a decoder",
    "head_ratio": "convolutions beside attention",
    "H_cycles": "layers that are passed several times",
    "is_encoder_decoder": "an encoder and a decoder",
    "lru_width": "recurrent layers",
    "num_codebooks": "a decoder of codebooks beside that of tokens",
    "num_decoder_layers": "an encoder and a decoder",
    "num_hidden_groups": "layers that share their weights",
    "q_groups": "projections in groups",
    "state_size": "state-space layers",
    "true_hidden_size": "bottlenecks around its layers",
    "zero_expert_num": "two attentions, and experts beside an MLP, in a layer",
}
"""What a config that has such a key, and something in it, has and a plain transformer has not."""

_OTHER_FAMILIES = {
    "jetmoe": "experts in its attention",
    "longformer": "projections of their own for global attention",
    "luke": "projections of their own for entities",
    "neomme": "layers of embeddings",
    "xlnet": "projections of positions",
    "xlstm": "recurrent layers",
    "xmod": "adapters",
}

_NEEDED = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "dim": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads"),
    "vocab": ("vocab_size",),
}
_ACTIVATION = (
    *("hidden_act", "hidden_activation", "mlp_hidden_act", "activation_function", "activation", "ff_activation"),
    *("dense_act_fn", "afn"),
)
_MLP = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "dim_ff", "dff", "d_inner")


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
    towers = [name for name in ("vision_config", "audio_config", "encoder_config") if isinstance(read.get(name), dict)]
    try:
        found = transformer_of_config(config, seq)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return replace(found, note=f"{path}: its text model alone; {', '.join(towers)} is left out" if towers else "")


def transformer_of_config(config: Mapping[str, Any], seq: int) -> Transformer:
    """The same of a config that was read.

    Raises:
        UsageError: a number that makes a transformer is missing, or is none.

    Example:
        >>> config = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "vocab_size": 50257}
        >>> transformer_of_config(config | {"model_type": "gpt2"}, 1024).mlp_dim
        3072
    """
    family = str(config.get("model_type", ""))
    other = _other_layers(config, family)
    if other:
        raise UsageError(f"it has {other}; expected a transformer whose layers are attention and an MLP, or experts")
    sizes = {what: _number(config, names, 0) for what, names in _NEEDED.items()}
    for what, size in sizes.items():
        if not size:
            raise UsageError(f"no {' or '.join(_NEEDED[what])}, which a transformer has")
    layers, dim, heads, vocab = (sizes[what] for what in ("layers", "dim", "heads", "vocab"))
    mlp_dim = _number(config, _MLP, 4 * dim)
    head_dim = _number(config, ("head_dim",), max(dim // heads, 1))
    is_one_key = bool(config.get("multi_query")) and not config.get("new_decoder_architecture")
    key_heads = 1 if is_one_key else _number(config, ("num_key_value_heads", "num_kv_heads"), heads)
    is_decoder = bool(config.get("is_decoder")) or family.endswith("decoder")
    sees_all = "bert" in family or "type_vocab_size" in config or family in SEES_ALL
    return Transformer(
        layers=layers,
        dim=dim,
        heads=heads,
        head_dim=head_dim,
        key_heads=key_heads,
        mlp_dim=mlp_dim,
        vocab=vocab,
        seq=seq,
        gated=_is_gated(config, family),
        causal=is_decoder or not sees_all,
        experts=_experts(config, layers, mlp_dim),
        latent=_latent(config, head_dim),
    )


def _other_layers(config: Mapping[str, Any], family: str) -> str:
    """What is in it that a plain transformer has not; empty: nothing that is known."""
    if family in _OTHER_FAMILIES:
        return _OTHER_FAMILIES[family]
    for key, value in config.items():
        if value and (key in _OTHER_LAYERS or key.startswith(("mamba_", "ssm_"))):
            return f"{_OTHER_LAYERS.get(key, 'state-space layers')} ({key})"
    for key in ("layer_types", "layers_block_type", "block_types"):
        kinds = config.get(key)
        for kind in kinds if isinstance(kinds, list) else ():
            if "attention" not in str(kind) or "linear" in str(kind):
                return f"layers of another kind ({key}: {kind!r})"
    return ""


def _is_gated(config: Mapping[str, Any], family: str) -> bool:
    """Whether its MLP has a gate: its activation tells, and where none is named that it has a width of its own."""
    if family.startswith(GATED):
        return True
    activation = next((str(config[key]) for key in _ACTIVATION if config.get(key)), None)
    if activation is None:
        return any(config.get(key) for key in _MLP if key not in ("dff", "n_inner"))
    return activation.lower() in ("silu", "swish") or "glu" in activation.lower()


def _experts(config: Mapping[str, Any], layers: int, mlp_dim: int) -> Experts | None:
    count = _number(config, ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"), 0)
    if count < 2 or config.get("is_moe") is False:
        return None
    width = _number(config, ("moe_intermediate_size", "expert_ffn_hidden_size"), mlp_dim)
    llama4 = int("intermediate_size_mlp" in config)  # one shared expert, which its config does not name
    shared = _number(config, ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), llama4)
    shared += round(_number(config, ("shared_expert_intermediate_size",), 0) / width)
    active = _number(config, ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), 1)
    return Experts(count, active, shared, width, min(_dense_layers(config, layers), layers))


def _dense_layers(config: Mapping[str, Any], layers: int) -> int:
    """Layers whose MLP has no experts: listed, at the beginning, or all but each n-th."""
    listed, sparse, dense = (config.get(key) for key in ("mlp_layer_types", "moe_layers", "mlp_only_layers"))
    if isinstance(listed, list):
        return listed.count("dense")
    if isinstance(sparse, list):
        return layers - len(sparse)
    first = len(dense) if isinstance(dense, list) else 0
    first += _number(config, ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"), 0)
    every = _number(config, ("decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step"), 1)
    return layers - (layers - first) // max(every, 1)


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
