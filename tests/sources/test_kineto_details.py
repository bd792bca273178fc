"""What Kineto says of single events beside their time: launches, collectives, counters, memory, shapes, parents."""

import json

import pytest

from phasepoint.sources.chrome.reader import read_kineto
from phasepoint.sources.events.capture import CaptureRequest

US = 1_000_000


def event(name, cat, ts, dur, /, *, tid=1, ph="X", **args):
    return {"ph": ph, "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def capture(*events):
    return read_kineto(json.dumps({"traceEvents": events}).encode(), CaptureRequest(window=2))


def by_name(found):
    return {row["name"]: row for row in found.spans.to_pylist()}


def test_parameters_of_a_launch():
    own = {"grid": [4, 1, 1], "block": [128, 2, 1], "registers per thread": 40, "shared memory": 512}
    more = {"est. achieved occupancy %": 37.5, "graph id": 3, "graph node id": 12}
    found = capture(
        event("cudaGraphLaunch", "cuda_runtime", 0, 5, correlation=7),
        event("gemm", "kernel", 10, 5, device=0, stream=7, correlation=7, **own, **more),
        event("add", "kernel", 16, 2, device=0, stream=7, correlation=7, grid=[1, 1, 1], block="1,2,3"),
    )
    spans = by_name(found)
    launch = spans["cudaGraphLaunch"]["span"]
    assert (spans["gemm"]["launch"], spans["add"]["launch"], spans["cudaGraphLaunch"]["launch"]) == (
        launch, launch, None
    )  # fmt: skip
    rows = {row["span"]: row for row in found.launches.to_pylist()}
    assert rows[spans["gemm"]["span"]] == {
        "window": 2, "span": spans["gemm"]["span"], "grid": "4,1,1", "block": "128,2,1", "registers": 40,
        "shared_bytes": 512, "occupancy_ratio": 0.375, "graph": "3 node 12",
    }  # fmt: skip
    add = rows[spans["add"]["span"]]
    assert (add["grid"], add["block"], add["registers"], add["graph"]) == ("1,1,1", "1,2,3", None, None)


def test_older_rocm_tells_at_the_call():
    found = capture(
        event("hipLaunchKernel", "cuda_runtime", 0, 5, correlation=1, grid="[8,1,1]", block="[64,1,1]", kernel="k"),
        event("hipMemcpyWithStream", "cuda_runtime", 6, 2, correlation=2, size="2560", kind="1"),
        event("k", "kernel", 10, 5, device=2, stream=0, correlation=1),
        event("Memcpy HtoD (Host -> Device)", "gpu_memcpy", 20, 5, device=2, stream=0, correlation=2, kind="HtoD"),
    )
    (row,) = found.launches.to_pylist()
    assert (row["grid"], row["block"], row["shared_bytes"]) == ("8,1,1", "64,1,1", None)
    spans = by_name(found)
    assert spans["Memcpy HtoD (Host -> Device)"]["bytes"] == 2560
    assert spans["k"]["bytes"] is None


COLLECTIVE = {
    "Collective name": "_allgather_base", "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2]",
    "Group size": 3,
    "dtype": "BFloat16", "In msg nelems": 10, "Out msg nelems": 30, "Seq": 5,
}  # fmt: skip


@pytest.mark.parametrize("told_by", ["kernel", "call", "no device"])
def test_parameters_of_a_collective(told_by):
    events = [event("record_param_comms", "cpu_op", 0, 20, **COLLECTIVE)]
    if told_by != "no device":
        own = COLLECTIVE if told_by == "kernel" else {}
        events += [
            event("nccl:_all_gather_base", "user_annotation", 1, 15),
            event("cudaLaunchKernelExC", "cuda_runtime", 2, 3, correlation=9),
            event("ncclDevKernel_AllGather_RING_LL", "kernel", 30, 9, device=0, stream=1, correlation=9, **own),
        ]
    found = capture(*events)
    (row,) = found.collectives.to_pylist()
    owner = "record_param_comms" if told_by == "no device" else "ncclDevKernel_AllGather_RING_LL"
    assert row == {
        "window": 2, "span": by_name(found)[owner]["span"], "kind": "all_gather", "group": "3", "ranks": "0,1,2",
        "size": 3, "sequence": 5, "dtype": "bfloat16", "in_elements": 10, "out_elements": 30,
    }  # fmt: skip


def test_hardware_counters_name_their_kernel():
    found = capture(
        event("aten::mm", "cpu_op", 0, 20),
        event("gemm", "cuda_profiler_range", 5, 9, **{"smsp__sass.sum": 1234567890123, "dram__bytes.sum": 0.1}),
        event("Memcpy DtoD", "gpu_memcpy", 30, 9, device=0, stream=1, bytes=64, **{"memory bandwidth (GB/s)": 8.1e-05}),
    )
    rows = [(row["span"], row["name"], row["unit"], row["value"], row["of"]) for row in found.metrics.to_pylist()]
    copy = by_name(found)["Memcpy DtoD"]
    assert sorted(rows, key=str) == sorted(
        [
            (None, "smsp__sass.sum", "", 1234567890123.0, "gemm"),
            (None, "dram__bytes.sum", "", 0.1, "gemm"),
            (copy["span"], "memory bandwidth", "GB/s", 8.1e-05, None),
        ],
        key=str,
    )
    assert (copy["bytes"], len(found.spans)) == (64, 2)


def test_allocations_know_the_span_in_progress():
    memory = {"Bytes": -512, "Total Allocated": 100, "Total Reserved": 4096, "Device Type": 1, "Device Id": 3}
    found = capture(
        event("aten::empty", "cpu_op", 0, 20),
        event("[memory]", "cpu_instant_event", 5, None, ph="i", **memory, Addr=1 << 46),
        event("[memory]", "cpu_instant_event", 25, None, ph="i", Bytes=8, **{"Device Type": 0, "Device Id": -1}),
    )
    empty = by_name(found)["aten::empty"]["span"]
    assert [tuple(row.values()) for row in found.allocations.to_pylist()] == [
        (2, 5 * US, "gpu:3", -512, 100, 4096, 1 << 46, empty),
        (2, 25 * US, "host", 8, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("dims", "types", "text"),
    [
        ([[8, 128], [], [64]], ["float", "Scalar", "long int"], "f32[8,128], i64[64]"),
        ([[], []], ["float", ""], "f32[]"),
        ([[[2], [3, 4]], [5]], ["TensorList", "c10::BFloat16"], "(?[2], ?[3,4]), bf16[5]"),
        ([[2, 2]], ["unheard::of"], "unheard::of[2,2]"),
        ([[], []], ["Scalar", ""], None),
    ],
)
def test_shapes(dims, types, text):
    found = capture(event("aten::op", "cpu_op", 0, 1, **{"Input Dims": dims, "Input type": types}))
    assert found.spans["shape"].to_pylist() == [text]


def test_python_frames_have_the_parents_that_they_name():
    frames = [(7, None, "outer", 0, 100), (8, 7, "inner", 10, 50), (9, 7, "twin", 10, 40), (10, 99, "stray", 12, 5)]
    found = capture(
        *(
            event(name, "python_function", ts, dur, **{"Python id": number, "Python parent id": parent})
            for number, parent, name, ts, dur in frames
        )
    )
    spans = by_name(found)
    number = {name: row["span"] for name, row in spans.items()}
    assert {name: row["parent"] for name, row in spans.items()} == {
        "outer": None,
        "inner": number["outer"],
        "twin": number["outer"],  # by time it stands in `inner`
        "stray": number["twin"],  # its parent is not in the file: time decides
    }
