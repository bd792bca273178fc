"""Layouts of transformers: what configs describe, what memory holds, and that no layout is faster than the one told."""

import json
from dataclasses import replace
from itertools import product

import pytest

from phasepoint.core.errors import UsageError
from phasepoint.scale.plan.layouts import (
    divisors,
    gpu_layouts,
    notes_of,
    parse_machine,
    plan_layouts,
    plan_sizes,
    tpu_layouts,
)
from phasepoint.scale.plan.whole import Hazards, RunAsked
from phasepoint.scale.steps.constants import shipped_constants, step_s
from phasepoint.scale.steps.gpu import GPU_PARTS, gpu_parts
from phasepoint.scale.steps.hugging_face import find_transformer, transformer_of_config
from phasepoint.scale.steps.memory import RUNTIME_BYTES, gpu_memory, tpu_memory
from phasepoint.scale.steps.models import MODELS
from phasepoint.scale.steps.transformer import Layout, Transformer

GPT = Transformer(24, 2048, 16, 128, 16, 8192, 51_200, 1024, gated=False, causal=False)

# Published configurations, as they stand in `config.json`.
CONFIGS = {
    "llama3-8b": {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2, "head_dim": None,
    },
    "deepseekv2": {
        "model_type": "deepseek_v2", "hidden_size": 5120, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 12288, "vocab_size": 102400, "n_routed_experts": 160,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_describes_the_published_model(name):
    read, known = transformer_of_config(CONFIGS[name], MODELS[name].seq), MODELS[name]
    assert read.layer_weights == known.layer_weights
    assert read.active_weights == known.active_weights
    assert read.attention_width == known.attention_width


def test_gpt2_has_an_mlp_of_two_matrices_and_its_own_names():
    config = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_inner": None}
    small = transformer_of_config(config, 1024)
    assert (small.gated, small.causal, small.mlp_dim, small.head_dim) == (False, True, 3072, 64)
    assert sum(small.layer_weights) / 1e6 == pytest.approx(85, rel=0.01)  # of 124 million, without the embeddings


def test_queries_that_are_not_compressed():
    lite = CONFIGS["deepseekv2"] | {"q_lora_rank": None}
    queries = 5120 * 128 * (128 + 64)
    compressed = 1536 * (5120 + 128 * (128 + 64))
    read = transformer_of_config(lite, 4096)
    assert read.attention_weights - MODELS["deepseekv2"].attention_weights == queries - compressed


def test_a_text_model_inside_another(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "any", "text_config": CONFIGS["llama3-8b"]}))
    assert find_transformer(str(tmp_path), 100).layer_weights == MODELS["llama3-8b"].layer_weights
    assert find_transformer("Llama3_8B", 100).seq == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"hidden_size": 8}', "no num_hidden_layers or n_layer"),
        ('{"hidden_size": "8", "num_hidden_layers": 2}', "hidden_size is '8'; expected a whole number"),
    ],
)
def test_files_that_are_no_config(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        find_transformer(str(path), 128)
    with pytest.raises(UsageError, match="neither a file nor a model of a name that is known"):
        find_transformer("gpt-9", 128)


# Memory


def test_a_layer_keeps_what_the_paper_says():
    """Korthikanti et al., 2022, equations 1 and 4: s b h / t (34 + 5 a s / h), with sequence parallelism."""
    dim, heads, seq = GPT.dim, GPT.heads, GPT.seq
    for tensor, micro in product((1, 2, 8), (1, 4)):
        layout = Layout(tensor, tensor=tensor, micro_batch=micro)
        kept = gpu_memory(GPT, layout, keeps_scores=True)["kept for the backward pass"]
        expected = seq * micro * dim / tensor * (34 + 5 * heads * seq / dim)
        assert kept == pytest.approx(GPT.layers * expected)


def test_where_it_is_done_again_a_layer_keeps_what_goes_into_it():
    layout = Layout(2, tensor=2, micro_batch=4)
    again, kept = gpu_memory(GPT, layout, recomputes=True), gpu_memory(GPT, layout)
    assert again["kept for the backward pass"] == GPT.layers * 4 * GPT.seq * GPT.dim * 2 / 2
    assert again["a layer's backward pass"] == pytest.approx(kept["kept for the backward pass"] / GPT.layers)


def test_the_first_stage_holds_as_many_micro_batches_as_there_are_stages():
    alone = gpu_memory(GPT, Layout(1, micro_batches=8))["kept for the backward pass"]
    staged = gpu_memory(GPT, Layout(4, pipeline=4, micro_batches=8))["kept for the backward pass"]
    few = gpu_memory(GPT, Layout(4, pipeline=4, micro_batches=2))["kept for the backward pass"]
    assert staged == pytest.approx(alone)
    assert few == pytest.approx(alone / 2)


def test_adam_takes_sixteen_or_eighteen_bytes_a_weight():
    model = MODELS["llama3-8b"]
    weights = sum(model.layer_weights) + 2 * model.vocab * model.dim
    tpu = tpu_memory(model, chips=64, slices=1, tensor=4, sequences_per_chip=1, remat="full")
    assert sum(tpu[name] for name in ("weights", "optimizer", "gradients")) == pytest.approx(16 * weights / 64)
    gpu = gpu_memory(model, Layout(1))
    assert sum(gpu[name] for name in ("weights", "optimizer", "gradients")) == pytest.approx(18 * weights)
    assert tpu["runtime"] == RUNTIME_BYTES["tpu"]


def test_less_is_kept_the_more_is_done_again():
    kept = [
        tpu_memory(GPT, chips=8, slices=1, tensor=1, sequences_per_chip=1, remat=remat)["kept for the backward pass"]
        for remat in ("none", "minimal", "full")
    ]
    assert kept == sorted(kept, reverse=True)
    assert kept[2] == GPT.layers * GPT.seq * GPT.dim * 2


# Layouts


def test_no_legal_layout_of_gpus_is_faster():
    """Every layout is tried by loops over all degrees, and priced by the functions beneath."""
    machine, batch = parse_machine("32*H100 SXM5"), 64
    constants = shipped_constants()["Megatron on 8 B200"]["constants"]
    best = None
    for tensor, pipeline, data, micro in product(range(1, 9), range(1, 33), range(1, 33), (1, 2, 4, 8, 16)):
        if tensor * pipeline * data != 32 or GPT.layers % pipeline or GPT.heads % tensor or batch % (data * micro):
            continue
        layout = Layout(32, tensor, pipeline, data, 1, micro, batch // (data * micro), node=8)
        if sum(gpu_memory(GPT, layout).values()) <= machine.memory_bytes:
            seconds = step_s(gpu_parts(GPT, layout, machine.device), constants, GPU_PARTS)
            best = min(best or (seconds, layout), (seconds, layout), key=lambda pair: pair[0])
    (plan,) = plan_layouts(GPT, machine, [batch], top=1000)
    told = min(plan.best, key=lambda row: row.step_ps)
    assert told.step_ps == pytest.approx(best[0] * 1e12, rel=1e-9)
    assert told.layout["tensor"] == best[1].tensor
    assert told.layout["pipeline"] == best[1].pipeline
    assert told.layout["micro-batch"] == best[1].micro_batch
    assert told.layout["recompute"] == "no"
    assert plan.best[0].step_ps <= 1.01 * told.step_ps


def test_a_row_closes():
    for machine, model in (("2*tpu-v5p:8x8x4", MODELS["llama3-70b"]), ("16*B200", MODELS["mixtral-8x7b"])):
        (plan,) = plan_layouts(model, parse_machine(machine), [512])
        for row in plan.best:
            assert row.step_ps == sum(row.parts_ps.values())
            assert row.memory_bytes == sum(row.memory.values()) <= row.limit_bytes
            assert row.low_ps < row.step_ps < row.high_ps
            assert row.tokens_per_s == pytest.approx(512 * model.seq * 1e12 / row.step_ps)
            assert 0.05 < row.utilization < 0.95
            assert row.limited_by in row.parts_ps
        assert plan.best[0].step_ps <= 1.01 * min(row.step_ps for row in plan.best)
        assert plan.fitting <= plan.priced


def test_what_does_not_fit_says_what_needs_least():
    (plan,) = plan_layouts(MODELS["llama3-405b"], parse_machine("8*H100 SXM5"), [8])
    assert not plan.best
    assert plan.fitting == 0
    assert plan.smallest.memory_bytes > plan.smallest.limit_bytes


def test_a_faster_layout_that_lacks_memory_is_told():
    (plan,) = plan_layouts(MODELS["llama2-7b"], parse_machine("tpu-v5e:4x4"), [16])
    assert plan.faster.step_ps < plan.best[0].step_ps
    assert not plan.faster.fits


def test_stages_need_not_divide_the_layers():
    """126 layers in 16 stages of eight, as Llama 3's largest model was trained: two places stay empty."""
    machine, model = parse_machine("2048*H100 SXM5"), MODELS["llama3-405b"]

    def staged(model):
        (plan,) = plan_layouts(model, machine, [2048], top=10_000)
        return {str(row.layout): row.step_ps for row in plan.best if row.layout["pipeline"] == 16}

    assert staged(model)
    assert staged(model) == staged(replace(model, layers=128))


def test_groups_of_chips_have_whole_sequences():
    machine = parse_machine("tpu-v5p:8x8x8")
    assert {layout["tensor"] for layout in tpu_layouts(GPT, machine, 128)} == {4, 8, 16}
    assert list(tpu_layouts(GPT, machine, 16)) == []
    with pytest.raises(UsageError, match="no layout divides a batch of 16 among 512 devices"):
        plan_layouts(GPT, machine, [16])
    assert not list(gpu_layouts(GPT, parse_machine("7*H100 SXM5"), 5))


def test_a_hundred_thousand_chips_are_a_closed_form():
    machine = parse_machine("17*tpu-v5p:16x16x24")
    (plan,) = plan_layouts(MODELS["llama3-405b"], machine, [machine.devices // 8])
    assert machine.devices == 104_448
    assert plan.best


def test_a_run_goes_with_its_layout():
    run = RunAsked(1e6, 60.0, Hazards(10.0, 300.0, 264 * 86400.0), 2.0)
    (plan,) = plan_layouts(MODELS["llama3-8b"], parse_machine("tpu-v5p:4x4x4"), [128], run=run)
    best = plan.best[0]
    assert best.run.steps == pytest.approx(-(-(10**6) // 128) * best.step_ps / 1e12)
    assert best.cost == pytest.approx(2.0 * 64 * best.run.wall / 3600)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0*H100", "'0' is no number of devices"),
        ("x*H100", "'x' is no number of devices"),
        ("8*Abacus", "is no slice of TPUs"),
        ("8*H100", "there are H100 PCIe, H100 NVL, H100 SXM5: say which"),
        ("8*NVIDIA L4", "layouts are priced on TPUs and on GPUs with NVLink; L4 is neither"),
        ("tpu-v5p:99x1x1", "the torus of TPU v5p has 3 axes"),
    ],
)
def test_devices_that_are_none(text, message):
    with pytest.raises(UsageError, match=message):
        parse_machine(text)


def test_notes_say_where_constants_are_from():
    assert notes_of(parse_machine("tpu-v5p:4x4x4")) == []
    assert notes_of(parse_machine("8*B200")) == []
    assert "no step was measured on H100 SXM5" in notes_of(parse_machine("8*H100 SXM5"))[0]
    assert "between nodes" in notes_of(parse_machine("16*B200"))[0]
    assert divisors(12, 6) == [1, 2, 3, 4, 6]


def test_sizes_are_halved_as_long_as_a_layout_fits():
    machine = parse_machine("2*tpu-v5p:8x8x4")
    sizes = plan_sizes(MODELS["llama3-70b"], machine, 512)
    assert [devices for devices, _ in sizes] == sorted({devices for devices, _ in sizes})
    assert sizes[-1][0] == 512
    assert all(row.fits for _, row in sizes)
    for devices, row in sizes:
        if devices == 256:  # one slice
            (plan,) = plan_layouts(MODELS["llama3-70b"], parse_machine("tpu-v5p:8x8x4"), [512])
            assert row.step_ps == plan.best[0].step_ps
