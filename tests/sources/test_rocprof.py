"""Outputs of rocprofv3: made by hand, random, damaged, and a real one."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_oracle import busy_ns

from phasepoint.core.errors import SourceError
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.rocprof.reader import read_rocprof

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / "rocprof"
NS = 1000
DISPATCH, COPY, HIP, MARKER, MEMORY = range(5)
KINDS = [
    {"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipDeviceSynchronize"]},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA", "roctxRangeStartA"]},
    {"kind": "MEMORY_ALLOCATION", "operations": ["NONE", "MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE"]},
]


def record(kind, operation, start, end, *, correlation=0, **more):
    return {
        "kind": kind, "operation": operation, "thread_id": 7, "correlation_id": {"internal": correlation},
        "start_timestamp": start, "end_timestamp": end, **more,
    }  # fmt: skip


def dispatch(start, end, *, agent=10, stream=1, correlation=0, kernel=3, dispatch_id=1, **more):
    info = {
        "agent_id": {"handle": agent}, "queue_id": {"handle": 5}, "kernel_id": kernel, "dispatch_id": dispatch_id,
        "group_segment_size": 256, "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 130, "y": 2, "z": 1},
    }  # fmt: skip
    return record(
        DISPATCH, 1, start, end, correlation=correlation, dispatch_info=info, stream_id={"handle": stream}, **more
    )


def output(*, markers=(), counters=(), counted=(), **sections):
    """One process with a processor and two GPUs, listed against the order of their nodes."""
    agents = [
        {"id": {"handle": 9}, "type": 1, "node_id": 0, "name": "EPYC"},
        {"id": {"handle": 11}, "type": 2, "node_id": 2, "product_name": "AMD Instinct MI300X"},
        {"id": {"handle": 10}, "type": 2, "node_id": 1, "product_name": "AMD Instinct MI300X"},
    ]
    symbols = [{"kernel_id": 3, "formatted_kernel_name": "gemm(float*)", "arch_vgpr_count": 88}]
    strings = {"buffer_records": KINDS, "marker_api": [{"key": key, "value": text} for key, text in markers]}
    process = {
        "metadata": {"pid": 42}, "agents": agents, "kernel_symbols": symbols, "strings": strings,
        "counters": list(counters), "callback_records": {"counter_collection": list(counted)},
        "buffer_records": sections,
    }  # fmt: skip
    return {"rocprofiler-sdk-tool": [process]}


def read(document, **options):
    return read_rocprof(json.dumps(document).encode(), CaptureRequest(**options))


def spans(capture):
    return {span["name"]: span for span in capture.spans.to_pylist()}


def accounts(capture):
    return {(a["fate"], a["what"], a["reason"]): a["events"] for a in capture.accounts.to_pylist()}


def test_a_kernel_its_call_and_the_ranges_around_it():
    capture = read(
        output(
            kernel_dispatch=[dispatch(500, 800, correlation=6, graph_exec_id=3, graph_node_id=0)],
            hip_api=[record(HIP, 0, 200, 300, correlation=6)],
            marker_api=[record(MARKER, 1, 100, 400, correlation=5)],
            markers=[(5, "attention")],
        )
    )
    found = spans(capture)
    kernel, call, layer = found["gemm(float*)"], found["hipLaunchKernel"], found["attention"]
    assert (kernel["start_ps"], kernel["dur_ps"]) == (400 * NS, 300 * NS)
    assert (kernel["device"], kernel["track"]) == ("gpu:0", "gpu:0 stream 1")
    assert (kernel["launch"], call["parent"], call["track"]) == (call["span"], layer["span"], "process 42 thread 7")
    assert [one["layer"] for one in (kernel, call, layer)] == ["attention"] * 3
    (launch,) = capture.launches.to_pylist()
    assert (launch["grid"], launch["block"], launch["registers"], launch["shared_bytes"], launch["graph"]) == (
        "3,2,1", "64,1,1", 88, 256, "3:0",
    )  # fmt: skip
    assert capture.devices == ("gpu:0 AMD Instinct MI300X", "gpu:1 AMD Instinct MI300X")


def test_copies_belong_to_the_gpu_that_receives_else_to_the_one_that_gives():
    ends = [({"handle": 9}, {"handle": 11}), ({"handle": 10}, {"handle": 9}), ({"handle": 10}, {"handle": 11})]
    copies = [
        record(COPY, 1, 10 * i, 10 * i + 5, src_agent_id=src, dst_agent_id=dst, bytes=64 + i)
        for i, (src, dst) in enumerate(ends)
    ]
    rows = read(output(memory_copy=copies)).spans.to_pylist()
    assert [(s["device"], s["bytes"], s["category"]) for s in rows] == [
        ("gpu:1", 64, "data_movement"), ("gpu:0", 65, "data_movement"), ("gpu:1", 66, "data_movement"),
    ]  # fmt: skip
    assert {s["name"] for s in rows} == {"Memcpy HtoD"}


def test_hardware_counters_are_metrics_of_their_dispatch():
    counted = [
        {
            "dispatch_data": dispatch(0, 1, dispatch_id=number),
            "records": [{"counter_id": {"handle": 70}, "value": value} for value in values],
        }
        for number, values in ((1, (2.0, 3.0)), (9, (4.0,)))
    ]
    counters = [{"id": {"handle": 70}, "name": "SQ_WAVES"}]
    capture = read(output(kernel_dispatch=[dispatch(5, 6)], counters=counters, counted=counted))
    assert [(m["span"], m["name"], m["value"], m["of"]) for m in capture.metrics.to_pylist()] == [
        (0, "SQ_WAVES", 5.0, None), (None, "SQ_WAVES", 4.0, "dispatch 9"),
    ]  # fmt: skip
    assert accounts(capture)["merged", "counter_collection", "rows of metrics"] == 2


def test_allocations_are_released_with_the_size_they_had():
    place = {"agent_id": {"handle": 11}, "address": "0x1000"}
    capture = read(
        output(
            hip_api=[record(HIP, 1, 100, 200)],
            memory_allocation=[
                record(MEMORY, 1, 110, 111, allocation_size=64, **place),
                record(MEMORY, 2, 120, 121, allocation_size=0, **place),
            ],
        )
    )
    assert [(a["time_ps"], a["device"], a["bytes"], a["address"]) for a in capture.allocations.to_pylist()] == [
        (10 * NS, "gpu:1", 64, 4096), (20 * NS, "gpu:1", -64, 4096),
    ]  # fmt: skip


def test_steps_are_marked_by_numbered_ranges():
    markers = [(i, f"step {i}") for i in (1, 2, 3)]
    ranges = [record(MARKER, 1, 100 * i, 100 * i + 80, correlation=i) for i, _ in markers]
    capture = read(output(marker_api=ranges, markers=markers))
    assert capture.steps["step"].to_pylist() == [1, 2, 3]
    assert capture.steps["dur_ps"].to_pylist() == [80 * NS] * 3


def test_every_record_is_accounted_for():
    capture = read(
        output(
            kernel_dispatch=[dispatch(1, 2), dispatch(5, 3), dispatch(None, 3), {"start_timestamp": "now"}],
            marker_api=[record(MARKER, 0, 1, 1, correlation=1)],
            scratch_memory=[record(99, 1, 5, 6)],
            pc_sample_host_trap=[{}, {}],
        )
    )
    assert accounts(capture) == {
        ("kept", "kernel_dispatch", ""): 1,
        ("kept", "scratch_memory", ""): 1,
        ("skipped", "kernel_dispatch", "ends before it starts"): 1,
        ("skipped", "kernel_dispatch", "without a start or an end"): 1,
        ("skipped", "kernel_dispatch", "a record that is not as expected"): 1,
        ("skipped", "marker_api", "a mark, no stretch of work"): 1,
        ("skipped", "pc_sample_host_trap", "samples of the program counter are not read"): 2,
    }
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["spans"], row["ignored_events"], row["dropped_events"]) == (8, 2, 3, 3)


def test_numbers_beyond_every_type_lose_their_record_only():
    text = json.dumps(output(kernel_dispatch=[dispatch(5, 9), dispatch(7, 12)])).replace("12", "1e999", 1).encode()
    capture = read_rocprof(text, CaptureRequest())
    assert capture.spans.num_rows == 1
    assert accounts(capture)["skipped", "kernel_dispatch", "a record that is not as expected"] == 1


@pytest.mark.parametrize(("records", "rows"), [(b'[{"\xe3":1},{}]', 2), (b'{"\xe3":1}', 0)])
def test_records_that_are_not_read_are_counted_whatever_is_in_them(records, rows):
    text = json.dumps(output(hip_api=[record(11, 3, 100, 200)])).encode()
    text = text.replace(b'"callback_records": {', b'"callback_records": {"other": ' + records + b", ", 1)
    capture = read_rocprof(text, CaptureRequest())
    assert accounts(capture).get(("skipped", "other", "records that are not read"), 0) == rows


def test_a_file_that_does_not_say_when_it_began():
    capture = read(output(kernel_dispatch=[dispatch(1, 2)]), epoch_unix_ns=10**18)
    assert capture.spans["start_ps"].to_pylist() == [0]
    assert "does not say when it began" in capture.conversion["problem"][0].as_py()
    assert capture.start_unix_ns is None


def test_a_truncated_file_is_read_as_far_as_it_goes():
    text = json.dumps(output(kernel_dispatch=[dispatch(i, i + 1) for i in range(0, 100, 2)])).encode()
    capture = read_rocprof(text[: len(text) * 2 // 3], CaptureRequest())
    row = capture.conversion.to_pylist()[0]
    assert 10 < row["spans"] < 50
    assert row["problem"].startswith("damaged JSON")
    assert {s["name"] for s in capture.spans.to_pylist()} == {"gemm(float*)"}


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"rocprofiler-sdk-tool": 7}', b"nonsense", b""])
def test_what_is_no_output_of_rocprofv3(text):
    with pytest.raises(SourceError, match=r"no output of rocprofv3: .*expected .*rocprofv3 --output-format json"):
        read_rocprof(text, CaptureRequest())


def test_an_output_of_one_process_need_not_be_a_list():
    document = output(kernel_dispatch=[dispatch(1, 2)])
    alone = {"rocprofiler-sdk-tool": document["rocprofiler-sdk-tool"][0]}
    assert read(alone).spans.equals(read(document).spans)


numbers = st.tuples(
    st.sampled_from([10, 11]), st.integers(0, 2), st.integers(0, 400), st.integers(-3, 50), st.integers(0, 5)
)


@settings(max_examples=60)
@given(st.lists(numbers, max_size=30), st.lists(numbers, max_size=30))
def test_random_outputs_match_the_oracle(kernels, calls):
    document = output(
        kernel_dispatch=[dispatch(s, s + d, agent=a, stream=q, correlation=c) for a, q, s, d, c in kernels],
        hip_api=[record(HIP, 0, s, s + d, correlation=c) for _, _, s, d, c in calls],
    )
    capture = read(document)
    good = [k for k in kernels if k[3] >= 0]
    launched = {c[4] for c in calls if c[3] >= 0 and c[4]}
    for number, agent in enumerate((10, 11)):
        own = [s for s in capture.spans.to_pylist() if s["device"] == f"gpu:{number}"]
        expected = busy_ns([(s, s + d) for a, _, s, d, _ in good if a == agent])
        assert busy_ns([(s["start_ps"], s["start_ps"] + s["dur_ps"]) for s in own]) == expected * NS
    assert capture.conversion["orphan_events"].to_pylist() == [sum(k[4] not in launched for k in good)]
    row = capture.conversion.to_pylist()[0]
    assert row["events"] == len(kernels) + len(calls) == sum(a["events"] for a in capture.accounts.to_pylist())


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/rocprof")
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json*")) if FOLDER.is_dir() else [], ids=lambda f: f.stem)
def test_real_outputs_match_the_oracle(file):
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    capture = read_rocprof(data, CaptureRequest())
    of_agent = {}
    for process in json.loads(data)["rocprofiler-sdk-tool"]:
        for one in process["buffer_records"]["kernel_dispatch"]:
            agent = one["dispatch_info"]["agent_id"]["handle"]
            of_agent.setdefault(agent, []).append((one["start_timestamp"], one["end_timestamp"]))
    kernels = [s for s in capture.spans.to_pylist() if s["level"] == "kernel" and "Memcpy" not in s["name"]]
    assert len(kernels) == sum(map(len, of_agent.values()))
    found = {}
    for span in kernels:
        found.setdefault(span["device"], []).append((span["start_ps"], span["start_ps"] + span["dur_ps"]))
    assert sorted(map(busy_ns, found.values())) == sorted(busy_ns(own) * NS for own in of_agent.values())
    assert sum(e - s for own in found.values() for s, e in own) == NS * sum(
        e - s for own in of_agent.values() for s, e in own
    )
    total = capture.conversion.to_pylist()[0]
    assert sum(a["events"] for a in capture.accounts.to_pylist()) == total["events"]
