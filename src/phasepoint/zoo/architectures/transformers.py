"""Networks of transformers: its classes, at sizes of published models."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from phasepoint.zoo.architectures.architecture import Architecture, Inputs, floats, integers, named, seeded
from phasepoint.zoo.architectures.missing_operators import import_torchvision

LENGTH = 128
"""Tokens of a sample, a choice: a paragraph."""


class _Row(NamedTuple):
    """A network: classes of its configuration and of itself, and what differs from the configuration's defaults."""

    name: str
    task: str
    config: str
    model: str
    inputs: Inputs
    options: Mapping[str, Any]


def _tokens(bound: int) -> Inputs:
    return named(input_ids=integers(LENGTH, bound))


_ALBERT = {"embedding_size": 128, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_SMOLLM = {"vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
_SMOLLM |= {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
_QWEN = {"vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
_QWEN |= {"num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True}
_WHISPER = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
_WHISPER |= {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
_T5 = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
_MAMBA = {"hidden_size": 768, "num_hidden_layers": 24}

# Sizes as in the config.json of each published model.
_ROWS = (
    _Row("bert-base", "language", "BertConfig", "BertModel", _tokens(30_522), {}),
    _Row("distilbert-base", "language", "DistilBertConfig", "DistilBertModel", _tokens(30_522), {}),
    _Row("albert-base-v2", "language", "AlbertConfig", "AlbertModel", _tokens(30_000), _ALBERT),
    _Row("mobilebert", "language", "MobileBertConfig", "MobileBertModel", _tokens(30_522), {}),
    _Row("electra-small", "language", "ElectraConfig", "ElectraModel", _tokens(30_522), {}),
    _Row("gpt2", "language", "GPT2Config", "GPT2LMHeadModel", _tokens(50_257), {}),
    _Row("smollm-135m", "language", "LlamaConfig", "LlamaForCausalLM", _tokens(49_152), _SMOLLM),
    _Row("qwen2.5-0.5b", "language", "Qwen2Config", "Qwen2ForCausalLM", _tokens(151_936), _QWEN),
    _Row("mamba-130m", "language", "MambaConfig", "MambaForCausalLM", _tokens(50_280), _MAMBA),
    _Row(
        "t5-small",
        "translation",
        "T5Config",
        "T5Model",
        named(input_ids=integers(LENGTH, 32_128), decoder_input_ids=integers(LENGTH, 32_128)),
        _T5,
    ),
    _Row(
        "whisper-tiny",
        "speech",
        "WhisperConfig",
        "WhisperModel",
        named(input_features=floats(80, 3000), decoder_input_ids=integers(32, 51_865)),
        _WHISPER,
    ),
    _Row("wav2vec2-base", "speech", "Wav2Vec2Config", "Wav2Vec2Model", named(input_values=floats(16_000)), {}),
    _Row(
        "segformer-b0",
        "segmentation",
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        named(pixel_values=floats(3, 512, 512)),
        {"num_labels": 150},
    ),
    _Row(
        "clip-vit-b32",
        "picture and text",
        "CLIPConfig",
        "CLIPModel",
        named(input_ids=integers(77, 49_408), pixel_values=floats(3, 224, 224)),
        {},
    ),
)


def architectures() -> list[Architecture]:
    """All of them; nothing is imported before one is built."""
    return [Architecture(row.name, row.task, "transformers", seeded(partial(_build, row)), row.inputs) for row in _ROWS]


def _build(row: _Row) -> Any:
    with suppress(ImportError):  # transformers imports it where it is installed, and fails where that fails
        import_torchvision()
    import transformers

    config = getattr(transformers, row.config)(**row.options)
    config.use_cache = False  # one pass, nothing generated
    return getattr(transformers, row.model)(config)
