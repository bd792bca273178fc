"""Steps in closed form: published sizes of models, parts that scale as they must, constants that are found again."""

from dataclasses import replace

import numpy as np
import pytest

from phasepoint.core.errors import UsageError
from phasepoint.devices.specs import device_spec
from phasepoint.scale.steps.constants import Part, fit_constants, shipped_constants, step_parts_s, step_s
from phasepoint.scale.steps.gpu import GPU_PARTS, gpu_parts
from phasepoint.scale.steps.models import MODELS, find_model
from phasepoint.scale.steps.products import PRODUCT_PARTS, product_parts
from phasepoint.scale.steps.tpu import TPU_PARTS, counted_flop, tpu_parts
from phasepoint.scale.steps.transformer import Layout, Transformer
from phasepoint.scale.validate.steps import STEP_FILES

A100, V5P = device_spec("NVIDIA A100-SXM4-80GB"), device_spec("TPU v5p")
SMALL = Transformer(24, 2048, 16, 128, 16, 8192, 51_200, 1024, gated=False, causal=False)


def dense_experts(model, layers):
    return replace(model, experts=replace(model.experts, dense_layers=layers))


@pytest.mark.parametrize(
    ("model", "billions", "active"),
    [
        (MODELS["llama3-8b"], 8.03, 8.03),
        (MODELS["llama3-70b"], 70.6, 70.6),
        (MODELS["llama3-405b"], 405.8, 405.8),
        (MODELS["llama2-7b"], 6.74, 6.74),
        (MODELS["mixtral-8x7b"], 46.7, 12.9),
        (MODELS["deepseekv2"], 235.7, 21.4),
        (dense_experts(MODELS["deepseekv3"], 3), 671.0, 37.5),
    ],
)
def test_weights_are_those_that_are_published(model, billions, active):
    vocabulary = 2 * model.vocab * model.dim
    assert (sum(model.layer_weights) + vocabulary) / 1e9 == pytest.approx(billions, rel=0.01)
    assert (model.active_weights + vocabulary) / 1e9 == pytest.approx(active, rel=0.03)


def test_a_models_name_is_found_however_it_is_written():
    assert find_model("LLaMA3_405B") is MODELS["llama3-405b"]
    assert find_model("gpt-9") is None


def test_parts_add_up_to_the_step_and_overlap_shortens_it():
    table = (Part("a", 1.0, "device", ""), Part("b", 1.0, "host", ""), Part("c", 1.0, "beside", ""))
    parts = {"a": 3.0, "b": 4.0, "c": 1.0}
    each = step_parts_s(parts, {}, table)
    assert sum(each.values()) == step_s(parts, {}, table) == pytest.approx((3**4 + 4**4) ** 0.25 + 1)
    assert step_parts_s({"c": 2.0}, {}, table) == {"a": 0.0, "b": 0.0, "c": 2.0}


def test_constants_that_made_the_steps_are_found_again():
    random = np.random.default_rng(0)
    table = (Part("a", 1.0, "device", ""), Part("b", 1.0, "host", ""), Part("c", 1.0, "beside", ""))
    made = {"a": 1.7, "b": 0.8, "c": 1.3}
    rows = [dict(zip("abc", random.lognormal(sigma=1.5, size=3), strict=True)) for _ in range(200)]
    found = fit_constants(rows, [step_s(row, made, table) for row in rows], table)
    assert found == {name: pytest.approx(value, rel=0.02) for name, value in made.items()}


def test_a_constant_that_no_step_shows_stays_at_its_prior():
    table = (Part("a", 1.0, "device", ""), Part("b", 3.0, "beside", ""))
    assert fit_constants([{"a": 1.0}], [1.2], table)["b"] == pytest.approx(3.0)


# Parts on GPUs


def of(**layout):
    devices = layout.get("tensor", 1) * layout.get("pipeline", 1) * layout.get("data", 1)
    return gpu_parts(SMALL, Layout(devices, micro_batch=4, micro_batches=8, **layout), A100, keeps_scores=True)


def test_one_gpu_talks_to_nobody():
    alone = of()
    talk = [name for name in alone if any(word in name for word in ("links", "network", "hops", "calls"))]
    assert {name: alone[name] for name in talk} == dict.fromkeys(talk, 0.0)
    flop = 6 * 32 * 1024 * 24 * 12 * 2048**2
    assert alone["products"] == pytest.approx(flop / 312e12)
    assert alone["attention"] == pytest.approx(24 * 8 * 12 * 4 * 1024**2 * 2048 / 312e12)


def test_tensor_parallelism_divides_the_products_and_not_the_norms():
    alone, shared = of(), of(tensor=4)
    for name in ("products", "attention", "scores", "activations", "logits"):
        assert shared[name] == pytest.approx(alone[name] / 4), name
    assert shared["norms"] == alone["norms"]
    ring = 24 * 8 * 4 * 2 * (3 / 4) * 4 * 1024 * 2048 * 2
    assert shared["tensor links"] == pytest.approx(ring / 300e9)


def test_a_pipeline_waits_to_be_filled():
    alone, staged = of(), of(pipeline=4)
    assert staged["products"] == pytest.approx(alone["products"] / 4 * (8 + 3) / 8)


def test_gradients_cross_the_network_where_replicas_do():
    inside, outside = of(data=8), of(data=16)
    assert (inside["data links"] > 0, inside["data network"]) == (True, 0)
    assert (outside["data links"], outside["data network"] > 0) == (0, True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devices": 8, "tensor": 2}, "are 2 devices, not 8"),
        ({"devices": 0}, "made of positive numbers"),
        ({"devices": 1, "micro_batch": 0}, "has at least one sequence"),
        ({"devices": 1, "micro_batch": float("nan")}, "has at least one sequence"),
    ],
)
def test_layouts_that_cannot_be(given, message):
    with pytest.raises(UsageError, match=message):
        Layout(**given)


def test_devices_without_known_links_are_refused():
    with pytest.raises(UsageError, match="links or bf16 rate of TPU v5p are not known"):
        gpu_parts(SMALL, Layout(1), V5P)
    with pytest.raises(UsageError, match="are not known; see `phasepoint devices`"):
        tpu_parts(SMALL, A100, chips=4)


# Parts on TPUs


def test_a_full_recomputation_is_a_third_more_products():
    full, none = (tpu_parts(SMALL, V5P, chips=64, remat=remat) for remat in ("full", "none"))
    assert full["recomputed"] == pytest.approx(full["products"] / 3)
    assert none["recomputed"] == 0
    assert full["attention"] == pytest.approx(none["attention"] * 4 / 3)


def test_slices_cost_what_goes_between_them():
    one, two = (tpu_parts(SMALL, V5P, chips=64, slices=slices) for slices in (1, 2))
    assert (one["slices"], one["waits for slices"]) == (0, 0)
    assert two["slices"] > 0


def test_maxtexts_flop_of_a_step():
    tokens = 4096
    weights = 24 * (4 * 2048**2 + 2 * 2048 * 8192) + 2048 * 51_200
    assert counted_flop(SMALL, tokens) == 6 * tokens * weights + 12 * 24 * 2048 * 1024 * tokens


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"chips": 10, "slices": 3}, "10 chips can't be divided into 3 slices"),
        ({"chips": 8, "tensor": 3}, "groups of 3"),
        ({"chips": 8, "remat": "some"}, "remat is full, minimal or none, not 'some'"),
    ],
)
def test_pods_that_cannot_be(given, message):
    with pytest.raises(UsageError, match=message):
        tpu_parts(SMALL, V5P, **given)


def test_products_are_arithmetic_or_memory():
    v6e = device_spec("TPU v6e")
    parts = product_parts(1024, 2048, 512, "bfloat16", v6e)
    assert parts["bfloat16"] == pytest.approx(2 * 1024 * 2048 * 512 / 918e12)
    assert parts["memory"] == pytest.approx(2 * (1024 * 512 + 512 * 2048 + 1024 * 2048) / 1638e9)
    with pytest.raises(UsageError, match="products of float64"):
        product_parts(1, 1, 1, "float64", v6e)


# Constants of the package


def test_every_file_has_its_constants_and_says_where_they_are_from():
    tables = {"GPU": GPU_PARTS, "TPU": TPU_PARTS, "products": PRODUCT_PARTS}
    assert len(tables) == 3
    for row in STEP_FILES:
        held = shipped_constants()[row.constants]
        assert set(held["constants"]) == {part.name for part in row.table}
        assert held["points"] > 10
        assert held["file"] == row.file
