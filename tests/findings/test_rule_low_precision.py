"""LOW-PRECISION: f32 and f64 products on devices with faster types, memory-bound ones, narrow ones, unknown devices."""

import pytest
from device_runs import inside_ps, instruction, view_of_ops
from planted_runs import check_finding, within

from phasepoint.devices import device_spec
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.device.low_precision import find

STEP_S = 0.030
A100 = {"device": "gpu:0", "level": "kernel", "devices": ("gpu:0 NVIDIA A100-SXM4-80GB",)}


def product(kind, *, m=4096, n=4096, k=4096, width=4):
    flop, size = 2 * m * n * k, width * (m * k + k * n + m * n)
    inner = {"computation": "fused"}
    return [
        instruction("left", "parameter", f"{kind}[{m},{k}]{{1,0}}", **inner),
        instruction("right", "parameter", f"{kind}[{k},{n}]{{1,0}}", **inner),
        instruction("dot.1", "dot", f"{kind}[{m},{n}]{{1,0}}", "left", "right", flop=flop, bytes=size, **inner),
        instruction("gemm_fusion", "fusion", f"{kind}[{m},{n}]{{1,0}}", calls=["fused"], flop=flop, bytes=size),
    ]


def count_for(share, flop, flop_per_s):
    return max(round(share * STEP_S * flop_per_s / flop), 1)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("efficiency", [0.5, 0.8])
def test_f32_products_on_a_gpu_are_claimed_by_the_roofline(tmp_path, share, efficiency):
    rates = device_spec("NVIDIA A100-SXM4-80GB").flop_per_s
    count = count_for(share, 2 * 4096**3, efficiency * rates["tf32"].value)
    view = view_of_ops(tmp_path, {"gemm_fusion": ("compute", share)}, product("f32"), count=count, **A100)
    (found,) = find(view)
    check_finding(view, found)
    saved = 1 - rates["tf32"].value / rates["bf16"].value
    assert within(found.claim.total_ps, saved * share * inside_ps(view), 0.1)


def test_f64_on_a_cpu_takes_twice_the_time(tmp_path):
    view = view_of_ops(tmp_path, {"gemm_fusion": ("compute", 0.4)}, product("f64", width=8))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.2 * inside_ps(view), 0.05)
    assert "f64" in found.title


def test_what_memory_bounds_or_hardly_works_or_is_narrow_is_told_nothing(tmp_path):
    thin = product("f32", m=8)
    flop = 2 * 8 * 4096 * 4096
    for name, rows, count in (
        ("memory", thin, count_for(0.8, flop, 0.5 * 156e12)),
        ("slow", product("f32"), 1),
        ("narrow", product("bf16", width=2), count_for(0.8, 2 * 4096**3, 200e12)),
    ):
        view = view_of_ops(tmp_path / name, {"gemm_fusion": ("compute", 0.8)}, rows, count=count, **A100)
        assert find(view) == []


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_pytorchs_kernels_tell_their_type_by_name(tmp_path, share):
    shares = {"ampere_sgemm_128x64_tn": ("compute", share), "sm80_xmma_gemm_tf32f32_tf32f32_f32": ("compute", 0.2)}
    view = view_of_ops(tmp_path, shares, program=None, **A100)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.75 * share * inside_ps(view), 0.05)  # a quarter: half of 156 / 19.5
    assert found.confidence == "low"
    assert found.layers == ("ampere_sgemm_128x64_tn",)


def test_unknown_devices_and_captures_without_types_say_so(tmp_path):
    with pytest.raises(Unavailable, match="no peak rates are known for device 'cpu:0 cpu'"):
        find(view_of_ops(tmp_path / "cpu", {"gemm_fusion": ("compute", 0.8)}, product("f32")))
    with pytest.raises(Unavailable, match="recorded without shapes"):
        find(view_of_ops(tmp_path / "torch", {"aten::mm": ("compute", 0.8)}, program=None))
