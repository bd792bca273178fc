"""DATA-MOVEMENT: planted copies, transposes and transfers; what cannot go; clean runs."""

import pytest
from device_runs import inside_ps, instruction, view_of_ops
from planted_runs import check_finding, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.device.data_movement import find

WORK = {"dot.1": ("compute", 0.5)}


def transposed(op_name):
    """A fusion of a transpose and a copy, as XLA makes them."""
    inner = {"computation": "fused", "category": "data_movement", "op_name": op_name}
    return [
        instruction("dot.1", "dot", "f32[64,64]{1,0}"),
        instruction("copy_fusion", "fusion", "f32[64,64]{1,0}", "dot.1", calls=["fused"], category="data_movement"),
        instruction("param", "parameter", "f32[64,64]{1,0}", **inner | {"op_name": None}),
        instruction("transpose.1", "transpose", "f32[64,64]{0,1}", "param", **inner),
        instruction("copy.1", "copy", "f32[64,64]{1,0}", "transpose.1", **inner),
    ]


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_transposes_of_the_program_are_claimed_as_they_cost(tmp_path, share):
    shares = WORK | {"copy_fusion": ("data_movement", share)}
    view = view_of_ops(tmp_path, shares, transposed("jit(step)/transpose"))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * inside_ps(view), 0.05)
    assert found.low_ps <= share * inside_ps(view) <= found.high_ps
    assert found.claim.part == "data_movement"
    assert "layout" in found.remedy


def test_what_the_compiler_put_in_counts_on_accelerators_alone(tmp_path):
    shares = WORK | {"copy_fusion": ("data_movement", 0.2)}
    assert find(view_of_ops(tmp_path / "cpu", shares, transposed(None))) == []
    (found,) = find(view_of_ops(tmp_path / "gpu", shares, transposed(None), device="gpu:0", level="kernel"))
    assert found.claim.total_ps > 0


@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("op", ["aten::copy_", "Memcpy HtoD (Pageable -> Device)", "void nchwToNhwcKernel<float>"])
def test_pytorchs_copies_are_known_by_name(tmp_path, op, share):
    shares = {"aten::mm": ("compute", 0.5), op: ("data_movement", share), "aten::cat": ("data_movement", 0.1)}
    view = view_of_ops(tmp_path, shares, program=None)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * inside_ps(view), 0.05)
    assert ("pin_memory" in found.remedy) == op.startswith("Memcpy")


@pytest.mark.parametrize("op", ["aten::cat", "aten::index_select", "aten::transpose", "aten::fill_", "aten::view"])
def test_what_cannot_go_is_not_claimed(tmp_path, op):
    shares = {"aten::mm": ("compute", 0.5), op: ("data_movement", 0.3)}
    assert find(view_of_ops(tmp_path, shares, program=None)) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_run_is_told_nothing(tmp_path, seed):
    shares = {"aten::mm": ("compute", 0.8), "aten::copy_": ("data_movement", 0.005)}
    assert find(view_of_ops(tmp_path, shares, program=None, seed=seed)) == []


def test_without_windows_it_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match="at least 1 is needed: record a longer job"):
        find(view_of(tmp_path, (steps_of([10**10] * 30), {})))
