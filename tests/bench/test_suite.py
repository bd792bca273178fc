"""A suite on real processes: networks that run, raise, are killed and hang; what is cut off goes on; one at a time."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.result import PAIRS, Pair, PairResult, read_suite, result_path, write_file
from phasepoint.bench.suite.run import run_suite
from phasepoint.bench.suite.summary import summarize_suite
from phasepoint.core.errors import (
    FormatVersionError,
    NotARunError,
    OutputExistsError,
    ShardBusyError,
    StoreError,
    UsageError,
)

pytestmark = pytest.mark.torch

MODELS = """
import os, signal, time
import torch

def small():
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)), (torch.randn(1, 64),)

def slower():
    return torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(20))), (torch.randn(1, 512),)

def warms():
    class Warm(torch.nn.Module):
        began = None
        def forward(self, x):
            self.began = self.began or time.monotonic()
            time.sleep(0.010 if time.monotonic() < self.began + 13 else 0.013)
            return x
    return Warm(), (torch.randn(1, 4),)

def raises():
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("no such layer")
    return Broken(), (torch.randn(1, 4),)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def silent():
    time.sleep(600)
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request_of(*names, **options):
    asked = {"devices": ["cpu:1"], "rounds": 1, "seconds": 0.2} | options
    return ask_suite([f"mine:{name}" for name in names], **asked)


def test_whatever_becomes_of_a_model_is_a_row(models):
    asked = request_of("small", "slower", "raises", "killed", precisions=("f32", "bf16"))
    seen = []
    results = run_suite(models / "out", asked, lambda done, total: seen.append((done, total)))
    assert seen == [(done, 8) for done in range(9)]
    by_pair = {(one.pair.model, one.pair.precision): one for one in results}
    assert {key: one.status for key, one in by_pair.items()} == {
        (f"mine:{name}", precision): "measured" if name in ("small", "slower") else "failed"
        for name in ("small", "slower", "raises", "killed")
        for precision in ("f32", "bf16")
    }
    small = by_pair["mine:small", "f32"]
    assert small.model.params == 64 * 32 + 32 + 32 * 8 + 8
    assert small.model.macs == 64 * 32 + 32 * 8
    assert small.model.weight_bytes == 4 * small.model.params
    assert len(small.latencies_ps) >= 5
    assert min(small.latencies_ps) > 0
    assert small.drift is None
    assert small.conditions.threads == 1
    assert small.conditions.versions.keys() == {"torch"}
    assert small.energy.joules is None or small.energy.joules > 0
    assert small.energy.joules is not None or small.energy.reason
    assert 0 < by_pair["mine:small", "bf16"].drift.relative_error < 0.05
    assert by_pair["mine:raises", "f32"].reason == "RuntimeError: no such layer"
    assert by_pair["mine:killed", "f32"].reason == "the process was killed by SIGKILL, building"
    summaries = {one.pair.model: one for one in summarize_suite(results) if one.pair.precision == "f32"}
    assert summaries["mine:slower"].latency_ps > 3 * summaries["mine:small"].latency_ps


def test_graphs_are_measured_beside_modules(models):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def write(name, kind, shape, domain=""):
        graph = helper.make_graph(
            [helper.make_node(kind, ["x"], ["y"], domain=domain)],
            "made",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
        )
        opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), models / name)
        return name

    (models / "broken.onnx").write_bytes(b"\xff" * 100)
    names = [
        write("good.onnx", "Relu", [None, 256]),
        write("unknown.onnx", "Teleport", [1, 8], "nowhere"),
        write("huge.onnx", "Relu", [1 << 24, 1 << 24]),
        "broken.onnx",
        "absent.onnx",
    ]
    asked = ask_suite(names, devices=["cpu:1"], rounds=1, seconds=0.2)
    assert {pair.runtime for pair in asked.pairs} == {"onnxruntime"}
    found = {one.pair.model: one for one in run_suite(models / "out", asked)}
    good = found["good.onnx"]
    assert (good.status, good.model.params, good.model.macs) == ("measured", 0, 0)
    assert [speed.batch for speed in good.throughput] == [1, 4, 16]
    assert good.compile_ps > 0
    assert good.conditions.versions.keys() == {"onnxruntime"}
    assert {name: found[name].status for name in names[1:]} == {
        "unknown.onnx": "failed",
        "huge.onnx": "failed",
        "broken.onnx": "failed",
        "absent.onnx": "not here",
    }
    assert "nowhere" in found["unknown.onnx"].reason
    assert "allocate" in found["huge.onnx"].reason
    assert found["broken.onnx"].reason.startswith("ValueError: broken.onnx is no ONNX file: Error parsing message")
    assert found["absent.onnx"].reason == "absent.onnx: no such file"


@pytest.mark.jax
def test_programs_of_the_zoo_run_in_jax(tmp_path):
    from phasepoint.bench.suite.subject import zoo_program_names

    names = sorted(name for name in zoo_program_names() if name.startswith("mlp.") and name.endswith(".forward"))[:2]
    asked = ask_suite(names, devices=["cpu:1"], rounds=1, seconds=0.2)
    assert {pair.runtime for pair in asked.pairs} == {"jax"}
    for one in run_suite(tmp_path / "out", asked):
        assert one.status == "measured", one.reason
        assert one.compile_ps > 0
        assert one.model.params > 0
        assert one.conditions.threads == 1


def test_a_runtime_says_what_it_does_not_run(models):
    asked = ask_suite(["absent.onnx", "mine:small"], runtimes=("onnxruntime", "eager"), precisions=("int8",))
    found = {(one.pair.model, one.pair.runtime): one for one in run_suite(models / "out", asked)}
    assert {one.status for one in found.values()} == {"not here"}
    assert found["absent.onnx", "eager"].reason == "eager does not run a graph"
    assert found["mine:small", "onnxruntime"].reason == "onnxruntime does not run a module"
    assert found["mine:small", "eager"].reason == "eager computes in f32, bf16"


@pytest.mark.alone
def test_a_device_that_throttles_is_seen(models):
    """Planted: 30 % slower from the 13th second on, of 26."""
    (result,) = run_suite(models / "out", request_of("warms", sustained_s=26.0))
    assert result.status == "measured", result.reason
    assert sum(window.dur_ps for window in result.sustained) == pytest.approx(26e12, rel=0.05)
    (one,) = summarize_suite([result])
    assert one.sustained.change_s == pytest.approx(13, abs=3)
    assert one.sustained.last_per_s / one.sustained.first_per_s == pytest.approx(10 / 13, rel=0.08)


def test_a_model_that_hangs_is_ended(models):
    began_s = time.monotonic()
    (result,) = run_suite(models / "out", request_of("silent", limit_s=15.0))
    assert (result.status, result.reason) == ("failed", "no answer within 15 s, building")
    assert time.monotonic() - began_s < 60


def test_a_suite_that_was_killed_goes_on(models):
    names = ["small", "slower", "raises"]
    words = [word for name in names for word in ("--model", f"mine:{name}")]
    command = [sys.executable, "-m", "phasepoint", "bench", "run", *words, "--devices", "cpu:1", "--rounds", "2"]
    command += ["--seconds", "0.2", "--out", "out", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(list((models / "out" / PAIRS).glob("*.json"))) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in (models / "out" / PAIRS).glob("*.json")}
    assert 2 <= len(before) < 6
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    document = json.loads(done.stdout)
    assert (document["kind"], len(document["pairs"])) == ("bench run", 3)
    assert [one["rounds"] for one in document["pairs"]] == [0, 2, 2]  # by name: raises, slower, small
    assert [one["low_ps"] is not None for one in document["pairs"]] == [False, True, True]
    page = (models / "out" / "report.html").read_text()
    assert page.count("RuntimeError: no such layer") == 1


def test_two_suites_do_not_measure_into_one_folder(models):
    asked = request_of("raises")
    run_suite(models / "out", asked)
    descriptor = os.open(models / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ShardBusyError, match="another process measures into it"):
        run_suite(models / "out", asked)
    os.close(descriptor)
    assert len(run_suite(models / "out", asked)) == 1


def test_a_folder_is_of_one_request(models):
    run_suite(models / "out", request_of("raises"))
    with pytest.raises(OutputExistsError, match="asked for otherwise"):
        run_suite(models / "out", request_of("raises", seconds=0.3))
    (models / "other").mkdir()
    (models / "other" / "mine.txt").write_text("kept")
    with pytest.raises(OutputExistsError, match="is not empty, and holds no suite"):
        run_suite(models / "other", request_of("raises"))
    assert [path.name for path in (models / "other").iterdir()] == ["mine.txt"]


def test_a_full_disk_keeps_what_is_there(tmp_path, monkeypatch):
    pair = Pair("a", "cpu:1", "eager", "f32")
    path = result_path(tmp_path, pair, 0)
    write_file(path, PairResult(pair=pair, round=0, status="failed", reason="first"))

    def refuse(_path, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(StoreError, match=r"No space left on device.*make room, and give the same command again"):
        write_file(path, PairResult(pair=pair, round=0, status="failed", reason="second"))
    assert b"first" in path.read_bytes()
    assert len(list(path.parent.iterdir())) == 1


def test_what_is_no_suite_is_said(tmp_path):
    with pytest.raises(NotARunError, match=r"no results of `phasepoint bench run` \(it has no suite.json\)"):
        read_suite(tmp_path)
    asked = ask_suite(["resnet18"], devices=["cpu:1"])
    write_file(tmp_path / "suite.json", asked)
    assert read_suite(tmp_path) == (asked, [])
    path = result_path(tmp_path, asked.pairs[0], 0)
    write_file(path, PairResult(pair=asked.pairs[0], round=0, status="failed", version=2))
    with pytest.raises(FormatVersionError, match="version 2 of a result; this Phasepoint reads 1"):
        read_suite(tmp_path)
    path.write_text("{")
    with pytest.raises(StoreError, match="remove it to measure the pair again"):
        read_suite(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["resnet8"]}, "no model named 'resnet8'; did you mean resnet"),
        ({"models": [], "devices": ["tpu:0"]}, "no device named 'tpu:0'; expected cpu:N"),
        ({"models": [], "devices": ["cpu:4096"]}, "cpu:4096: this process may use"),
        (
            {"models": [], "runtimes": ["tensorrt"]},
            "no runtime named 'tensorrt'; there are eager, compiled, jax, onnxruntime",
        ),
        ({"models": [], "precisions": ["f4"]}, "no precision named 'f4'; there are f32, bf16, int8"),
    ],
)
def test_each_word_is_checked_before_anything_runs(options, message):
    with pytest.raises(UsageError, match=message):
        ask_suite(**options)
