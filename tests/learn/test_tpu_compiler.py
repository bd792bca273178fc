"""Slices by name, cycles of the TPU's compiler as times, and the compiler itself where it is installed."""

import json
import subprocess
import sys
import time

import pytest
from hlo_by_hand import fused_module

from phasepoint.core.errors import MissingExtraError, ModelError, UsageError
from phasepoint.learn.corpus.corpus import read_corpus
from phasepoint.learn.corpus.runs import package_programs
from phasepoint.learn.predict.predict import predict_kernel_times
from phasepoint.learn.predict.programs import read_what
from phasepoint.learn.predict.tpu import compile as tpu_compile
from phasepoint.learn.predict.tpu.compile import Function, SpreadStep, compile_function_for, has_compiler
from phasepoint.learn.predict.tpu.harvest import collect_compiled
from phasepoint.learn.predict.tpu.topology import GENERATIONS, parse_topology, topology_of_device
from phasepoint.learn.predict.types import resolve_target
from phasepoint.scale.plan.program import plan_program
from phasepoint.scale.pod.torus import axes_of

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="the TPU's compiler (libtpu) is not installed")


@pytest.mark.parametrize(
    ("text", "name", "chips"),
    [
        ("tpu-v3:32x32", "v3:32x32", 1024),
        ("v4:4x4x8", "v4:4x4x8", 128),
        ("TPU-v5p:2x2x1", "v5p:2x2x1", 4),
        ("v5:2x2x1", "v5p:2x2x1", 4),
        ("tpu-7x:4x4x4", "tpu7x:4x4x4", 64),
        ("v6e", "v6e:1x1", 1),
    ],
)
def test_slices_by_name(text, name, chips):
    topology = parse_topology(text)
    assert (topology.name, topology.chips) == (name, chips)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v9:2x2", "is no slice of TPUs"),
        ("v3:4x4x4", "has 2 axes of 1 to 32 chips"),
        ("v3:64x64", "has 2 axes of 1 to 32 chips"),
        ("v4:0x4x4", "has 3 axes of 1 to 16 chips"),
        ("v3:4 x 4", "is no slice of TPUs"),
    ],
)
def test_slices_that_cannot_be(text, message):
    with pytest.raises(UsageError, match=message):
        parse_topology(text)


def test_every_generation_has_its_device():
    for generation in GENERATIONS.values():
        assert resolve_target(generation.device).name == generation.device
        assert topology_of_device(generation.device).chips == 1
    with pytest.raises(UsageError, match="has no 'cpu'"):
        topology_of_device("cpu")


def config(cycles):
    return json.dumps({"window_config": {"estimated_cycles": str(cycles)}})


def test_cycles_are_times_by_the_clock():
    found = predict_kernel_times([fused_module("tanh", config=config(940_000))], "tpu-v3")[0]
    (kernel,) = found.kernels
    assert (kernel.method, kernel.time_ps) == ("compiler", 10**9)
    assert kernel.low_ps < 10**9 < kernel.high_ps
    assert any("940 MHz" in note for note in found.notes)


@pytest.mark.parametrize("said", ["", "{}", config(0), config(2**63 - 1), config("many"), '{"window_config": 3}'])
def test_without_cycles_the_analytic_model_answers(said):
    (kernel,) = predict_kernel_times([fused_module("tanh", config=said)], "tpu-v3")[0].kernels
    assert kernel.method == "analytic"


def test_cycles_say_nothing_of_other_devices():
    (kernel,) = predict_kernel_times([fused_module("tanh", config=config(940))], "H100 PCIe")[0].kernels
    assert kernel.method != "compiler"


def test_nothing_takes_fewer_cycles_than_its_bytes_take_time():
    (kernel,) = predict_kernel_times([fused_module("tanh", elements=1 << 26, config=config(1))], "tpu-v3")[0].kernels
    assert kernel.time_ps >= 2 * 4 * (1 << 26) / 450e9 * 1e12 * 0.99


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "def step(w, x):\n"
        "    loss = lambda w: jnp.tanh(x @ w).sum()\n"
        "    return w - 0.1 * jax.grad(loss)(w)\n"
        "args = (jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16), jax.ShapeDtypeStruct((512, 1024), jnp.bfloat16))\n"
        "def broken(w, x):\n"
        "    raise ValueError('no such layer')\n"
    )
    return path


def test_without_the_compiler_the_cpus_program_is_taken_and_said(script, monkeypatch):
    monkeypatch.setattr(tpu_compile, "find_spec", lambda name: None)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    (program,) = read_what(f"{script}:step", args_from="args", target=resolve_target("tpu-v5e"))
    assert program.backend == "cpu"
    assert any("pip install 'phasepoint[tpu]'" in note for note in program.notes)
    with pytest.raises(MissingExtraError, match=r"phasepoint\[tpu\]"):
        compile_function_for(Function(script, "step", None, "args"), parse_topology("v5e"))


def test_a_library_that_is_none_is_said(script, tmp_path, monkeypatch):
    library = tmp_path / "libtpu.so"
    library.write_bytes(b"no library")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(library))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match="compiler ended with exit code"):
        compile_function_for(Function(script, "step", None, "args"), parse_topology("v5e"))


def test_a_compilation_that_takes_too_long_is_ended(script, tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(tmp_path / "libtpu.so"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match="took more than 0 s"):
        compile_function_for(Function(script, "step", None, "args"), parse_topology("v5e"), most_s=0.0)


def test_what_compiles_ends_with_who_asked():
    child = (
        "import os, sys, time; from phasepoint.learn.predict.tpu.child import end_with; end_with(int(sys.argv[1])); "
    )
    child += "print('compiles', flush=True); time.sleep(300)"
    parent = (
        "import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())]); "
    )
    parent += "time.sleep(300)"
    with subprocess.Popen([sys.executable, "-c", parent, child], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "compiles\n"
        process.kill()
        began = time.monotonic()
        assert process.stdout.read() == ""  # once nobody holds the pipe any more
    assert time.monotonic() - began < 60


@needs_compiler
def test_a_step_over_a_slice_that_raises_is_told_by_its_name(script):
    told = "train.py:broken raised while it was traced with 2 arguments: ValueError: no such layer"
    with pytest.raises(ModelError, match=told):
        compile_function_for(
            Function(script, "broken", None, "args"), parse_topology("v5e:2x2"), spread=SpreadStep(512)
        )


@needs_compiler
@pytest.mark.parametrize("name", ["v3", "v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_a_step_is_compiled_for_every_generation(name, script, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = resolve_target(GENERATIONS[name].device)
    (program,) = read_what(f"{script}:step", args_from="args", target=target)
    found = predict_kernel_times([program.module], target.name)[0]
    assert program.backend == "tpu"
    assert found.method == "compiler"
    flop = 2 * 2 * 512 * 1024 * 1024
    assert found.time_ps / 1e12 > flop / target.spec.flop_per_s["bf16"].value
    again = compile_function_for(Function(script, "step", None, "args"), topology_of_device(target.name))
    assert again.compile_s == 0
    assert again.memory["argument"] == 2 * (1024 * 1024 + 512 * 1024)


@needs_compiler
def test_what_the_function_raises_is_said(script, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match=r"train.py:broken raised .* with 2 arguments: ValueError: no such layer"):
        compile_function_for(Function(script, "broken", None, "args"), parse_topology("v5e"))
    with pytest.raises(UsageError, match="say their shapes: --args"):
        compile_function_for(Function(script, "step"), parse_topology("v5e"))


TRAINING = """
import jax, jax.numpy as jnp
def step(w, x):
    loss = lambda w: jnp.tanh(x @ w).sum()
    return w - 0.1 * jax.grad(loss)(w)
args = (jax.ShapeDtypeStruct((1024, 1024), jnp.float32), jax.ShapeDtypeStruct((64, 1024), jnp.float32))
"""


@needs_compiler
def test_a_step_is_compiled_for_all_devices_of_a_slice(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    asked, topology = Function(path, "step", None, "args"), parse_topology("v3:4x4")
    compiled = compile_function_for(asked, topology, spread=SpreadStep(4096))
    assert compiled.batch == 4096
    assert compiled.memory["argument"] == 4 * (1024 * 1024 + 4096 // 32 * 1024)
    with pytest.raises(UsageError, match="a batch of 100 can't be divided among 32 devices; 96 or 128 can"):
        compile_function_for(asked, topology, spread=SpreadStep(100))


@needs_compiler
def test_a_plan_holds_the_gradients_sum_and_what_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    asked, topology = Function(path, "step", None, "args"), parse_topology("v3:4x4")
    row, *_, large = plan_program(asked, topology, [4096, 8192, 1 << 28])
    (sent,) = row.collectives
    assert (sent.opcode, sent.bytes, sent.group) == ("all-reduce", 4 << 20, 32)
    assert row.exposed_ps == round(sent.seconds(axes_of(topology)) * 1e12) > 0
    assert row.fits
    assert not large.fits
    assert large.memory_bytes > large.limit_bytes > 10**10


def test_a_corpus_of_cycles_needs_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(tpu_compile, "_library", lambda: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'phasepoint\[tpu\]'"):
        collect_compiled(tmp_path, package_programs("zoo")[:1], parse_topology("v5p"))
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_a_corpus_of_cycles(tmp_path):
    """Times are what `predict` says of the same kernels, each program is compiled once, and one that fails is kept."""
    programs = package_programs("zoo")[:3]
    topology = parse_topology("v5p")
    found = collect_compiled(tmp_path, programs, topology)
    assert (found.device, found.programs, found.measured + len(found.failed)) == ("TPU v5p", 3, 3)
    again = collect_compiled(tmp_path, programs, topology)
    assert (again.already, again.measured) == (3, 0)
    corpus = read_corpus(tmp_path)
    assert len(corpus.programs) == found.measured
    assert (corpus.kernels.time_min_ps > 0).all()
    with pytest.raises(ModelError, match="TPU v5p"):
        collect_compiled(tmp_path, programs, parse_topology("v4"))
