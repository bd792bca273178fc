"""Kernels of programs: which there are, how often they run, which are the same."""

import pytest
from hlo_texts import LOOPS, SOFTMAX, module_of_text

from phasepoint.learn.hlo_graph.kernels import kernels_of_module


def kernel_of(text):
    (kernel,) = kernels_of_module(module_of_text(text)).kernels
    return kernel


def test_loops_and_branches_are_entered():
    found = kernels_of_module(module_of_text(LOOPS))
    executions = {kernel.name: kernel.executions for kernel in found.kernels}
    assert executions == {"next": 5, "y": 5, "less": 6, "l": None, "r": None, "copied": 1}
    assert found.notes == ("which branch of b runs is not known",)
    assert {kernel.name: kernel.notes for kernel in found.kernels if kernel.notes} == {
        "l": ("which branch of b runs is not known",),
        "r": ("which branch of b runs is not known",),
    }


def test_a_loop_without_trip_count_is_said():
    text = LOOPS.replace(',\n    backend_config={"known_trip_count":{"n":"5"}}', "")
    found = kernels_of_module(module_of_text(text))
    executions = {kernel.name: kernel.executions for kernel in found.kernels}
    assert (executions["y"], executions["less"], executions["copied"]) == (None, None, 1)
    assert "the compiler does not know how often loop known runs" in found.notes


@pytest.mark.parametrize(("count", "known"), [("-3", None), ("9223372036854775807", 2**63 - 1)])
def test_a_count_that_cannot_be_is_unknown(count, known):
    found = kernels_of_module(module_of_text(LOOPS.replace('"5"', f'"{count}"')))
    executions = {kernel.name: kernel.executions for kernel in found.kernels}
    assert (executions["y"], executions["less"], executions["copied"]) == (known, None, 1)


def test_nested_loops_multiply():
    inner = LOOPS.split("ENTRY")[0]
    text = (
        inner
        + """outer { q = (s32[], f32[4,4]) parameter(0)
  w = (s32[], f32[4,4]) while(q), condition=cond, body=body, backend_config={"known_trip_count":{"n":"5"}}
  k = s32[] get-tuple-element(w), index=0
  v = f32[4,4] get-tuple-element(w), index=1
  m = f32[4,4] negate(v)
  ROOT u = (s32[], f32[4,4]) tuple(k, m) }
always { q = (s32[], f32[4,4]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  ROOT e = pred[] compare(k, k), direction=EQ }
ENTRY main { x = f32[4,4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4,4]) tuple(zero, x)
  ROOT all = (s32[], f32[4,4]) while(start), condition=always, body=outer,
    backend_config={"known_trip_count":{"n":"3"}} }
"""
    )
    executions = {kernel.name: kernel.executions for kernel in kernels_of_module(module_of_text(text)).kernels}
    assert executions == {"next": 15, "y": 15, "less": 18, "m": 3, "e": 4}


def test_an_empty_program_is_said():
    found = kernels_of_module(module_of_text("HloModule nothing\nENTRY main { ROOT x = f32[3] parameter(0) }\n"))
    assert found.kernels == ()
    assert found.notes == ("program 'nothing' starts no kernel",)


def test_the_same_work_has_one_fingerprint():
    kernel = kernel_of(SOFTMAX)
    renamed = SOFTMAX.replace("mb", "other").replace("constant(0)", "constant(7)").replace("fused", "inner")
    swapped = SOFTMAX.replace("parameter(0)\n  m =", "parameter(9)\n  m =").replace(
        "parameter(1)\n  mb", "parameter(0)\n  mb"
    )
    swapped = swapped.replace("parameter(9)", "parameter(1)").replace("fusion(x, y)", "fusion(y, x)")
    assert kernel_of(renamed).fingerprint == kernel.fingerprint
    assert kernel_of(swapped).fingerprint == kernel.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        ("exponential(d)", "tanh(d)"),
        ("f32[8,16]{1,0}", "f32[8,16]{0,1}"),
        ("kLoop", "kCustom"),
        ("s = f32[] add(a, b)", "s = f32[] maximum(a, b)"),
        ("subtract(p, mb)", "subtract(mb, p)"),
    ],
)
def test_other_work_has_another_fingerprint(change):
    assert kernel_of(SOFTMAX.replace(*change)).fingerprint != kernel_of(SOFTMAX).fingerprint
