"""`phasepoint predict`: what it prints, and what it says of every kind of bad input."""

import json
import sys

import pytest

from phasepoint.learn.models.model_file import StoredModel, write_model

STEP = """
import jax.numpy as jnp

SHAPES = (jnp.zeros((8, 16)), jnp.zeros((16, 4)))

def shapes():
    return SHAPES

def step(x, w):
    return jnp.tanh(x @ w).sum()

def alone():
    return jnp.ones((64, 64)) * 2 + jnp.arange(64.0)

def broken(x, w):
    raise KeyError("no such layer")

number = 3
"""

HLO = """HloModule dense, is_scheduled=true
fused { p = f32[256,512]{1,0} parameter(0)
  ROOT t = f32[256,512]{1,0} tanh(p) }
ENTRY main { x = f32[256,1024]{1,0} parameter(0)
  w = f32[1024,512]{1,0} parameter(1)
  y = f32[256,512]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT act = f32[256,512]{1,0} fusion(y), kind=kLoop, calls=fused }
"""


@pytest.fixture
def step(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(STEP)
    return path


@pytest.fixture
def hlo(tmp_path):
    path = tmp_path / "dense.txt"
    path.write_text(HLO)
    return path


def test_hlo_text_has_a_headline_and_a_row_for_each_kernel(phasepoint, hlo):
    done = phasepoint("predict", hlo, "--device", "tpu-v4")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("dense on TPU v4: ")
    assert ", 90 % interval " in lines[0]
    assert lines[1] == "2 kernels, mostly limited by memory; predicted by the method analytic"
    assert [line.split()[0] for line in lines if line.startswith(("y ", "act "))] == ["y", "act"]
    assert "note: method analytic: " in done.err
    assert "note: " not in done.out


def test_kernels_that_are_alike_share_a_row(phasepoint, tmp_path):
    twice = HLO.replace("ROOT act", "one").replace(
        "calls=fused }", "calls=fused\n  ROOT two = f32[256,512]{1,0} fusion(one), kind=kLoop, calls=fused }"
    )
    path = tmp_path / "twice.txt"
    path.write_text(twice)
    done = phasepoint("predict", path, "--device", "tpu-v4")
    (row,) = (line.split() for line in done.out.splitlines() if line.startswith("one "))
    assert row[:3] == ["one", "+1", "2"]
    assert "3 kernels" in done.out


def test_json_holds_all_of_the_estimate(phasepoint, hlo):
    done = phasepoint("predict", hlo, "--device", "NVIDIA H200", "--json")
    document = json.loads(done.out)
    assert (document["version"], document["kind"], document["device"]) == (1, "predict", "H200 SXM")
    (program,) = document["programs"]
    assert program["low_ps"] < program["time_ps"] < program["high_ps"]
    assert [kernel["kernel"] for kernel in program["kernels"]] == ["y", "act"]
    assert program["in_range_ratio"] == 0
    assert program["notes"]


@pytest.mark.jax
@pytest.mark.parametrize(
    "options", [("--args", "f32[8,16] f32[16,4]"), ("--args-from", "SHAPES"), ("--args-from", "shapes")]
)
def test_a_function_is_traced_and_compiled(phasepoint, step, options):
    done = phasepoint("predict", f"{step}:step", "--device", "tpu-v4", *options)
    assert done.code == 0
    assert done.out.startswith("jit_step on TPU v4: ")
    assert "compiled for a CPU, predicted for a TPU" in done.err


@pytest.mark.jax
def test_a_function_without_arguments_needs_none(phasepoint, step):
    assert phasepoint("predict", f"{step}:alone", "--device", "tpu-v4").code == 0


@pytest.mark.jax
@pytest.mark.parametrize(
    ("what", "options", "code", "says"),
    [
        ("{step}:step", (), 2, "takes arguments (step() missing 2 required positional arguments"),
        ("{step}:step", ("--args", "f32[8,16"), 2, "is no shape; expected an element type and sizes"),
        ("{step}:step", ("--args", "f99[8]"), 2, "'f99' is no element type; there are f16"),
        ("{step}:step", ("--args", "f32[a,b]"), 2, "is no shape"),
        ("{step}:step", ("--args", "f32[8]", "--args-from", "SHAPES"), 2, "give one of them"),
        ("{step}:step", ("--args-from", "nothing"), 2, "has no 'nothing'; its functions are alone, broken"),
        ("{step}:walk", (), 2, "has no 'walk'; its functions are alone, broken, shapes, step"),
        ("{step}:number", (), 2, "train.py:number is a int; expected a function"),
        ("{step}:broken", ("--args", "f32[8] f32[8]"), 18, "raised while it was traced with 2 arguments: KeyError"),
        (
            "{step}:step",
            ("--args", "f32[8,16] f32[17,4]"),
            18,
            "raised while it was traced with 2 arguments: TypeError",
        ),
        ("{step}", (), 2, "which function? Name it after a colon"),
        ("nowhere.py:step", (), 2, "nowhere.py: no such file; expected a Python file"),
    ],
)
def test_bad_functions_are_refused(phasepoint, step, what, options, code, says):
    done = phasepoint("predict", what.format(step=step), "--device", "tpu-v4", *options)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_a_file_that_raises_is_told(phasepoint, tmp_path):
    path = tmp_path / "job.py"
    path.write_text("raise SystemExit('no GPU')")
    done = phasepoint("predict", f"{path}:step", "--device", "tpu-v4")
    assert done.code == 18
    assert "raised SystemExit while it was imported: no GPU" in done.err
    assert "__main__" in done.err


def test_without_jax_the_extra_is_named(phasepoint, tmp_path, hlo, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    path = tmp_path / "job.py"
    path.write_text("def step(): pass")
    for what in (hlo, f"{path}:step"):
        done = phasepoint("predict", what, "--device", "tpu-v4")
        assert done.code == 13
        assert "pip install 'phasepoint[jax]'" in done.err


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("a.pb", b"", 9, "the file is empty"),
        ("a.pb", b"\x00\x01nothing", 7, "a.pb: no HLO: expected HLO text"),
        ("a.pb.gz", b"\x1f\x8bbroken", 7, "packed with gzip, and damaged"),
        ("a.txt", b"HloModule x {", 7, "XLA cannot parse this HLO text"),
        (
            "a.txt",
            b"HloModule x, is_scheduled=true\nENTRY m { ROOT p = f32[4] parameter(0) }",
            9,
            "the program is empty",
        ),
    ],
)
def test_bad_files_are_refused(phasepoint, tmp_path, name, content, code, says):
    path = tmp_path / name
    path.write_bytes(content)
    done = phasepoint("predict", path, "--device", "tpu-v4")
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_other_bad_inputs_are_refused(phasepoint, tmp_path, hlo, run_path):
    done = phasepoint("predict", hlo, "--device", "H100")
    assert done.code == 18
    assert "H100 NVL, H100 PCIe, H100 SXM5; name one of them" in done.err
    done = phasepoint("predict", hlo, "--device", "abacus 3")
    assert done.code == 18
    assert "no device called 'abacus 3' is known" in done.err
    done = phasepoint("predict", hlo, "--device", "tpu-v4", "--args", "f32[1]")
    assert done.code == 2
    assert "are for functions, as in train.py:step" in done.err
    done = phasepoint("predict", tmp_path, "--device", "tpu-v4")
    assert done.code == 4
    done = phasepoint("predict", run_path, "--device", "tpu-v4")
    assert done.code == 9
    assert "the run holds no compiled programs (HLO)" in done.err
    done = phasepoint("predict", tmp_path / "nothing.pb", "--device", "tpu-v4")
    assert done.code == 2
    assert phasepoint("predict", hlo).code == 2


def test_a_model_that_cannot_answer_is_refused(phasepoint, tmp_path, hlo):
    import numpy as np

    done = phasepoint("predict", hlo, "--device", "cpu", "--model", tmp_path / "none")
    assert done.code == 18
    write_model(StoredModel("old", "kernels", {"a": np.zeros(1)}, {"featuriser": 0}), tmp_path / "old")
    done = phasepoint("predict", hlo, "--device", "cpu", "--model", tmp_path / "old")
    assert done.code == 18
    assert "features of version 0, this release computes version" in done.err


UNKNOWN_LOOP = """HloModule loop, is_scheduled=true
body { p = (pred[], f32[4096]) parameter(0)
  go = pred[] get-tuple-element(p), index=0
  x = f32[4096] get-tuple-element(p), index=1
  y = f32[4096] tanh(x)
  ROOT t = (pred[], f32[4096]) tuple(go, y) }
cond { p = (pred[], f32[4096]) parameter(0)
  ROOT go = pred[] get-tuple-element(p), index=0 }
ENTRY main { go = pred[] parameter(0)
  x = f32[4096] parameter(1)
  t = (pred[], f32[4096]) tuple(go, x)
  w = (pred[], f32[4096]) while(t), condition=cond, body=body
  y = f32[4096] get-tuple-element(w), index=1
  ROOT z = f32[4096] negate(y) }
"""


def test_a_loop_of_unknown_length_has_the_time_of_an_iteration(phasepoint, tmp_path):
    path = tmp_path / "loop.txt"
    path.write_text(UNKNOWN_LOOP)
    done = phasepoint("predict", path, "--device", "tpu-v4")
    assert done.code == 0
    assert done.out.startswith("loop on TPU v4: time not known\n838 ns (425 ns – 1.71 µs) once, ")
    assert "for each iteration of its loops" in " ".join(done.out.split())  # lines may be folded
    assert "give --trip-count N" in done.err
    counted = phasepoint("predict", path, "--device", "tpu-v4", "--trip-count", "100")
    assert counted.out.startswith("loop on TPU v4: 8")  # 101 kernels of 0.8 µs
    assert " µs, 90 % interval " in counted.out.splitlines()[0]
    assert "taken to run 100 times" in counted.err
    assert phasepoint("predict", path, "--device", "tpu-v4", "--trip-count", "-1").code == 2
