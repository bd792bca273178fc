"""What TensorFlow writes: a recording of a small job, and a fresh one where TensorFlow is installed."""

import gzip
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from slow_oracle import busy_ns
from xplane_schema.build import PlaneBuilder, new_space
from xplane_schema.messages import XSpace

from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane.lines import TfOp, category_of_type, layers_and_directions, read_op
from phasepoint.sources.xplane.reader import read_xplane

HERE = Path(__file__).parent
RECORDED = HERE / "tensorflow_cpu.xplane.pb.gz"
US = 1_000_000


def events_of(data):
    """Events of the host as (name, start, end), straight from the schema."""
    space = XSpace.FromString(data)
    for plane in space.planes:
        names = {entry.key: entry.value.name for entry in plane.event_metadata}
        for line in plane.lines:
            for event in line.events:
                start = line.timestamp_ns * 1000 + event.offset_ps
                yield names[event.metadata_id], start, start + event.duration_ps


def check(data, steps):
    capture = read_xplane(data, CaptureRequest())
    found = list(events_of(data))
    marks = sorted((start, end) for name, start, end in found if name == "train")
    assert capture.steps["step"].to_pylist() == list(range(steps))
    assert capture.steps["start_ps"].to_pylist() == [start for start, _ in marks]
    assert capture.steps["dur_ps"].to_pylist() == [end - start for start, end in marks]
    ops = [s for s in capture.spans.to_pylist() if s["level"] == "op"]
    expected = [(start, end) for name, start, end in found if ":" in name and "::" not in name and ": " not in name]
    assert len(ops) == len(expected) > 10 * steps
    assert {s["device"] for s in ops} == {"cpu:0"}
    assert busy_ns([(s["start_ps"], s["start_ps"] + s["dur_ps"]) for s in ops]) == busy_ns(expected)
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["problem"]) == (len(found), None)
    assert sum(a["events"] for a in capture.accounts.to_pylist()) == len(found)
    return capture, ops


def test_a_recorded_training_loop():
    capture, ops = check(gzip.decompress(RECORDED.read_bytes()), 6)
    layers = {(s["name"].partition(":")[0], s["direction"]): s["layer"] for s in ops}
    assert layers["dense_1/Relu", "forward"] == "dense_1"
    assert layers["dense_1/matmul", "forward"] == "dense_1"
    assert layers["dense_1/matmul/ReadVariableOp", "forward"] == "dense_1"
    assert layers["gradient_tape/dense_1/ReluGrad", "backward"] == "dense_1"
    assert layers["gradient_tape/dense_2/matmul/MatMul_1", "backward"] == "dense_2"
    per_step = [s for s in ops if s["name"] == "dense_1/Relu:Relu"]
    assert sorted(s["step"] for s in per_step) == [0, 1, 2, 3, 4, 5]
    for step in capture.steps.to_pylist():
        parts = [b["wall_ps"] for b in capture.breakdowns.to_pylist() if b["step"] == step["step"]]
        assert sum(parts) == step["dur_ps"]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_a_fresh_recording(tmp_path):
    subprocess.run([sys.executable, HERE / "recorded_tensorflow.py", tmp_path], check=True, capture_output=True)
    check(gzip.decompress((tmp_path / RECORDED.name).read_bytes()), 6)


def test_beside_an_accelerator_operations_are_the_hosts():
    space = new_space()
    host = PlaneBuilder(space, "/host:CPU")
    host.event("executor", "model/dense/MatMul:MatMul", 0, 10 * US)
    host.event("executor", "cuLaunchKernel", 2 * US, US, correlation_id=5)
    PlaneBuilder(space, "/device:GPU:0").event("Stream #7", "gemm", 20 * US, 5 * US, correlation_id=5)
    found = {s["name"]: s for s in read_xplane(space.SerializeToString(), CaptureRequest()).spans.to_pylist()}
    op = found["model/dense/MatMul:MatMul"]
    assert (op["device"], op["level"], op["category"], op["layer"]) == ("host", "op", "host", "model/dense")
    assert (found["gemm"]["launch"], found["cuLaunchKernel"]["parent"]) == (found["cuLaunchKernel"]["span"], op["span"])


@pytest.mark.parametrize("wording", ["train#step_num={},_r=1#", "train#id=7,step_num={}#"])
def test_numbers_that_still_stand_in_the_name(wording):
    space = new_space()
    host = PlaneBuilder(space, "/host:CPU")
    for step in (3, 4):
        host.event("python", wording.format(step), step * 100 * US, 90 * US)
        host.event("python", "model/MatMul:MatMul", step * 100 * US + US, US)
    capture = read_xplane(space.SerializeToString(), CaptureRequest())
    assert capture.steps["step"].to_pylist() == [3, 4]
    assert {s["level"] for s in capture.spans.to_pylist() if s["name"].startswith("train")} == {"model"}


def test_numbered_events_that_are_no_roots_mark_steps_too():
    space = new_space()
    host = PlaneBuilder(space, "/host:CPU")
    for step in (0, 1, 2):
        host.event("python", "train", step * 100 * US, 90 * US, step_num=step)
    assert read_xplane(space.SerializeToString(), CaptureRequest()).steps["step"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("a/b:MatMul", TfOp("a/b", "MatMul")),
        ("StatefulPartitionedCall/a:_MklMatMul", TfOp("a", "_MklMatMul")),
        ("Iterator::Root", None),
        ("EagerLocalExecute: MatMul", None),
        ("$profiler.py:101 start", None),
        ("jit_f:lower", None),
    ],
)
def test_names_of_operations(text, op):
    assert read_op(text) == op


def test_categories_of_types():
    types = ("MatMul", "ReadVariableOp", "Transpose", "CollectiveReduceV2", "_HostSend", "IteratorGetNext")
    assert [category_of_type(one) for one in types] == [
        "compute", "host", "data_movement", "communication", "communication", "host",
    ]  # fmt: skip


def test_updates_belong_to_the_optimizer():
    update = TfOp("Adam/Adam/update/ResourceApplyAdam", "ResourceApplyAdam")
    assert layers_and_directions([update]) == {update: ("Adam/Adam/update", "optimizer")}
