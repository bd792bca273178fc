"""How loops read, against steps worked out by hand."""

import numpy as np
import pytest
from hlo_texts import module_of_text

from phasepoint.learn.hlo_graph.access_patterns import ACCESS_NAMES, access_row
from phasepoint.learn.hlo_graph.kernels import kernels_of_module


def access(text):
    (kernel,) = kernels_of_module(module_of_text(text)).kernels
    return dict(zip(ACCESS_NAMES, access_row(kernel.nodes), strict=True))


def entry(line, *parameters):
    shapes = "\n".join(f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters))
    return f"HloModule m\nENTRY main {{\n{shapes}\n  ROOT r = {line}\n}}\n"


def test_an_elementwise_loop_reads_one_after_the_other():
    found = access(entry("f32[64,64]{1,0} add(p0, p1)", "f32[64,64]{1,0}", "f32[64,64]{1,0}"))
    assert (found["reads_unit"], found["reads_far"]) == (2.0, 0.0)
    assert found["lines_per_read"] == pytest.approx(3 / 32, abs=1 / 32)  # 128 bytes are two lines, or three
    assert found["loop_elements"] == 64 * 64


def test_a_transpose_reads_a_line_for_each_element():
    found = access(entry("f32[64,64]{1,0} transpose(p0), dimensions={1,0}", "f32[64,64]{1,0}"))
    assert (found["reads_unit"], found["reads_far"], found["lines_most"]) == (0.0, 1.0, 1.0)


def test_a_transpose_that_the_layout_undoes_reads_in_order():
    found = access(entry("f32[64,64]{0,1} transpose(p0), dimensions={1,0}", "f32[64,64]{1,0}"))
    assert (found["reads_unit"], found["reads_far"]) == (1.0, 0.0)


def test_broadcasts_read_the_same_or_in_order():
    rows = access(entry("f32[64,64]{1,0} broadcast(p0), dimensions={1}", "f32[64]{0}"))
    columns = access(entry("f32[64,64]{1,0} broadcast(p0), dimensions={0}", "f32[64]{0}"))
    assert (rows["reads_unit"], rows["reads_same"]) == (1.0, 0.0)
    assert (columns["reads_unit"], columns["reads_same"]) == (0.0, 1.0)


def test_a_slice_with_a_stride_skips():
    found = access(entry("f32[64,32]{1,0} slice(p0), slice={[0:64:1],[0:64:2]}", "f32[64,64]{1,0}"))
    assert (found["reads_unit"], found["reads_near"]) == (0.0, 1.0)


@pytest.mark.parametrize(("kept", "kind"), [(0, "reads_unit"), (1, "reads_far")])
def test_a_reduction_is_followed_along_what_it_reduces(kept, kind):
    text = f"""HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY main {{ p = f32[64,64]{{1,0}} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[64]{{0}} reduce(p, z), dimensions={{{1 - kept}}}, to_apply=sum }}
"""
    assert access(text)[kind] == 1.0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_transposes_against_numpy(order):
    """The share of steps of one element in the stretches that are followed, from an array of offsets."""
    shape = (6, 10, 32)
    offsets = np.arange(np.prod(shape)).reshape(shape).transpose(order)
    flat = offsets.ravel()
    starts = [(len(flat) - 32) * part // 3 for part in range(4)]
    unit = np.mean([np.diff(flat[start : start + 32]) == 1 for start in starts])
    out = ",".join(str(size) for size in offsets.shape)
    line = f"f32[{out}]{{2,1,0}} transpose(p0), dimensions={{{','.join(map(str, order))}}}"
    assert access(entry(line, "f32[6,10,32]{2,1,0}"))["reads_unit"] == pytest.approx(unit)
