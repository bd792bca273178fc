"""`phasepoint import` of every format: a small file becomes a run that closes, a broken one ends with a message."""

import json
import sqlite3

import pytest

from phasepoint.store import open_run


def nsys(path):
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs);
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 200, 1, 7);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, globalPid, correlationId);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (300, 500, 0, 0, 7);
    """)
    connection.close()


def rocprof(path):
    place = {"agent_id": {"handle": 1}, "kernel_id": 5}
    records = {
        "hip_api": [{"start_timestamp": 100, "end_timestamp": 200, "correlation_id": {"internal": 7}}],
        "kernel_dispatch": [
            {"start_timestamp": 300, "end_timestamp": 500, "correlation_id": {"internal": 7}, "dispatch_info": place}
        ],
    }
    agents = [{"id": {"handle": 1}, "type": 2, "product_name": "AMD Instinct MI300X"}]
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [{"agents": agents, "buffer_records": records}]}))


def jaeger(path):
    def span(name, start, dur, **tags):
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        return {"spanID": name, "operationName": name, "startTime": start, "duration": dur, "tags": listed}

    kernel = span("gpu_kernel", 300, 200, correlation_id="7", device_id="0", cupti_type="activity")
    spans = [span("cuLaunchKernel", 100, 100, correlation_id="7"), kernel]
    path.write_text(json.dumps({"data": [{"traceID": "t", "spans": spans}]}))


def otel(path):
    def span(name, start, end, **attributes):
        values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        return {"spanId": name, "name": name, "startTimeUnixNano": start, "endTimeUnixNano": end, "attributes": values}

    kernel = span("gpu_kernel", "300", "500", correlation_id="7", device_id="0", cupti_type="activity")
    spans = [span("cuLaunchKernel", "100", "200", correlation_id="7"), kernel]
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))


MAKERS = {one.__name__: one for one in (nsys, rocprof, jaeger, otel)}


@pytest.mark.parametrize("format", MAKERS)
def test_a_small_file_becomes_a_run(phasepoint, tmp_path, format):
    MAKERS[format](tmp_path / "file")
    done = phasepoint("import", tmp_path / "file", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    (file,) = json.loads(done.out)["files"]
    assert (file["format"], file["events"], file["spans"], file["orphans"]) == (format, 2, 2, 0)
    run = open_run(tmp_path / "run")
    scale = 1_000_000 if format == "jaeger" else 1000
    walls = {row["category"]: row["wall_ps"] for row in run.table("breakdowns").to_pylist()}
    assert walls == {
        "compute": 200 * scale, "communication": 0, "data_movement": 0, "host": 100 * scale, "idle": 100 * scale,
    }  # fmt: skip
    kernel = next(row for row in run.table("spans").to_pylist() if row["level"] == "kernel")
    assert (kernel["start_ps"], kernel["launch"], kernel["device"]) == (200 * scale, 0, "gpu:0")
    assert phasepoint("stack", tmp_path / "run", "--analysis", "device-time").code == 0


def test_files_of_one_run_are_aligned_by_their_clocks(phasepoint, tmp_path):
    nsys(tmp_path / "file")
    assert phasepoint("import", tmp_path / "file", "--out", tmp_path / "run").code == 0
    (shard,) = open_run(tmp_path / "run").shards
    assert shard.session.epoch_unix_ns == 1_700_000_000_000_000_100


BROKEN = {
    "nsys": (b"SQLite format 3\x00" + bytes(100), "nsys export --type sqlite"),
    "rocprof": (b'{"rocprofiler-sdk-tool": 5}', "rocprofv3 --output-format json"),
    "jaeger": (b'{"data": [{"traceID": "t", "spans": 5}]}', "as Jaeger's UI saves it"),
    "otel": (b'{"resourceSpans": 5}', "nothing was imported"),
}


@pytest.mark.parametrize("format", BROKEN)
def test_a_broken_file_ends_with_what_was_expected(phasepoint, tmp_path, format):
    content, words = BROKEN[format]
    (tmp_path / "file").write_bytes(content)
    done = phasepoint("import", tmp_path / "file", "--out", tmp_path / "run")
    assert done.code == 7, done.err
    assert done.err.startswith(f"error: {tmp_path / 'file'}: ")
    assert words in done.err
    assert not (tmp_path / "run").exists()
