"""Layers and directions of PyTorch's events."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from phasepoint.sources.chrome.blocks import PlainBytes
from phasepoint.sources.chrome.reader import KinetoReading, read_kineto
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.events.layers import path_of_hierarchy

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / "kineto"


def event(name, cat, ts, dur, /, *, tid=1, **args):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args}


def frame(name, ts, dur, number, parent, /, *, tid=1):
    return event(name, "python_function", ts, dur, tid=tid, **{"Python id": number, "Python parent id": parent})


def forward(name, ts, dur, sequence, /, **args):
    return event(name, "cpu_op", ts, dur, **{"Sequence number": sequence, "Fwd thread id": 0}, **args)


def backward(name, ts, dur, sequence, /, *, tid=2, thread=1):
    return event(name, "cpu_op", ts, dur, tid=tid, **{"Sequence number": sequence, "Fwd thread id": thread})


STEP = [
    event("ProfilerStep#3", "user_annotation", 0, 1000),
    frame("train.py(9): step", 1, 900, 1, 0),
    frame("nn.Module: Net_0", 2, 98, 2, 1),
    frame("net.py(4): forward", 3, 96, 3, 2),
    frame("nn.Module: Linear_0", 4, 30, 4, 3),
    forward("aten::linear", 5, 25, 0),
    forward("aten::addmm", 6, 20, 1),
    event("cudaLaunchKernel", "cuda_runtime", 7, 2, correlation=11),
    event("gemm", "kernel", 40, 5, tid=7, correlation=11, device=0, stream=7),
    frame("nn.Module: Linear_1", 40, 30, 5, 3),
    forward("aten::linear", 41, 25, 2),
    forward("aten::mse_loss", 110, 10, 3),
    event("autograd::engine::evaluate_function: MseLossBackward0", "cpu_op", 200, 10, tid=2),
    backward("MseLossBackward0", 201, 8, 3),
    backward("autograd::engine::evaluate_function: LinearBackward0", 220, 10, 2),
    backward("LinearBackward0", 221, 8, 2),
    event("aten::mm", "cpu_op", 222, 5, tid=2),
    event("cudaLaunchKernel", "cuda_runtime", 223, 2, tid=2, correlation=12),
    event("gemm_nt", "kernel", 260, 5, tid=7, correlation=12, device=0, stream=7),
    event("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "cpu_op", 240, 10, tid=2),
    backward("AddmmBackward0", 260, 10, 1),
    event("Optimizer.step#SGD.step", "user_annotation", 300, 50),
    event("aten::_foreach_add_", "cpu_op", 310, 20),
]


def read(events, slice_rows=None):
    data = json.dumps({"traceEvents": events}).encode()
    if slice_rows is None:
        return read_kineto(data, CaptureRequest())
    with KinetoReading(PlainBytes(data), slice_rows=slice_rows) as reading:
        reading.set_window(CaptureRequest())
        slices = list(reading.tables())
        spans = [tables["spans"] for tables in slices if "spans" in tables]
        ops = [tables["ops"] for tables in slices if "ops" in tables] + [reading.summary()["ops"]]
        return tuple(pa.concat_tables(parts).unify_dictionaries() for parts in (spans, ops))


def told(spans):
    columns = (spans[name].to_pylist() for name in ("name", "start_ps", "layer", "direction"))
    return {(name, start // 10**6): (layer, way) for name, start, layer, way in zip(*columns, strict=True)}


def test_modules_backward_optimizer_and_kernels():
    found = told(read(STEP).spans)
    first, second = "Net_0/Linear_0", "Net_0/Linear_1"
    assert found == {
        ("ProfilerStep#3", 0): (None, None),
        ("train.py(9): step", 1): (None, None),
        ("nn.Module: Net_0", 2): ("Net_0", "forward"),
        ("net.py(4): forward", 3): ("Net_0", "forward"),
        ("nn.Module: Linear_0", 4): (first, "forward"),
        ("aten::linear", 5): (first, "forward"),
        ("aten::addmm", 6): (first, "forward"),
        ("cudaLaunchKernel", 7): (first, "forward"),
        ("gemm", 40): (first, "forward"),
        ("nn.Module: Linear_1", 40): (second, "forward"),
        ("aten::linear", 41): (second, "forward"),
        ("aten::mse_loss", 110): (None, "forward"),
        ("autograd::engine::evaluate_function: MseLossBackward0", 200): (None, "backward"),
        ("MseLossBackward0", 201): (None, "backward"),
        ("autograd::engine::evaluate_function: LinearBackward0", 220): (second, "backward"),
        ("LinearBackward0", 221): (second, "backward"),
        ("aten::mm", 222): (second, "backward"),
        ("cudaLaunchKernel", 223): (second, "backward"),
        ("gemm_nt", 260): (second, "backward"),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 240): (None, "backward"),
        ("AddmmBackward0", 260): (first, "backward"),
        ("Optimizer.step#SGD.step", 300): (None, "optimizer"),
        ("aten::_foreach_add_", 310): (None, "optimizer"),
    }


@pytest.mark.parametrize("slice_rows", [1, 2, 3, 5, 8, 16])
def test_slices_of_time_change_nothing(slice_rows):
    whole = read(STEP)
    spans, ops = read(STEP, slice_rows)
    assert told(spans) == told(whole.spans)
    assert sorted(ops.to_pylist(), key=str) == sorted(whole.ops.to_pylist(), key=str)


def test_levels_of_module_calls():
    spans = read(STEP).spans.to_pylist()
    assert {s["name"] for s in spans if s["level"] == "layer"} == {
        "nn.Module: Net_0",
        "nn.Module: Linear_0",
        "nn.Module: Linear_1",
        "Optimizer.step#SGD.step",
    }


def test_marks_of_the_recorder_name_the_path():
    events = [
        event("phasepoint.layer#Net|Net", "cpu_op", 0, 100),
        event("phasepoint.layer#Net/body/0|Linear", "cpu_op", 10, 50),
        forward("aten::addmm", 20, 30, 0),
        backward("AddmmBackward0", 200, 30, 0, tid=1),
        event("aten::mm", "cpu_op", 210, 10),
    ]
    capture = read(events)
    assert told(capture.spans) == {
        ("phasepoint.layer#Net|Net", 0): ("Net", "forward"),
        ("phasepoint.layer#Net/body/0|Linear", 10): ("Net/body/0", "forward"),
        ("aten::addmm", 20): ("Net/body/0", "forward"),
        ("AddmmBackward0", 200): ("Net/body/0", "backward"),
        ("aten::mm", 210): ("Net/body/0", "backward"),
    }
    marks = [s for s in capture.spans.to_pylist() if s["name"].startswith("phasepoint")]
    assert {(s["level"], s["device"], s["category"]) for s in marks} == {("layer", "host", "host")}
    # a mark is no work: neither an op nor the device's
    assert {row["op"] for row in capture.ops.to_pylist()} == {"aten::addmm", "AddmmBackward0", "aten::mm"}
    assert {row["layer"] for row in capture.ops.to_pylist()} == {"Net/body/0"}


def test_a_module_recomputed_in_the_backward_pass_keeps_its_place():
    events = [
        frame("nn.Module: Net_0", 0, 50, 1, 0),
        frame("nn.Module: Block_3", 10, 20, 2, 1),
        event("autograd::engine::evaluate_function: CheckpointFunctionBackward", "cpu_op", 100, 50, tid=2),
        frame("nn.Module: Block_3", 110, 30, 3, 99, tid=2),
        event("aten::mm", "cpu_op", 115, 5, tid=2),
    ]
    assert told(read(events).spans)["aten::mm", 115] == ("Net_0/Block_3", "backward")


def test_two_threads_with_equal_sequence_numbers_stay_apart():
    events = []
    for tid, thread, name in ((1, 1, "A"), (3, 2, "B")):
        for i in range(3):
            at = 20 * i + tid
            events.append(event(f"phasepoint.layer#{name}/{i}|Linear", "cpu_op", at, 10, tid=tid))
            events.append(forward("aten::addmm", at + 1, 5, i, tid=tid))
        events.append(forward("aten::sum", 90 + tid, 5, 3 + 10 * thread, tid=tid))
        events.append(backward("SumBackward0", 190, 5, 3 + 10 * thread, tid=4 + tid, thread=thread))
        events.append(backward("AddmmBackward0", 200, 5, 1, tid=4 + tid, thread=thread))
    spans = read(events).spans.to_pylist()
    assert [s["layer"] for s in spans if s["name"] == "AddmmBackward0"] == ["A/1", "B/1"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("TOP(Net)::forward.fc(Linear)::forward", "Net/fc"),
        ("top(AlexNet)::forward.SELF(AlexNet)::_forward_impl.features(Sequential)::forward", "AlexNet/features"),
        ("", None),
        ("no hierarchy", None),
    ],
)
def test_path_of_a_module_hierarchy(text, path):
    assert path_of_hierarchy(text) == path


def test_operators_that_carry_their_hierarchy():
    events = [
        event("aten::linear", "cpu_op", 0, 10, **{"Module Hierarchy": "TOP(Net)::forward.fc(Linear)::forward"}),
        event("aten::addmm", "cpu_op", 1, 5, **{"Module Hierarchy": ""}),
    ]
    assert told(read(events).spans) == {
        ("aten::linear", 0): ("Net/fc", "forward"),
        ("aten::addmm", 1): ("Net/fc", "forward"),
    }


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/kineto")
def test_every_kernel_of_a_real_model_has_its_layer():
    import gzip

    spans = read_kineto(
        gzip.decompress((FOLDER / "h100_bert_small.json.gz").read_bytes()), CaptureRequest()
    ).spans.to_pylist()
    kernels = [span for span in spans if span["level"] == "kernel"]
    assert len(kernels) == 61
    assert all(span["layer"].startswith("BertLMHeadModel_0/") for span in kernels)
    assert len({span["layer"] for span in spans if span["level"] == "layer" and span["layer"]}) == 84
