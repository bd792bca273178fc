"""Exports of Nsight Systems: made by hand, random, damaged, and a real one."""

import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_export import GLOBAL_TID, PROCESS, Export
from slow_oracle import busy_ns

from phasepoint.core.errors import SourceError
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.nsys.reader import read_nsys

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / "nsys"
NS = 1000


@pytest.fixture
def export(tmp_path):
    made = Export(tmp_path / "report.sqlite")
    yield made
    made.connection.close()


def read(export, **options):
    return read_nsys(export.close(), CaptureRequest(**options))


def spans(capture):
    return {span["name"]: span for span in capture.spans.to_pylist()}


def accounts(capture):
    return {(a["fate"], a["what"], a["reason"]): a["events"] for a in capture.accounts.to_pylist()}


def test_a_kernel_its_launch_and_the_ranges_around_it(export):
    export.range("encoder", 100, 900).range("aten::mm, seq = 3, op_id = 9, sizes = [[2, 3], [3, 4]]", 200, 600)
    export.call("cudaLaunchKernel_v7000", 300, 400, 5)
    export.kernel(
        "gemm<float>", 500, 800, correlation=5, gridX=4, gridY=2, gridZ=1, blockX=128, blockY=1, blockZ=1,
        registersPerThread=32, staticSharedMemory=1024, dynamicSharedMemory=512,
    )  # fmt: skip
    capture = read(export)
    found = spans(capture)
    kernel, call, op, layer = (found[n] for n in ("gemm<float>", "cudaLaunchKernel_v7000", "aten::mm", "encoder"))
    assert (kernel["start_ps"], kernel["dur_ps"]) == (400 * NS, 300 * NS)
    assert (kernel["device"], kernel["track"], kernel["level"]) == ("gpu:0", "gpu:0 stream 7", "kernel")
    assert (kernel["launch"], call["parent"], op["parent"]) == (call["span"], op["span"], layer["span"])
    assert (op["level"], op["device"], op["shape"]) == ("op", "host", "[[2, 3], [3, 4]]")
    assert [one["layer"] for one in (layer, op, call, kernel)] == ["encoder"] * 4
    assert capture.launches.to_pylist() == [
        {
            "window": 0, "span": kernel["span"], "grid": "4,2,1", "block": "128,1,1", "registers": 32,
            "shared_bytes": 1536, "occupancy_ratio": None, "graph": None,
        }
    ]  # fmt: skip
    assert capture.conversion["orphan_events"].to_pylist() == [0]


def test_nested_layers_give_paths(export):
    export.range("decoder", 0, 100).range("attention", 10, 50).call("cudaLaunchKernel", 20, 30, 1)
    export.kernel("k", 200, 300, correlation=1)
    found = spans(read(export))
    assert found["k"]["layer"] == "decoder/attention"
    assert found["attention"]["layer"] == "decoder/attention"


def test_copies_and_fills_have_bytes(export):
    place = {"deviceId": 1, "streamId": 3, "globalPid": PROCESS}
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=10, end=20, bytes=4096, copyKind=1, **place)
    export.add("CUPTI_ACTIVITY_KIND_MEMSET", start=30, end=40, bytes=64, **place)
    found = spans(read(export))
    assert [(s["name"], s["bytes"], s["category"], s["device"]) for s in found.values()] == [
        ("Memcpy HtoD", 4096, "data_movement", "gpu:1"),
        ("Memset", 64, "data_movement", "gpu:1"),
    ]


def test_kernels_of_a_graph_share_one_launch(export):
    export.call("cudaGraphLaunch_v10000", 0, 10, 8)
    export.kernel("a", 20, 30, correlation=8, graphNodeId=101).kernel("b", 30, 45, correlation=8, graphNodeId=102)
    capture = read(export)
    found = spans(capture)
    assert found["a"]["launch"] == found["b"]["launch"] == found["cudaGraphLaunch_v10000"]["span"]
    assert capture.launches["graph"].to_pylist() == ["101", "102"]


def test_a_graph_traced_whole_is_one_execution(export):
    export.call("cudaGraphLaunch", 0, 10, 8)
    export.add(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=20, end=60, deviceId=0, streamId=7, correlationId=8,
        globalPid=PROCESS, graphId=5,
    )  # fmt: skip
    graph = spans(read(export))["CUDA graph 5"]
    assert (graph["dur_ps"], graph["device"], graph["level"]) == (40 * NS, "gpu:0", "kernel")
    assert graph["launch"] is not None


def test_correlation_ids_are_unique_within_a_process_only(export):
    other = (77 << 24) | 1
    export.call("mine", 0, 10, 5).call("theirs", 1, 2, 5, thread=other)
    export.kernel("k", 20, 30, correlation=5, process=77 << 24)
    found = spans(read(export))
    assert found["k"]["launch"] == found["theirs"]["span"]


def test_steps_are_marked_by_numbered_ranges(export):
    for step in range(3):
        export.range(f"iteration {step + 10}", step * 100, step * 100 + 90)
        export.range("microbatch 0", step * 100 + 5, step * 100 + 30)
    capture = read(export)
    assert capture.steps.select(["step", "start_ps", "dur_ps"]).to_pylist() == [
        {"step": 10 + i, "start_ps": i * 100 * NS, "dur_ps": 90 * NS} for i in range(3)
    ]
    assert {s["level"] for s in capture.spans.to_pylist() if s["name"].startswith("iteration")} == {"model"}
    assert [s["layer"] for s in capture.spans.to_pylist() if s["name"] == "microbatch 0"] == ["microbatch 0"] * 3


def test_collectives_are_communication_and_have_a_row(export):
    export.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 10)
    capture = read(export)
    assert capture.spans["category"].to_pylist() == ["communication"]
    row = capture.collectives.to_pylist()[0]
    assert (row["span"], row["kind"], row["dtype"]) == (0, "all_reduce", "bfloat16")


def test_every_row_is_accounted_for(export):
    export.range("a", 0, 10).range("mark", 5, None, event_type=34).range("open", 6, None)
    export.call("backwards", 9, 8, 1).call("timeless", None, 5, 2).call("good", 1, 2, 3)
    export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=0, end=1)
    export.add("CUBLAS_EVENTS", start=3, end=4, globalTid=GLOBAL_TID, nameId=export.string("cublasSgemm"))
    export.add("OSRT_API", start=4, end=9, globalTid=GLOBAL_TID, nameId=export.string("poll"), correlationId=3)
    export.add("SOMETHING_NEW", timestamp=1, value=2)
    capture = read(export)
    runtime, nvtx = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
    assert accounts(capture) == {
        ("kept", "CUBLAS_EVENTS", ""): 1,
        ("kept", runtime, ""): 1,
        ("kept", nvtx, ""): 1,
        ("kept", "OSRT_API", ""): 1,
        ("skipped", runtime, "ends before it starts"): 1,
        ("skipped", runtime, "without a start or an end"): 1,
        ("skipped", nvtx, "without a start or an end"): 1,
        ("skipped", nvtx, "a mark, no stretch of work"): 1,
        ("skipped", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "repeats the time of the call that waits"): 1,
        ("skipped", "SOMETHING_NEW", "a table that is not read"): 1,
    }
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["spans"], row["ignored_events"], row["dropped_events"]) == (10, 4, 3, 3)


def test_ranges_from_start_to_end_stand_on_tracks_of_their_own(export):
    export.range("outer", 0, 50).range("across", 20, 90, event_type=60)
    capture = read(export)
    assert capture.conversion["misnested_events"].to_pylist() == [0]
    assert spans(capture)["across"]["parent"] is None


def test_times_count_from_the_epoch_of_the_session(export):
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    export.add("ANALYSIS_DETAILS", startTime=500).add("TARGET_INFO_GPU", id=0, name="NVIDIA H100")
    export.call("f", 700, 800, 1)
    path = export.close()
    alone = read_nsys(path, CaptureRequest())
    assert (alone.start_unix_ns, alone.devices) == (1_700_000_000_000_000_200, ("gpu:0 NVIDIA H100",))
    assert alone.spans["start_ps"].to_pylist() == [0]
    together = read_nsys(path, CaptureRequest(epoch_unix_ns=1_700_000_000_000_000_050))
    assert together.spans["start_ps"].to_pylist() == [150 * NS]
    far = read_nsys(path, CaptureRequest(epoch_unix_ns=0))
    assert far.spans["start_ps"].to_pylist() == [0]
    assert "26 days" in far.conversion["problem"][0].as_py()


def test_processes_that_number_their_gpus_differently(export):
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=77)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=2, cudaId=0, pid=78)
    export.kernel("a", 0, 10, process=77 << 24).kernel("b", 0, 10, process=78 << 24)
    found = spans(read(export))
    assert (found["a"]["device"], found["b"]["device"]) == ("gpu:3", "gpu:2")


def test_allocations_and_sampled_metrics_become_rows(export):
    export.call("f", 100, 200, 1)
    place = {"memKind": 2, "deviceId": 0, "globalPid": PROCESS, "virtualAddress": 4096}
    export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=110, bytes=64, memoryOperationType=0, **place)
    export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=120, bytes=64, memoryOperationType=1, **place)
    export.add("TARGET_INFO_GPU_METRICS", typeId=256, metricId=2, metricName="SM Active")
    export.add("GPU_METRICS", timestamp=150, typeId=256, metricId=2, value=40)
    capture = read(export)
    assert [(a["time_ps"], a["device"], a["bytes"], a["address"]) for a in capture.allocations.to_pylist()] == [
        (10 * NS, "gpu:0", 64, 4096),
        (20 * NS, "gpu:0", -64, 4096),
    ]
    assert capture.counters.to_pylist() == [
        {"name": "SM Active", "unit": "", "device": "gpu:0", "time_ps": 50 * NS, "value": 40.0}
    ]
    assert accounts(capture)["merged", "GPU_METRICS", "a row of counters"] == 1


def test_without_a_device_operators_are_the_processors_work(export):
    export.range("aten::mm, op_id = 1", 0, 10)
    assert spans(read(export))["aten::mm"]["device"] == "cpu:0"


def test_columns_that_an_export_does_not_have_are_null(tmp_path):
    path = tmp_path / "old.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, globalPid)")
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 0), ('five', 9, 0, 0)")
    connection.commit()
    connection.close()
    capture = read_nsys(path, CaptureRequest())
    assert [(s["name"], s["dur_ps"]) for s in capture.spans.to_pylist()] == [("kernel without a name", 4 * NS)]
    assert capture.launches.num_rows == 0
    assert capture.conversion.to_pylist()[0]["dropped_events"] == 1


def test_bytes_and_file_give_the_same(export):
    export.range("a", 0, 10).call("f", 1, 2, 3).kernel("k", 5, 6, correlation=3)
    path = export.close()
    assert read_nsys(path.read_bytes(), CaptureRequest()).spans.equals(read_nsys(path, CaptureRequest()).spans)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", b"SQLite format 3\x00" + bytes(4096), b"x" * 4096])
def test_what_is_no_sqlite_file(tmp_path, content):
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    for source in (path, content):
        with pytest.raises(SourceError, match="SQLite"):
            read_nsys(source, CaptureRequest())


def test_an_sqlite_file_of_others(tmp_path):
    path = tmp_path / "x.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name)")
    connection.commit()
    connection.close()
    with pytest.raises(
        SourceError, match=r"no export of Nsight Systems: its tables are recipes; expected .*nsys export"
    ):
        read_nsys(path, CaptureRequest())


def test_views_and_virtual_tables_are_not_read(export):
    export.call("f", 1, 2, 3)
    export.connection.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end, 0 AS deviceId")
    assert set(spans(read(export))) == {"f"}


def test_a_truncated_export_is_read_as_far_as_it_goes(export):
    for i in range(4000):
        export.call("cudaLaunchKernel", 10 * i, 10 * i + 5, i + 1)
    path = export.close()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    capture = read_nsys(path, CaptureRequest())
    row = capture.conversion.to_pylist()[0]
    assert 0 < row["spans"] < 4000
    assert row["problem"].startswith("the file is truncated: ")
    assert "table CUPTI_ACTIVITY_KIND_RUNTIME is damaged after" in row["problem"]


events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 500), st.integers(-3, 60), st.integers(0, 6)),
    max_size=40,
)


@settings(max_examples=60)
@given(events, events)
def test_random_exports_match_the_oracle(tmp_path_factory, kernels, calls):
    export = Export(tmp_path_factory.mktemp("nsys") / "r.sqlite")
    for device, stream, start, dur, correlation in kernels:
        export.kernel("k", start, start + dur, device=device, stream=stream, correlation=correlation)
    for thread, _, start, dur, correlation in calls:
        export.call("f", start, start + dur, correlation, thread=GLOBAL_TID + thread)
    if not kernels and not calls:
        export.add("OSRT_API", start=0, end=0, globalTid=1)
    capture = read(export)
    rows = capture.spans.to_pylist()
    good = [k for k in kernels if k[3] >= 0]
    launched = {c[4] for c in calls if c[3] >= 0 and c[4]}
    for device in {k[0] for k in good}:
        own = [s for s in rows if s["device"] == f"gpu:{device}"]
        expected = busy_ns([(start, start + dur) for d, _, start, dur, _ in good if d == device])
        assert busy_ns([(s["start_ps"], s["start_ps"] + s["dur_ps"]) for s in own]) == expected * NS
    orphans = sum(k[4] not in launched for k in good)
    assert capture.conversion["orphan_events"].to_pylist() == [orphans]
    row = capture.conversion.to_pylist()[0]
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]
    assert sum(a["events"] for a in capture.accounts.to_pylist()) == row["events"]


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/nsys")
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.sqlite")) if FOLDER.is_dir() else [], ids=lambda f: f.stem)
def test_real_exports_match_the_oracle(file):
    capture = read_nsys(file, CaptureRequest())
    connection = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
    of_device, rows = {}, 0
    for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
            continue
        for start, end, device in connection.execute(f'SELECT start, "end", deviceId FROM {name}'):
            of_device.setdefault(f"gpu:{device}", []).append((start, end))
            rows += 1
    connection.close()
    found = Counter()
    intervals = {}
    for span in capture.spans.to_pylist():
        if span["level"] == "kernel":
            found[span["device"]] += span["dur_ps"]
            intervals.setdefault(span["device"], []).append((span["start_ps"], span["start_ps"] + span["dur_ps"]))
    assert sum(map(len, intervals.values())) == rows
    for device, own in of_device.items():
        assert found[device] == sum(end - start for start, end in own) * NS
        assert busy_ns(intervals[device]) == busy_ns(own) * NS
    total = capture.conversion.to_pylist()[0]
    assert sum(a["events"] for a in capture.accounts.to_pylist()) == total["events"]
