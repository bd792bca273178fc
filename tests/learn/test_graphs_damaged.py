"""Modules that cannot be: whatever stands in them, kernels become finite features, and what is not known is said."""

import warnings

import numpy as np
from hlo_texts import LOOPS, SOFTMAX, proto_of_text, wrap_module
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import SourceError
from phasepoint.hlo.module import parse_module
from phasepoint.hlo.schema import load_schema
from phasepoint.learn.hlo_graph.graphs import (
    KERNEL_FEATURES,
    NODE_FEATURES,
    encode_features,
    graph_of_kernel,
    graph_of_program,
)
from phasepoint.learn.hlo_graph.kernels import kernels_of_module

MANY = """HloModule many
pick { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = pred[] compare(a, b), direction=LT }
ENTRY main { x = f32[4,6]{1,0} parameter(0)
  w = f32[6,8]{1,0} parameter(1)
  i = s32[3,1]{1,0} parameter(2)
  zero = f32[] constant(0)
  at = s32[] constant(1)
  dot = f32[4,8]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  conv = f32[4,8]{1,0} convolution(x, w), dim_labels=bf_io->bf
  window = f32[4,6]{1,0} reduce-window(x, zero), window={size=1x3 pad=0_0x1_1}, to_apply=pick
  reduced = f32[4]{0} reduce(x, zero), dimensions={1}, to_apply=pick
  turned = f32[6,4]{1,0} transpose(x), dimensions={1,0}
  cut = f32[2,3]{1,0} slice(x), slice={[0:4:2], [0:3]}
  taken = f32[3,6]{1,0} gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,6}
  put = f32[4,6]{1,0} scatter(x, i, taken), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=pick
  moving = f32[1,6]{1,0} dynamic-slice(x, at, at), dynamic_slice_sizes={1,6}
  updated = f32[4,6]{1,0} dynamic-update-slice(x, moving, at, at)
  wide = f32[4,6,5]{2,1,0} broadcast(x), dimensions={0,1}
  padded = f32[8,6]{1,0} pad(x, zero), padding=2_2x0_0
  joined = f32[8,6]{1,0} concatenate(x, put), dimensions={0}
  sorted = f32[4,6]{1,0} sort(x), dimensions={1}, to_apply=less
  back = f32[4,6]{1,0} reverse(sorted), dimensions={0}
  ROOT called = f32[4,6]{1,0} custom-call(back), custom_call_target="mine" }
"""
PROTOS = tuple(proto_of_text(text) for text in (SOFTMAX, LOOPS, MANY))


def features_of(data):
    """Every graph of a module's bytes; None where they are no module."""
    try:
        module = parse_module(wrap_module(data))
    except SourceError:
        return None
    graphs = [graph_of_kernel(kernel) for kernel in kernels_of_module(module).kernels]
    return [*graphs, graph_of_program(module)]


def check(graphs):
    for graph in graphs or ():
        n = len(graph.opcodes)
        assert graph.node_features.shape == (n, NODE_FEATURES)
        assert graph.kernel_features.shape == (KERNEL_FEATURES,)
        assert np.isfinite(graph.node_features).all()
        assert np.isfinite(graph.kernel_features).all()
        assert np.isfinite(encode_features(graph).kernel).all()
        if len(graph.edges):
            assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
            assert graph.edges.min() >= 0
            assert graph.edges.max() < n


def test_whole_modules_are_featurised():
    kinds = [graph.kind for data in PROTOS for graph in features_of(data)]
    assert set(kinds) == {
        *("reduce", "loop-fusion", "dot", "copy", "convolution", "indexed", "sort", "custom-call", "program"),
    }
    for data in PROTOS:
        check(features_of(data))


SIZES = st.sampled_from([-1, 0, 1, 3, 2**31, 2**62])
FIELDS = (
    *("dimensions", "gather_slice_sizes", "dynamic_slice_sizes", "operand_ids"),
    *("dot_dimension_numbers", "convolution_dimension_numbers", "window", "slice_dimensions", "shape"),
)


@settings(max_examples=150)
@given(st.sampled_from(PROTOS), st.data())
def test_damaged_attributes_do_not_stop_it(data, drawn):
    module = load_schema("hlo")["HloModuleProto"]()
    module.ParseFromString(data)
    instructions = [one for computation in module.computations for one in computation.instructions]
    for _ in range(drawn.draw(st.integers(1, 4))):
        one = drawn.draw(st.sampled_from(instructions))
        match drawn.draw(st.sampled_from(["clear", "dims", "layout", "opcode", "sizes"])):
            case "clear":
                one.ClearField(drawn.draw(st.sampled_from(FIELDS)))
            case "dims":
                del one.shape.dimensions[:]
                one.shape.dimensions.extend(drawn.draw(st.lists(SIZES, max_size=8)))
            case "layout":
                del one.shape.layout.minor_to_major[:]
                one.shape.layout.minor_to_major.extend(drawn.draw(st.lists(st.integers(0, 5), max_size=4)))
            case "opcode":
                one.opcode = drawn.draw(st.sampled_from(["dot", "reduce", "gather", "scatter", "fusion", "while", "x"]))
            case "sizes":
                del one.dimensions[:]
                one.dimensions.extend(drawn.draw(st.lists(SIZES, max_size=3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(features_of(module.SerializeToString()))


@settings(max_examples=100)
@given(st.sampled_from(PROTOS), st.data())
def test_damaged_bytes_do_not_stop_it(data, drawn):
    damaged = bytearray(data)
    for _ in range(drawn.draw(st.integers(1, 6))):
        damaged[drawn.draw(st.integers(0, len(damaged) - 1))] = drawn.draw(st.integers(0, 255))
    check(features_of(bytes(damaged)))


def test_fusions_that_nest_without_end_are_left_closed():
    """Each of 30 levels opens the next twice: opened, that would be 2³⁰ values."""
    levels = ["HloModule deep", "nest0 { p = f32[2] parameter(0)\n  ROOT n = f32[2] negate(p) }"]
    for level in range(1, 30):
        levels.append(
            f"nest{level} {{ p = f32[2] parameter(0)\n  a = f32[2] fusion(p), kind=kLoop, calls=nest{level - 1}\n"
            f"  ROOT b = f32[2] fusion(a), kind=kLoop, calls=nest{level - 1} }}"
        )
    levels.append("ENTRY main { p = f32[2] parameter(0)\n  ROOT f = f32[2] fusion(p), kind=kLoop, calls=nest29 }\n")
    text = "\n".join(levels)
    module = parse_module(wrap_module(proto_of_text(text)))
    (kernel,) = kernels_of_module(module).kernels
    graph = graph_of_kernel(kernel)
    assert len(graph.opcodes) < 5000
    check([graph])
