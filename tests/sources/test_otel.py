"""OpenTelemetry traces: made by hand, in every wording that exporters use, and damaged."""

import json

import pytest

from phasepoint.core.errors import SourceError
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.tracing.otel import read_otel

START = 1_700_000_000_000_000_000


def span(name, start, end, /, *, parent="", id=None, events=0, **attributes):
    values = {int: "intValue", str: "stringValue", float: "doubleValue", bool: "boolValue"}
    return {
        "traceId": "5b8aa5a2d2c872e8321cf37308d69df2", "spanId": id or name, "parentSpanId": parent, "name": name,
        "kind": 1, "startTimeUnixNano": str(START + start), "endTimeUnixNano": str(START + end),
        "attributes": [
            {"key": key, "value": {values[type(value)]: str(value) if type(value) is int else value}}
            for key, value in attributes.items()
        ],
        "events": [{"timeUnixNano": str(START), "name": "e"}] * events, "links": [],
    }  # fmt: skip


def document(*spans, service="trainer", scopes="scopeSpans", **resource):
    attributes = {"service.name": service, **resource}
    listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    return {
        "resourceSpans": [
            {"resource": {"attributes": listed}, scopes: [{"scope": {"name": "s"}, "spans": list(spans)}]}
        ]
    }


def read(made, **options):
    return read_otel(json.dumps(made).encode(), CaptureRequest(**options))


def spans_of(capture):
    return {one["name"]: one for one in capture.spans.to_pylist()}


def test_spans_their_parents_and_their_services():
    capture = read(document(span("epoch", 0, 1000), span("forward", 100, 400, parent="epoch"), rank="0"))
    found = spans_of(capture)
    assert (found["forward"]["start_ps"], found["forward"]["dur_ps"]) == (100_000, 300_000)
    assert found["forward"]["parent"] == found["epoch"]["span"]
    assert (found["forward"]["track"], found["forward"]["layer"], found["forward"]["level"]) == (
        "trainer", "epoch/forward", "layer",
    )  # fmt: skip
    assert capture.start_unix_ns == START


def test_steps_are_numbered_by_an_attribute():
    capture = read(document(*(span("train_step", 100 * i, 100 * i + 90, id=f"{i:016x}1", step=i) for i in range(4))))
    assert capture.steps["step"].to_pylist() == [0, 1, 2, 3]
    assert capture.steps["start_ps"].to_pylist() == [0, 100_000, 200_000, 300_000]


def test_xsp_levels_are_read_here_too():
    capture = read(
        document(
            span("predict", 0, 900, trace_level="MODEL_TRACE"),
            span("conv1", 10, 500, parent="predict", trace_level="FRAMEWORK_TRACE"),
            span("cudaLaunchKernel", 20, 30, parent="conv1", trace_level="SYSTEM_LIBRARY_TRACE", correlation_id=4),
            span("gpu_kernel", 50, 90, cupti_type="activity", device_id=0, correlation_id=4, name="gemm"),
        )
    )
    gemm = spans_of(capture)["gemm"]
    assert (gemm["device"], gemm["layer"], gemm["launch"]) == (
        "gpu:0", "conv1", spans_of(capture)["cudaLaunchKernel"]["span"],
    )  # fmt: skip
    assert capture.steps["dur_ps"].to_pylist() == [900_000]


def snake(value):
    """The same as Python's protobuf writes it with the fields' own names."""
    names = {
        "resourceSpans": "resource_spans", "scopeSpans": "scope_spans", "traceId": "trace_id", "spanId": "span_id",
        "parentSpanId": "parent_span_id", "startTimeUnixNano": "start_time_unix_nano",
        "endTimeUnixNano": "end_time_unix_nano", "intValue": "int_value", "stringValue": "string_value",
    }  # fmt: skip
    if isinstance(value, dict):
        return {names.get(key, key): snake(one) for key, one in value.items()}
    return [snake(one) for one in value] if isinstance(value, list) else value


def test_every_wording_gives_the_same():
    made = (span("a", 0, 100, step=1), span("b", 10, 20, parent="a", shape="x"))
    expected = read(document(*made)).spans
    assert read(document(*made, scopes="instrumentationLibrarySpans")).spans.equals(expected)
    assert read(snake(document(*made))).spans.equals(expected)
    numbers = document(*made)
    for one in numbers["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        one["startTimeUnixNano"] = int(one["startTimeUnixNano"])
    assert read(numbers).spans.equals(expected)


def test_one_object_a_line():
    lines = [
        document(span("a", 0, 100)),
        document(span("b", 10, 20, parent="a"), service="loader"),
        {"resourceLogs": []},
    ]
    capture = read_otel("\n".join(json.dumps(line) for line in lines).encode(), CaptureRequest())
    found = spans_of(capture)
    assert (found["b"]["parent"], found["b"]["track"], found["a"]["track"]) == (0, "loader", "trainer")
    assert capture.conversion["problem"].to_pylist() == [None]
    assert ("metrics or logs", 1) in [(a["what"], a["events"]) for a in capture.accounts.to_pylist()]


def test_instances_of_a_service_stand_apart():
    made = document(span("a", 0, 10), **{"process.pid": "77"})
    assert read(made).spans["track"].to_pylist() == ["trainer 77"]


def test_every_span_and_event_is_accounted_for():
    unknown = span("open", 5, 9) | {"endTimeUnixNano": "0"}
    capture = read(document(span("good", 0, 5, events=2), span("reversed", 9, 5), unknown, 7))
    assert {(a["fate"], a["what"], a["reason"]): a["events"] for a in capture.accounts.to_pylist()} == {
        ("kept", "span", ""): 1,
        ("skipped", "span", "ends before it starts"): 1,
        ("skipped", "span", "without a start or an end"): 1,
        ("skipped", "span", "no JSON object"): 1,
        ("skipped", "event", "an instant, no stretch of work"): 2,
    }


def test_times_count_from_the_epoch():
    capture = read(document(span("a", 50, 60)), epoch_unix_ns=START - 50)
    assert capture.spans["start_ps"].to_pylist() == [100_000]


def test_truncated_files_are_read_as_far_as_they_go():
    text = json.dumps(document(*(span(f"s{i}", i, i + 1) for i in range(40)))).encode()
    whole = read_otel(text[: len(text) // 2], CaptureRequest()).conversion.to_pylist()[0]
    assert 10 < whole["spans"] < 25
    assert whole["problem"].startswith("damaged JSON")
    lines = b"\n".join([text, text, text[: len(text) // 2]])
    some = read_otel(lines, CaptureRequest()).conversion.to_pylist()[0]
    assert 90 < some["spans"] < 105
    assert some["problem"].startswith("damaged JSON")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"resourceLogs": []}', b"nonsense"])
def test_what_is_no_trace_of_opentelemetry(text):
    with pytest.raises(SourceError, match=r'no (JSON|spans of OpenTelemetry).*expected \{"resourceSpans"'):
        read_otel(text, CaptureRequest())
