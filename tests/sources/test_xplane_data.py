"""Real traces of others, from the folder that PHASEPOINT_DATA names."""

import os
from pathlib import Path

import pyarrow.compute as pc
import pytest
from slow_oracle import busy_ns
from xplane_schema.messages import XSpace

from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane.reader import read_xplane

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / "xplane"
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/xplane"),
]


def read(name):
    return read_xplane((FOLDER / name).read_bytes(), CaptureRequest())


@pytest.mark.parametrize("name", ["gpu_jax_te_attention.xplane.pb", "mi300_jax_conv.xplane.pb"])
def test_real_gpu_traces_account_for_every_event_and_close(name):
    capture = read(name)
    row = capture.conversion.to_pylist()[0]
    assert row["events"] == row["spans"] + row["ignored_events"]
    assert (row["dropped_events"], row["problem"]) == (0, None)
    for step in capture.steps.to_pylist():
        for device in set(capture.breakdowns.column("device").to_pylist()):
            mask = pc.and_(
                pc.equal(capture.breakdowns.column("step"), step["step"]),
                pc.equal(capture.breakdowns.column("device").cast("string"), device),
            )
            assert pc.sum(capture.breakdowns.filter(mask).column("wall_ps")).as_py() == step["dur_ps"]


def test_kernels_of_an_attention_layer():
    capture = read("gpu_jax_te_attention.xplane.pb")
    kernels = [s for s in capture.spans.to_pylist() if s["level"] == "kernel"]
    assert len(kernels) == 150
    assert {s["device"] for s in kernels} == {"gpu:0"}
    assert capture.conversion.column("orphan_events").to_pylist() == [0]
    assert capture.steps.num_rows == 5
    assert all(s["step"] is not None for s in kernels)


def test_a_convolution_spread_over_eight_gpus():
    capture = read("mi300_jax_conv.xplane.pb")
    assert capture.steps.num_rows == 10
    devices = {s["device"] for s in capture.spans.to_pylist() if s["level"] == "kernel"}
    assert devices == {"gpu:0", "gpu:7"}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.xplane.pb")) if FOLDER.is_dir() else [], ids=lambda f: f.stem)
def test_streams_match_the_oracle(file):
    data = file.read_bytes()
    capture = read_xplane(data, CaptureRequest())
    expected = {}
    for plane in XSpace.FromString(data).planes:
        for line in plane.lines if plane.name.startswith("/device:GPU:") else ():
            own = expected.setdefault(f"gpu:{plane.name.rpartition(':')[2]}", [])
            if line.name.startswith("Stream"):
                own += [
                    (line.timestamp_ns * 1000 + e.offset_ps, line.timestamp_ns * 1000 + e.offset_ps + e.duration_ps)
                    for e in line.events
                ]
    found = {}
    for span in capture.spans.to_pylist():
        if span["level"] == "kernel":
            found.setdefault(span["device"], []).append((span["start_ps"], span["start_ps"] + span["dur_ps"]))
            assert span["launch"] is not None
    assert {device: busy_ns(own) for device, own in expected.items() if own} == {
        device: busy_ns(own) for device, own in found.items()
    }
    assert sum(a["events"] for a in capture.accounts.to_pylist()) == capture.conversion["events"][0].as_py()


def test_copies_between_gpus_know_their_bytes():
    spans = read("mi300_jax_conv.xplane.pb").spans.to_pylist()
    copies = [s for s in spans if s["name"] == "CopyDeviceToDevice"]
    assert len(copies) == 53
    assert {(s["category"], s["bytes"]) for s in copies} == {("data_movement", 655360)}
