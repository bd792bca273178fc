"""Features of kernels against values by hand."""

import numpy as np
import pytest
from hlo_texts import LOOPS, SOFTMAX, module_of_text

from phasepoint.learn.hlo_graph.features import SURROUNDING_NAMES
from phasepoint.learn.hlo_graph.graphs import (
    KERNEL_FEATURE_NAMES,
    NODE_FEATURE_NAMES,
    OPCODES,
    encode_features,
    graph_of_kernel,
)
from phasepoint.learn.hlo_graph.kernels import kernels_of_module


def graphs_of(text):
    return {kernel.name: graph_of_kernel(kernel) for kernel in kernels_of_module(module_of_text(text)).kernels}


def graph_of(line, *inputs, before=""):
    """The graph of one instruction over parameters of some shapes."""
    parameters = "\n".join(f"  p{place} = {shape} parameter({place})" for place, shape in enumerate(inputs))
    (graph,) = graphs_of(f"HloModule m\n{before}\nENTRY main {{\n{parameters}\n  ROOT r = {line} }}\n").values()
    return graph


def node(graph, opcode):
    place = [OPCODES[one] for one in graph.opcodes].index(opcode)
    return dict(zip(NODE_FEATURE_NAMES, graph.node_features[place].tolist(), strict=True))


def kernel(graph):
    return dict(zip(KERNEL_FEATURE_NAMES, graph.kernel_features.tolist(), strict=True))


def take(values, *names):
    return tuple(values[name] for name in names)


def test_a_fusion_becomes_its_body():
    graph = graphs_of(SOFTMAX)["softmax_fusion"]
    names = [OPCODES[one] for one in graph.opcodes]
    assert names == ["parameter", "parameter", "broadcast", "subtract", "exponential", "constant", "reduce"]
    assert graph.edges.tolist() == [[1, 2], [0, 3], [2, 3], [3, 4], [4, 6], [5, 6]]
    assert (graph.kind, graph.notes) == ("reduce", ())
    values = kernel(graph)
    reduce_flop = 8 * 16 - 8
    assert take(values, "flop", "elementwise_flop", "reduce_flop") == (8 * 16 + reduce_flop, 8 * 16, reduce_flop)
    assert take(values, "transcendentals", "transcendentals_exponential", "transcendentals_log") == (128, 128, 0)
    assert take(values, "bytes_read", "bytes_written", "working_set_bytes") == (4 * 136, 32, 4 * 136 + 32)
    assert take(values, "nodes", "inputs", "outputs", "depth") == (7, 2, 1, 5)
    assert take(values, "reduced_elements", "reduces_minor", "strided_elements") == (16, 1, 0)
    assert take(values, "largest_intermediate_bytes", "intermediate_bytes") == (512, 3 * 512 + 4)
    assert take(node(graph, "broadcast"), "broadcast_factor", "broadcasts_minor") == (16, 1)
    assert take(node(graph, "subtract"), "users", "operands", "is_root") == (1, 2, 0)
    root = node(graph, "reduce")
    assert take(root, "is_root", "is_output", "reduced_0", "reduced_1", "applied_instructions") == (1, 1, 1, 0, 1)


def test_layout_decides_what_is_minor():
    turned = graphs_of(SOFTMAX.replace("{1,0}", "{0,1}"))["softmax_fusion"]
    root = node(turned, "reduce")
    assert take(root, "reduced_0", "reduced_1", "reduces_minor") == (0, 1, 0)
    assert take(kernel(turned), "reduces_minor", "strided_elements") == (0, 129)
    assert take(node(turned, "subtract"), "minor_size", "second_minor_size", "layout_0", "layout_1") == (8, 16, 0, 1)


def test_copies_and_transposes_say_whether_the_innermost_dimension_moves():
    copied = graphs_of(LOOPS)["copied"]
    assert copied.kind == "copy"
    assert take(node(copied, "copy"), "moves_minor", "changes_layout") == (1, 1)
    moved = node(graph_of("f32[5,3,7]{2,1,0} transpose(p0), dimensions={1,0,2}", "f32[3,5,7]{2,1,0}"), "transpose")
    assert take(moved, "permutation_0", "permutation_1", "permutation_2") == (1, 0, 2)
    assert take(moved, "moves_minor", "changes_layout") == (0, 1)
    renamed = node(graph_of("f32[5,3]{0,1} transpose(p0), dimensions={1,0}", "f32[3,5]{1,0}"), "transpose")
    assert take(renamed, "moves_minor", "changes_layout") == (0, 0)


def test_dot_dimensions():
    graph = graph_of(
        "f32[2,8,32] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={2}",
        "f32[2,8,16]",
        "f32[2,32,16]",
    )
    names = ("dot_batch", "dot_m", "dot_n", "dot_k", "dot_lhs_k_minor", "dot_rhs_k_minor")
    assert graph.kind == "dot"
    assert take(node(graph, "dot"), *names) == take(kernel(graph), *names) == (2, 8, 32, 16, 1, 1)
    assert take(kernel(graph), "flop", "matrix_flop") == (2 * 2 * 8 * 32 * 16,) * 2


def test_convolution_window():
    graph = graph_of(
        "f32[2,4,4,6] convolution(p0, p1), window={size=3x3 stride=2x2 pad=1_0x1_0}, dim_labels=b01f_01io->b01f",
        "f32[2,8,8,5]",
        "f32[3,3,5,6]",
    )
    names = ("conv_batch", "conv_in", "conv_out", "conv_groups", "conv_output_places", "conv_kernel_places")
    assert graph.kind == "convolution"
    assert take(kernel(graph), *names) == (2, 5, 6, 1, 16, 9)
    values = node(graph, "convolution")
    assert take(values, "window_size_0", "window_stride_1", "window_padding_low_0", "window_padding_high_0") == (
        3,
        2,
        1,
        0,
    )
    assert take(values, "window_size_sum", "window_size_product", "window_stride_product") == (6, 9, 4)
    assert take(values, "conv_input_feature_minor", "conv_output_feature_minor") == (1, 1)


def test_slices_and_gathers_count_what_they_take():
    sliced = graph_of("f32[4,8] slice(p0), slice={[2:6], [0:16:2]}", "f32[8,16]")
    values = node(sliced, "slice")
    assert take(values, "slice_start_0", "slice_limit_0", "slice_limit_1", "slice_stride_1") == (2, 6, 16, 2)
    assert take(values, "taken_ratio", "takes_whole_minor", "minor_stride", "slice_stride_product") == (0.25, 0, 2, 2)
    line = (
        "f32[3,16] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,16}"
    )
    gathered = graph_of(line, "f32[1000,16]", "s32[3,1]")
    assert gathered.kind == "indexed"
    names = ("indexed_elements", "index_count", "indexes_whole_minor")
    assert take(kernel(gathered), *names) == (16, 3, 1)
    assert take(kernel(gathered), "bytes_read", "bytes_written") == (3 * 16 * 4 + 3 * 4, 3 * 16 * 4)


def test_a_gather_inside_a_fusion_does_not_read_the_whole_table():
    text = """HloModule m
fused { t = f32[1000,16] parameter(0)
  i = s32[3,1] parameter(1)
  g = f32[3,16] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,16}
  ROOT n = f32[3,16] negate(g) }
ENTRY main { t = f32[1000,16] parameter(0)
  i = s32[3,1] parameter(1)
  ROOT f = f32[3,16] fusion(t, i), kind=kLoop, calls=fused }
"""
    assert kernel(graphs_of(text)["f"])["bytes_read"] == 3 * 16 * 4 + 3 * 4


def test_costly_arithmetic_is_counted():
    assert kernel(graph_of("s32[7] divide(p0, p0)", "s32[7]"))["integer_divisions"] == 7
    values = kernel(graph_of("f32[7] divide(p0, p0)", "f32[7]"))
    assert take(values, "divisions", "integer_divisions") == (7, 0)
    assert kernel(graph_of("f64[7] negate(p0)", "f64[7]"))["is_float64"] == 1
    assert kernel(graph_of("bf16[7] negate(p0)", "bf16[7]"))["is_narrow"] == 1


def test_what_is_not_known_is_said():
    called = graph_of('f32[7] custom-call(p0), custom_call_target="mine"', "f32[7]")
    assert (called.kind, called.notes) == ("custom-call", ("operations of custom call 'mine' are not known",))
    assert kernel(called)["unknown_nodes"] == 1
    dynamic = graph_of("f32[<=7] negate(p0)", "f32[<=7]")
    assert dynamic.notes == ("a shape is dynamic: its bound is taken for its size",)


def test_an_opcode_of_tomorrow_is_said():
    module = module_of_text("HloModule m\nENTRY main {\n  p = f32[3] parameter(0)\n  ROOT r = f32[3] negate(p) }\n")
    (one,) = kernels_of_module(module).kernels
    object.__setattr__(one.instruction, "opcode", "frobnicate")
    object.__setattr__(one.nodes[-1], "opcode", "frobnicate")
    graph = graph_of_kernel(one)
    assert graph.opcodes.tolist() == [OPCODES.index("parameter"), 0]
    assert (graph.kind, graph.notes) == ("other", ("opcode 'frobnicate' is not known",))


def test_encoding_is_the_logarithm_of_sizes_and_flags_as_they_are():
    graph = graphs_of(SOFTMAX)["softmax_fusion"]
    encoded = encode_features(graph)
    at = NODE_FEATURE_NAMES.index
    assert encoded.nodes[3, at("elements")] == pytest.approx(np.log(129), rel=1e-6)
    assert encoded.nodes[6, at("is_root")] == 1
    assert encoded.kernel[KERNEL_FEATURE_NAMES.index("bytes_written")] == pytest.approx(np.log(33), rel=1e-6)
    assert encoded.kernel[KERNEL_FEATURE_NAMES.index("is_fusion")] == 1


def test_names_are_unique():
    for names in (NODE_FEATURE_NAMES, KERNEL_FEATURE_NAMES, OPCODES):
        assert len(set(names)) == len(names)


def test_a_graph_that_nothing_learns_from_lacks_surroundings_alone():
    for one in kernels_of_module(module_of_text(SOFTMAX)).kernels:
        whole, short = graph_of_kernel(one), graph_of_kernel(one, is_learned_from=False)
        around = [name in SURROUNDING_NAMES for name in KERNEL_FEATURE_NAMES]
        assert whole.kernel_features[around].any()
        assert not short.kernel_features[around].any()
        rest = np.invert(around)
        assert np.array_equal(short.kernel_features[rest], whole.kernel_features[rest])
        assert np.array_equal(short.node_features, whole.node_features)
        assert (short.fingerprint, short.kind, short.notes) == (whole.fingerprint, whole.kind, whole.notes)
