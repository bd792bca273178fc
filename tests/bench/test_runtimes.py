"""Runtimes beside the usual ones, on real processes: the same outputs, or why a pair cannot be run."""

import numpy as np
import pytest

from phasepoint.bench.runtimes.runtimes import RUNTIMES, NotHereError
from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.run import run_suite


def write_graph(path):
    from onnx import TensorProto, helper, numpy_helper, save

    random = np.random.default_rng(0)
    weights = {"m": random.standard_normal((256, 64)), "n": random.standard_normal((64, 32))}
    made = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "m"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "n"], ["y"]),
        ],
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 32])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_openvino_gives_what_onnxruntime_does(tmp_path, monkeypatch):
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "made.onnx")
    asked = ask_suite(["made.onnx"], devices=["cpu:1"], runtimes=["onnxruntime", "openvino"], rounds=1, seconds=0.2)
    found = {one.pair.runtime: one for one in run_suite(tmp_path / "out", asked)}
    assert {one.status for one in found.values()} == {"measured"}, found
    assert found["onnxruntime"].drift is None
    assert found["openvino"].drift.relative_error < 1e-5
    assert found["openvino"].drift.same_largest == 1.0
    assert found["openvino"].conditions.versions.keys() == {"openvino"}
    assert [speed.batch for speed in found["openvino"].throughput if speed.samples_per_s] == [1, 4, 16]
    with pytest.raises(NotHereError, match="OpenVINO does not run on cuda; give cpu:N"):
        RUNTIMES["openvino"].prepare(b"", "cuda:0", "f32")


def test_litert_runs_what_onnxruntime_does_not(tmp_path, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    from zoo.tiny_tflite import write_tiny

    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path / "tiny.tflite")
    (tmp_path / "broken.tflite").write_bytes(b"no graph at all")
    asked = ask_suite(["tiny.tflite", "broken.tflite"], devices=["cpu:1"], rounds=1, seconds=0.2)
    assert {pair.runtime for pair in asked.pairs} == {"litert"}
    found = {one.pair.model: one for one in run_suite(tmp_path / "out", asked)}
    tiny, broken = found["tiny.tflite"], found["broken.tflite"]
    assert tiny.status == "measured", tiny.reason
    assert tiny.compile_ps > 0
    assert [speed.batch for speed in tiny.throughput] == [1]
    assert tiny.conditions.versions.keys() == {"ai-edge-litert"}
    assert (broken.status, broken.reason.partition(":")[0]) == ("failed", "ValueError")
    asked = ask_suite(["tiny.tflite"], devices=["cpu:1"], runtimes=["onnxruntime"], rounds=1, seconds=0.2)
    (other,) = run_suite(tmp_path / "other", asked)
    assert (other.status, other.reason) == ("not here", "onnxruntime does not run a flatbuffer")
    with pytest.raises(NotHereError, match="LiteRT runs here on CPUs and not on cuda; give cpu:N"):
        RUNTIMES["litert"].prepare(b"", "cuda:0", "f32")
