"""Runtimes beside the usual ones, on real processes: the same outputs, or why a pair cannot be run."""

import io

import numpy as np
import pytest
from rich.console import Console

from phasepoint.bench.runtimes.runtimes import RUNTIMES, NotHereError
from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.compare import compare_suites
from phasepoint.bench.suite.result import Pair, PairResult, PredictedLatency, read_suite
from phasepoint.bench.suite.run import run_suite
from phasepoint.bench.suite.summary import summarize_suite
from phasepoint.core.errors import UsageError
from phasepoint.learn.predict.tpu.compile import has_compiler
from phasepoint.report.html.suites import suite_html
from phasepoint.report.terminal.bench import render_suite


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


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_openvino_gives_what_onnxruntime_does(tmp_path, monkeypatch):
    pytest.importorskip("openvino")  # importing it forks, and JAX may be here already
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


PROGRAM = "mlp.autoencoder-batch32-inputs1024-code128.forward"


@pytest.mark.jax
def test_a_tpu_that_is_not_there_is_compiled_for_or_says_what_is_missing(tmp_path):
    asked = ask_suite([PROGRAM], devices=["tpu-v5p", "cpu:1"], rounds=2, seconds=0.2)
    assert [pair.runtime for pair in asked.pairs] == ["libtpu", "jax"]
    results = run_suite(tmp_path / "out", asked)
    assert sorted((one.pair.device, one.round) for one in results) == [("cpu:1", 0), ("cpu:1", 1), ("tpu-v5p", 0)]
    found = next(one for one in results if one.pair.device == "tpu-v5p")
    if not has_compiler():
        assert found.status == "not here"
        assert found.reason == "compiling for a TPU needs its compiler: pip install 'phasepoint[tpu]'"
        return
    assert found.status == "predicted", found.reason
    assert found.latencies_ps == ()
    assert found.predicted.low_ps < found.predicted.latency_ps < found.predicted.high_ps
    assert found.predicted.device == "TPU v5p"
    assert read_suite(tmp_path / "out")[1] == results


def test_predictions_stand_apart_from_what_was_measured():
    predicted = PredictedLatency(10**7, 8 * 10**6, 2 * 10**7, "TPU v5p", "memory", "compiler", 10**12, {"libtpu": "1"})
    measured = PairResult(
        pair=Pair("made", "cpu:1", "jax", "f32"), round=0, status="measured", latencies_ps=(10**9,) * 80
    )
    told = PairResult(pair=Pair("made", "tpu-v5p", "libtpu", "f32"), round=0, status="predicted", predicted=predicted)
    summaries = summarize_suite([measured, told])
    apart = next(one for one in summaries if one.predicted is not None)
    assert (apart.status, apart.latency_ps, apart.rounds) == ("predicted", None, 0)
    console = Console(width=120, record=True, file=io.StringIO())
    render_suite([apart], [], console)
    text = console.export_text()
    assert "Not measured: told from the compiled program" in text
    assert "10.0 µs" in text
    page = suite_html("suite", [apart], [told])
    assert "Devices that are not here" in page
    assert "None of" not in page
    assert compare_suites(summaries, summaries).ratios == compare_suites([summaries[0]], [summaries[0]]).ratios


def test_a_slice_of_chips_is_no_device_of_a_suite():
    with pytest.raises(UsageError, match="tpu-v5p:2x2x1: is a slice of several chips, see phasepoint scale plan; give"):
        ask_suite([PROGRAM], devices=["tpu-v5p:2x2x1"])
    with pytest.raises(UsageError, match="no device named 'npu:0'; expected cpu:N"):
        ask_suite([PROGRAM], devices=["npu:0"])
