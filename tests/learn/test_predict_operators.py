"""HLO kernels as operators, and the times that a model of operators gives them."""

from dataclasses import dataclass

import numpy as np
import pytest
from hlo_texts import module_of_text

from phasepoint.core.errors import ModelError
from phasepoint.devices import device_spec
from phasepoint.learn.hlo_graph.graphs import graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.operators.work import Operator, work_of_operators
from phasepoint.learn.predict import gpu as predict_gpu
from phasepoint.learn.predict.gpu import operator_of_kernel
from phasepoint.learn.predict.types import Asked

DOT = """HloModule d
ENTRY main { x = {lhs} parameter(0)
  w = {rhs} parameter(1)
  ROOT y = {out} dot(x, w), {dims} }
"""

CONV = """HloModule c
ENTRY main { x = f32[8,28,28,64]{3,2,1,0} parameter(0)
  w = f32[3,3,64,128]{3,2,1,0} parameter(1)
  ROOT y = f32[8,14,14,128]{3,2,1,0} convolution(x, w), window={size=3x3 stride=2x2 pad=0_1x0_1},
    dim_labels=b01f_01io->b01f }
"""

SOFTMAX = """HloModule s
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
fused { p = f32[64,512]{1,0} parameter(0)
  low = f32[] constant(-inf)
  m = f32[64]{0} reduce(p, low), dimensions={1}, to_apply=max
  mb = f32[64,512]{1,0} broadcast(m), dimensions={0}
  s = f32[64,512]{1,0} subtract(p, mb)
  e = f32[64,512]{1,0} exponential(s)
  t = f32[64]{0} reduce(e, low), dimensions={1}, to_apply=max
  tb = f32[64,512]{1,0} broadcast(t), dimensions={0}
  ROOT d = f32[64,512]{1,0} divide(e, tb) }
ENTRY main { x = f32[64,512]{1,0} parameter(0)
  ROOT f = f32[64,512]{1,0} fusion(x), kind=kLoop, calls=fused }
"""

ADD = """HloModule a
fused { p = f32[64,512]{1,0} parameter(0)
  q = f32[64,512]{1,0} parameter(1)
  s = f32[64,512]{1,0} add(p, q)
  ROOT n = f32[64,512]{1,0} multiply(s, q) }
ENTRY main { x = f32[64,512]{1,0} parameter(0)
  y = f32[64,512]{1,0} parameter(1)
  ROOT f = f32[64,512]{1,0} fusion(x, y), kind=kLoop, calls=fused }
"""

SORT = """HloModule o
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main { x = f32[1024]{0} parameter(0)
  ROOT s = f32[1024]{0} sort(x), dimensions={0}, to_apply=less }
"""


def dot(lhs, rhs, out, dims):
    text = DOT
    for name, value in (("lhs", lhs), ("rhs", rhs), ("out", out), ("dims", dims)):
        text = text.replace("{" + name + "}", value)
    return text


LINEAR = dot(
    "f32[32,784]{1,0}", "f32[784,10]{1,0}", "f32[32,10]{1,0}", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
)
BATCHED = dot(
    "bf16[4,32,64]{2,1,0}",
    "bf16[4,64,16]{2,1,0}",
    "bf16[4,32,16]{2,1,0}",
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
)


def of(text):
    (kernel,) = kernels_of_module(module_of_text(text)).kernels
    return kernel, graph_of_kernel(kernel)


@pytest.mark.parametrize(
    ("text", "op", "dims", "dtype"),
    [
        (LINEAR, "linear", {"B": 1, "M": 32, "N": 10, "K": 784}, "f32"),
        (BATCHED, "bmm", {"B": 4, "M": 32, "N": 16, "K": 64}, "bf16"),
        (SOFTMAX, "softmax", {"B": 64, "H": 512}, "f32"),
        (ADD, "fusion", {"bytes_read": 2 * 64 * 512 * 4, "bytes_written": 64 * 512 * 4, "flop": 2 * 64 * 512}, "f32"),
        (
            CONV,
            "conv",
            {
                **{"B": 8, "input_channel": 64, "input_size": 28, "kernel_size": 3},
                **{"output_channel": 128, "padding": 1, "stride": 2},
            },
            "f32",
        ),
    ],
)
def test_a_kernel_is_the_operator_that_does_the_same(text, op, dims, dtype):
    found = operator_of_kernel(*of(text))
    assert (found.op, dict(found.dims), found.dtype) == (op, dims, dtype)


def test_what_is_no_operator_is_left_open():
    assert operator_of_kernel(*of(SORT)) is None
    grouped = CONV.replace("f32[3,3,64,128]", "f32[3,3,1,128]").replace("b01f }", "b01f, feature_group_count=64 }")
    assert operator_of_kernel(*of(grouped)) is None


@dataclass(frozen=True)
class Said:
    time_ps: np.ndarray
    low_ps: np.ndarray
    high_ps: np.ndarray
    distance: np.ndarray
    bound_ps: np.ndarray


class OneNanosecondAByte:
    """A model that knows f32 alone."""

    def predict(self, operators, device, *, dispatch):
        assert not dispatch
        if any(one.dtype != "f32" for one in operators):
            raise ModelError("no peak of f64")
        work = np.array([1e3 * one.dims["bytes_written"] for one in operators], np.float64)
        return Said(work, work / 2, work * 2, np.full(len(work), 0.5), work / 10)


def test_what_the_model_knows_it_answers_and_the_rest_is_left_open():
    start = predict_gpu._started(OneNanosecondAByte(), device_spec("T4"))
    kernels, graphs = zip(*(of(text) for text in (SORT, ADD, ADD.replace("f32", "f64"))), strict=True)
    times = start.answer(Asked(kernels, graphs, np.ones(3)))
    work = 1e3 * 4 * 64 * 512
    np.testing.assert_array_equal(times.time_ps, [np.nan, work, np.nan])
    np.testing.assert_array_equal(times.low_ps, [np.nan, work / 2, np.nan])
    np.testing.assert_array_equal(times.high_ps, [np.nan, work * 2, np.nan])
    np.testing.assert_array_equal(times.distance, [np.nan, 0.5, np.nan])
    assert times.notes == {2: ("not predicted as an operator: no peak of f64",)}


def test_products_of_f32_are_rounded_where_the_device_does_so():
    form = operator_of_kernel(*of(LINEAR))
    assert predict_gpu._type_on(form, device_spec("NVIDIA H200")) == "tf32"
    assert predict_gpu._type_on(form, device_spec("T4")) == "f32"  # has no tf32
    assert predict_gpu._type_on(form, device_spec("MI300X")) == "f32"  # AMD's libraries do not, unless asked
    assert predict_gpu._type_on(operator_of_kernel(*of(ADD)), device_spec("NVIDIA H200")) == "f32"


def test_every_form_is_an_operator_that_the_model_of_operators_knows():
    for text in (LINEAR, BATCHED, SOFTMAX, ADD, CONV):
        kernel, graph = of(text)
        form = operator_of_kernel(kernel, graph)
        work = work_of_operators([Operator(form.op, dict(form.dims), form.dtype)])
        if form.op in ("linear", "bmm", "fusion"):
            assert work.flop[0] == graph.feature("flop")
        least = graph.feature("bytes_read") + graph.feature("bytes_written")
        assert work.bytes[0] == pytest.approx(least, rel=0.02)
