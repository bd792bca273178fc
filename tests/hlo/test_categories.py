import pytest

from phasepoint.hlo.categories import category_of_name, category_of_opcode, strip_clone_suffix


@pytest.mark.parametrize(
    ("opcode", "category"),
    [
        ("dot", "compute"),
        ("convolution", "compute"),
        ("fusion", "compute"),
        ("while", "compute"),
        ("all-reduce", "communication"),
        ("all-reduce-start", "communication"),
        ("collective-permute-done", "communication"),
        ("send", "communication"),
        ("copy", "data_movement"),
        ("copy-start", "data_movement"),
        ("transpose", "data_movement"),
        ("infeed", "data_movement"),
        ("an opcode of tomorrow", "compute"),
    ],
)
def test_category_of_opcode(opcode, category):
    assert category_of_opcode(opcode) == category


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("%all-reduce-start.12", "communication"),
        ("copy.5", "data_movement"),
        ("copy_bitcast_fusion.3", "data_movement"),
        ("wrapped_transpose", "data_movement"),
        ("wrapped_transpose_fusion", "data_movement"),
        ("multiply_reduce_fusion", "compute"),
        ("copy_add_fusion", "compute"),
        ("MemcpyH2D", "data_movement"),
        ("Memset (Device)", "data_movement"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("gemm_fusion_dot.5", "compute"),
        ("", "compute"),
    ],
)
def test_category_of_name(name, category):
    assert category_of_name(name) == category


def test_strip_clone_suffix():
    assert strip_clone_suffix("%copy.12.clone.1") == "copy"
    assert strip_clone_suffix("dot") == "dot"
