"""Configs of many families beside the weights that the library itself gives such a model."""

import json

import pytest

from phasepoint.core.errors import UsageError
from phasepoint.scale.steps.hugging_face import read_transformer, transformer_of_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FAMILIES = [
    "Llama", "Mistral", "Mixtral", "Gemma", "Gemma2", "Gemma3Text", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe",
    "DeepseekV2", "DeepseekV3", "Phi", "Phi3", "Olmo", "Olmo2", "Granite", "Cohere", "StableLm", "Starcoder2",
    "GPT2", "GPTNeoX", "GPTJ", "OPT", "Bloom", "Falcon", "Mpt", "CodeGen", "BioGpt", "Persimmon", "Apertus",
    "Arcee", "GptOss", "Glm4Moe", "Ernie4_5_Moe", "AriaText", "XGLM", "CTRL", "BitNet", "Bert", "Roberta",
    "Camembert", "ModernBert", "Deberta", "MPNet",
]  # fmt: skip
OTHERS = {
    "T5": "an encoder and a decoder", "Bart": "an encoder and a decoder", "Mamba2": "state-space layers",
    "Jamba": "state-space layers", "RecurrentGemma": "recurrent layers", "Lfm2": "convolutions",
    "Zamba2": "state-space", "Qwen3Next": "'linear_attention'", "Albert": "share their weights",
    "Longformer": "global attention",
}  # fmt: skip
BUILT = {"Gemma3Text": "Gemma3ForCausalLM", "AriaText": "AriaTextForCausalLM", "CTRL": "CTRLLMHeadModel"}
BUILT |= {"GPT2": "GPT2LMHeadModel"}


def config_of(family):
    maker = getattr(transformers, f"{family}Config", None)
    if maker is None:
        pytest.skip(f"this version of transformers has no {family}")
    config = maker()
    return config, {"model_type": config.model_type} | json.loads(config.to_json_string(use_diff=False))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_has_the_weights_of_its_model(family):
    config, read = config_of(family)
    model = transformer_of_config(read, 2048)
    names = (BUILT.get(family, ""), f"{family}ForCausalLM", f"{family}ForMaskedLM")
    build = next(getattr(transformers, name) for name in names if hasattr(transformers, name))
    try:
        with torch.device("meta"):
            weights = dict(build(config).named_parameters())
    except (AttributeError, TypeError) as error:
        pytest.skip(f"its default config is not whole in this version: {error}")
    real = sum(
        weight.numel()
        for name, weight in weights.items()
        if weight.ndim > 1 and model.vocab not in weight.shape and "embed" not in name
    )
    assert sum(model.layer_weights) == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("family", OTHERS)
def test_what_is_no_plain_transformer_is_refused(family):
    with pytest.raises(UsageError, match=f"it has .*{OTHERS[family]}.*; expected a transformer whose layers are"):
        transformer_of_config(config_of(family)[1], 2048)


def test_the_text_model_of_a_larger_one_is_told(tmp_path):
    text = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 32}}))
    assert read_transformer(path, 128).note == f"{path}: its text model alone; vision_config is left out"
    path.write_text(json.dumps(text))
    assert not read_transformer(path, 128).note
