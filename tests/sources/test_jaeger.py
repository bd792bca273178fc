"""Jaeger's span JSON: made by hand, random, damaged, and XSP's own example."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_oracle import busy_ns

from phasepoint.core.errors import SourceError
from phasepoint.sources.events import layers
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.ingest.trace_file import read_file
from phasepoint.sources.tracing import forest
from phasepoint.sources.tracing.jaeger import read_jaeger

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / "jaeger"
US = 10**6
START = 1_600_000_000_000_000


def span(name, start, dur, /, *, id=None, parent=None, process="p1", logs=0, **tags):
    return {
        "traceID": "t", "spanID": id or name, "operationName": name, "startTime": START + start, "duration": dur,
        "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": parent}] if parent else [],
        "tags": [{"key": key.replace("__", "."), "type": "string", "value": value} for key, value in tags.items()],
        "logs": [{"timestamp": START, "fields": []}] * logs, "processID": process,
    }  # fmt: skip


def document(*spans):
    processes = {"p1": {"serviceName": "agent"}, "p2": {"serviceName": "server"}}
    return {"data": [{"traceID": "t", "spans": list(spans), "processes": processes}]}


def read(*spans, **options):
    return read_jaeger(json.dumps(document(*spans)).encode(), CaptureRequest(**options))


def spans_of(capture):
    return {one["name"]: one for one in capture.spans.to_pylist()}


def xsp_spans():
    """A prediction of two layers; every call names the prediction as its parent, as XSP's do."""
    layer = {"trace_level": "FRAMEWORK_TRACE", "thread_id": "5"}
    call = {"trace_level": "HARDWARE_TRACE", "function_name": "cuLaunchKernel"}
    execution = {
        "trace_level": "HARDWARE_TRACE", "cupti_type": "activity", "device_id": "1", "stream_id": "15",
        "grid_dim": "[4 2 1]", "block_dim": "[128 1 1]", "static_sharedMemory": "512", "dynamic_sharedMemory": "16",
        "context_id": "1",
    }  # fmt: skip
    return (
        span("predict", 0, 1000, trace_level="APPLICATION_TRACE"),
        span("Convolution", 10, 300, id="l1", parent="predict", layer_sequence_index="2", **layer),
        span("Convolution", 320, 300, id="l2", parent="predict", layer_sequence_index="4", **layer),
        span("launch_kernel", 20, 10, id="c1", parent="predict", correlation_id="7", **call),
        span("launch_kernel", 330, 10, id="c2", parent="predict", correlation_id="8", **call),
        span("gpu_kernel", 400, 50, id="k1", parent="predict", correlation_id="7", name="gemm", **execution),
        span(
            "gpu_kernel", 460, 50, id="k2", parent="predict", correlation_id="8", name="relu",
            flop_count_sp="4096", **execution,
        ),
        span("gpu_memcpy", 5, 3, parent="predict", correlation_id="3", copy_kind="HtoD", bytes="64", **execution),
    )  # fmt: skip


def test_xsp_levels_kernels_and_layers():
    capture = read(*xsp_spans())
    rows = capture.spans.to_pylist()
    found = {row["name"]: row for row in rows}
    by_id = {row["span"]: row for row in rows}
    gemm, relu, copy = found["gemm"], found["relu"], found["Memcpy HtoD"]
    assert (gemm["device"], gemm["track"], gemm["level"], gemm["dur_ps"]) == (
        "gpu:1", "gpu:1 stream 15", "kernel", 50 * US,
    )  # fmt: skip
    assert (gemm["layer"], relu["layer"], copy["layer"]) == ("Convolution_2", "Convolution_4", None)
    call = by_id[gemm["launch"]]
    assert (call["name"], call["level"], by_id[call["parent"]]["layer"]) == (
        "cuLaunchKernel", "runtime", "Convolution_2",
    )  # fmt: skip
    assert (copy["bytes"], copy["category"], copy["launch"]) == (64, "data_movement", None)
    assert capture.conversion["orphan_events"].to_pylist() == [1]
    assert {r["level"] for r in rows if r["name"] == "Convolution"} == {"layer"}
    assert found["predict"]["level"] == "model"


def test_xsp_steps_launches_and_counters():
    capture = read(*xsp_spans())
    assert capture.steps.select(["step", "start_ps", "dur_ps"]).to_pylist() == [
        {"step": 0, "start_ps": 0, "dur_ps": 1000 * US}
    ]
    launches = capture.launches.to_pylist()
    assert [(one["grid"], one["block"], one["shared_bytes"]) for one in launches] == [("4,2,1", "128,1,1", 528)] * 3
    (metric,) = capture.metrics.to_pylist()
    relu = spans_of(capture)["relu"]
    assert (metric["span"], metric["name"], metric["value"]) == (relu["span"], "flop_count_sp", 4096.0)


@pytest.mark.parametrize(
    "tag", [{"grid_dim": f"[{2**63} 1 1]"}, {"block_dim": f"[1 {10**30} 1]"}, {"static_sharedMemory": f"{2**63 - 1}"}]
)
def test_dimensions_beyond_64_bits_are_not_known(tag):
    """Found by fuzzing."""
    spans = [
        one | {"tags": [{"key": t["key"], "value": tag.get(t["key"], t["value"])} for t in one["tags"]]}
        for one in xsp_spans()
    ]
    launches = read(*spans).launches.to_pylist()
    assert len(launches) == 3
    known = [(one["grid"], one["block"], one["shared_bytes"]) for one in launches]
    assert all(sum(fact is None for fact in one) == 1 for one in known), known


def test_parents_are_those_that_spans_name():
    capture = read(
        span("request", 0, 100), span("late child", 90, 50, parent="request", process="p2"), span("other", 10, 20)
    )
    found = spans_of(capture)
    assert found["late child"]["parent"] == found["request"]["span"]
    assert (found["request"]["track"], found["late child"]["track"]) == ("agent", "server")
    assert found["late child"]["layer"] == "request/late child"


def test_spans_that_do_not_nest_stand_on_tracks_of_their_own():
    capture = read(span("a", 0, 50), span("b", 20, 60), span("c", 55, 5), span("d", 30, 10, parent="b"))
    assert {one["name"]: one["track"] for one in capture.spans.to_pylist()} == {
        "a": "agent", "b": "agent (2)", "c": "agent", "d": "agent (2)",
    }  # fmt: skip
    assert capture.conversion["misnested_events"].to_pylist() == [0]


def test_more_calls_at_once_than_tracks_are_tried_open_tracks_of_their_own(monkeypatch):
    monkeypatch.setattr(forest, "MOST_LANES", 2)
    capture = read(*(span(f"call {i}", i, 100) for i in range(5)))
    assert capture.spans["track"].to_pylist() == ["agent", *(f"agent ({i})" for i in range(2, 6))]
    assert capture.conversion["misnested_events"].to_pylist() == [0]


def test_paths_of_spans_that_each_hold_the_next_stay_short():
    count = 3 * layers.MOST_DEPTH
    capture = read(
        *(span("call", i, 2 * (count - i), id=str(i), parent=str(i - 1) if i else None) for i in range(count))
    )
    paths = capture.spans["layer"].to_pylist()
    assert paths[:2] == ["call", "call/call"]
    assert max(len(path) for path in paths if path) <= layers.MOST_PATH
    assert capture.spans.num_rows == count
    assert capture.spans["parent"].to_pylist() == [None, *range(count - 1)]


def test_numbered_spans_are_steps():
    by_name = read(*(span(f"step {i}", 100 * i, 80) for i in range(3)))
    by_tag = read(*(span("train", 100 * i, 80, id=str(i), step=i + 5) for i in range(3)))
    assert by_name.steps["step"].to_pylist() == [0, 1, 2]
    assert by_tag.steps["step"].to_pylist() == [5, 6, 7]
    assert by_tag.steps["dur_ps"].to_pylist() == [80 * US] * 3


def test_parents_in_a_loop_or_missing_are_said():
    capture = read(
        span("a", 0, 9, parent="b"), span("b", 1, 5, parent="a"), span("c", 20, 5, parent="gone"), span("d", 40, 5)
    )
    assert capture.conversion["problem"][0].as_py() == (
        "1 spans name a parent that is not in the file; 2 spans are their own ancestors"
    )
    assert spans_of(capture)["a"]["parent"] is None


def test_every_span_and_log_is_accounted_for():
    bad = [span("reversed", 0, -5), span("timeless", 0, 5) | {"startTime": None}, span("odd", 0, "x"), 7]
    capture = read(span("good", 0, 5, logs=3), *bad)
    assert {(a["fate"], a["what"], a["reason"]): a["events"] for a in capture.accounts.to_pylist()} == {
        ("kept", "span", ""): 1,
        ("skipped", "span", "ends before it starts"): 1,
        ("skipped", "span", "without a start or an end"): 2,
        ("skipped", "span", "no JSON object"): 1,
        ("skipped", "log", "an instant, no stretch of work"): 3,
    }
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["spans"], row["ignored_events"], row["dropped_events"]) == (8, 1, 4, 3)


def test_times_count_from_the_epoch():
    assert read(span("a", 5, 1)).start_unix_ns == (START + 5) * 1000
    capture = read(span("a", 5, 1), epoch_unix_ns=START * 1000)
    assert capture.spans["start_ps"].to_pylist() == [5 * US]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda d: d["data"],
        lambda d: d["data"][0],
        lambda d: {"trace_information": d},
        lambda d: [one | {"process": {"serviceName": "agent"}} for one in d["data"][0]["spans"]],
    ],
)
def test_wherever_a_file_keeps_its_spans(wrapped):
    made = document(span("a", 0, 10), span("b", 2, 3, parent="a"))
    capture = read_jaeger(json.dumps(wrapped(made)).encode(), CaptureRequest())
    assert capture.spans.equals(read(span("a", 0, 10), span("b", 2, 3, parent="a")).spans)


def test_a_truncated_file_is_read_as_far_as_it_goes():
    text = json.dumps(document(*(span(f"s{i}", i, 1) for i in range(50)))).encode()
    row = read_jaeger(text[: len(text) // 2], CaptureRequest()).conversion.to_pylist()[0]
    assert 15 < row["spans"] < 30
    assert row["problem"].startswith("damaged JSON")


@pytest.mark.parametrize("text", [b"", b"{}", b"[1, 2]", b'{"data": []}', b"nonsense"])
def test_what_is_no_file_of_jaeger(text):
    with pytest.raises(SourceError, match=r'no (JSON|spans of Jaeger).*expected \{"data"'):
        read_jaeger(text, CaptureRequest())


rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(-2, 60), st.integers(0, 5), st.integers(-1, 12)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60)
@given(rows)
def test_random_traces_match_the_oracle(made):
    listed = []
    for i, (device, start, dur, correlation, parent) in enumerate(made):
        above = f"s{parent}" if 0 <= parent < i else None
        if device:
            tags = {"cupti_type": "activity", "device_id": str(device), "correlation_id": str(correlation)}
            listed.append(span("gpu_kernel", start, dur, id=f"s{i}", parent=above, **tags))
        else:
            listed.append(span("f", start, dur, id=f"s{i}", parent=above, correlation_id=str(correlation)))
    capture = read(*listed)
    good = [row for row in made if row[2] >= 0]
    for device in (1, 2):
        own = [s for s in capture.spans.to_pylist() if s["device"] == f"gpu:{device}"]
        expected = busy_ns([(start, start + dur) for d, start, dur, _, _ in good if d == device])
        assert busy_ns([(s["start_ps"], s["start_ps"] + s["dur_ps"]) for s in own]) == expected * US
    launched = {row[3] for row in good if not row[0]}
    assert capture.conversion["orphan_events"].to_pylist() == [sum(r[0] > 0 and r[3] not in launched for r in good)]
    total = capture.conversion.to_pylist()[0]
    assert total["events"] == len(made) == sum(a["events"] for a in capture.accounts.to_pylist())
    assert total["misnested_events"] == 0


def test_a_trace_of_six_weeks_is_accounted_for(tmp_path):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(document(span("early", 0, 5), span("late", 4_000_000 * US, 0))))
    with read_file(file, "jaeger") as trace:
        (step,) = trace.steps.to_pylist()
        rows = [row for tables in trace.tables() for row in tables["breakdowns"].to_pylist()]
    assert sum(row["wall_ps"] for row in rows) == step["dur_ps"] == 4 * 10**18


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/jaeger")
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")) if FOLDER.is_dir() else [], ids=lambda f: f.stem)
def test_real_traces_match_the_oracle(file):
    capture = read_jaeger(file.read_bytes(), CaptureRequest())
    executions, total = [], 0
    for trace in json.loads(file.read_bytes())["data"]:
        for one in trace["spans"]:
            total += 1
            if one["operationName"] in ("gpu_kernel", "gpu_memcpy", "gpu_memset"):
                executions.append((one["startTime"], one["startTime"] + one["duration"]))
    kernels = [s for s in capture.spans.to_pylist() if s["level"] == "kernel"]
    assert len(kernels) == len(executions)
    assert busy_ns([(s["start_ps"], s["start_ps"] + s["dur_ps"]) for s in kernels]) == busy_ns(executions) * US
    assert capture.spans.num_rows == total
    row = capture.conversion.to_pylist()[0]
    assert sum(a["events"] for a in capture.accounts.to_pylist()) == row["events"]


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/jaeger")
def test_kernels_of_alexnet_belong_to_its_layers():
    """Of 41 kernels, the launches of 40 begin within a layer, counted from the file by hand."""
    capture = read_jaeger((FOLDER / "xsp_example_trace.json").read_bytes(), CaptureRequest())
    kernels = [s for s in capture.spans.to_pylist() if s["level"] == "kernel" and s["category"] == "compute"]
    assert len(kernels) == 41
    assert sum(s["layer"] is not None for s in kernels) == 40
    assert sum(s["layer"] == "Convolution_2" for s in kernels) == 2
