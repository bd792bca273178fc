"""Small traces of every format, and runs, to damage: made by hand, and cut out of real ones where they are at hand."""

import gzip
import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path

from fuzz_run import run_seeds

sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))

KEPT = 40
"""Elements that are kept of a list of a real trace."""


def seeds(format, *, real):
    """`[n]` seeds: documents (dict or list), messages or bytes, as the format's mutation takes them."""
    return [*_MADE[format](), *(_real(format) if real else ())]


def _real(format):
    where = "kineto" if format == "chrome" else format
    folder = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / where
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        data = file.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        if format == "xplane":
            yield cut_message(data)
        elif format == "nsys":
            yield cut_database(data)
        else:
            document = json.loads(data)
            yield cut_json(document, 0.0)
            yield cut_json(document, 0.5)


def cut_json(value, share):
    """The document with at most `KEPT` neighbours of each list, from a share of its length on."""
    if isinstance(value, dict):
        return {key: cut_json(one, share) for key, one in value.items()}
    if isinstance(value, list):
        begin = int(max(0, len(value) - KEPT) * share)
        return [cut_json(one, share) for one in value[begin : begin + KEPT]]
    return value


def cut_message(data):
    from xplane_schema.messages import XSpace

    space = XSpace.FromString(data)
    for plane in space.planes:
        del plane.lines[6:]
        for line in plane.lines:
            del line.events[KEPT:]
        used = {event.metadata_id for line in plane.lines for event in line.events}
        kept = [one for one in plane.event_metadata if one.key in used or len(plane.event_metadata) < 4]
        del plane.event_metadata[:]
        plane.event_metadata.extend(kept)
        for entry in plane.event_metadata:
            for stat in entry.value.stats:
                if len(stat.bytes_value) > 20_000:
                    stat.bytes_value = stat.bytes_value[:20_000]
    return space


def cut_database(data):
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        kept = 400 if table == "StringIds" else KEPT
        connection.execute(f'DELETE FROM "{table}" WHERE rowid NOT IN (SELECT rowid FROM "{table}" LIMIT {kept})')
    connection.commit()
    connection.execute("VACUUM")
    return connection.serialize()


def _event(name, cat, ts, dur, /, *, pid=1, tid=1, ph="X", **args):
    return {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _kineto():
    events = [
        _event("process_name", "__metadata", 0, 0, ph="M", name="python"),
        _event("thread_name", "__metadata", 0, 0, ph="M", name="thread 7 (python)"),
        _event("ProfilerStep#3", "user_annotation", 0, 100),
        _event("ProfilerStep#4", "user_annotation", 100, 90.5),
        _event("nn.Module: Linear_0", "python_function", 5, 80, **{"Python id": 1, "Python parent id": None}),
        _event("aten::linear", "cpu_op", 8, 40,
               **{"Input Dims": [[8, 16], [], [4]], "Sequence number": 5, "Input type": ["float"]}),
        _event("cudaLaunchKernel", "cuda_runtime", 12, 5, correlation=1, **{"External id": 3}),
        _event("cudaGraphLaunch", "cuda_runtime", 22, 5, correlation=2),
        _event("gemm", "kernel", 30, 50.125, pid=0, tid=7, correlation=1, device=0, stream=7,
               grid=[4, 1, 1], block=[128, 1, 1]),
        _event("relu", "kernel", 70, 20, pid=0, tid=7, correlation=2, device=0, stream=7,
               **{"graph node id": 4, "graph id": 1}),
        _event("ncclDevKernel_AllReduce_Sum_f32", "kernel", 80, 30, pid=0, tid=9, correlation=9, device=0, stream=9,
               **{"Collective name": "allreduce", "In msg nelems": 100, "Group size": 8, "dtype": "Float"}),
        _event("Memcpy HtoD", "gpu_memcpy", 120, 9, pid=0, tid=7, correlation=4, device=0, stream=7, bytes=4096),
        _event("autograd::engine::evaluate_function: MmBackward0", "cpu_op", 110, 30, tid=2,
               **{"Sequence number": 5, "Fwd thread id": 1}),
        _event("[memory]", "cpu_instant_event", 50, 0, ph="i", Addr=140, Bytes=512,
               **{"Device Type": 1, "Device Id": 0, "Total Allocated": 512}),
        {"ph": "s", "id": 5, "pid": 1, "tid": 1, "ts": 12, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 30, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "s", "id": 6, "pid": 1, "tid": 1, "ts": 8, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "f", "id": 6, "pid": 1, "tid": 2, "ts": 110, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
        {"ph": "C", "pid": 0, "ts": 40, "name": "GPU Utilization", "args": {"util": 0.5}},
        _event("cuda_profiler_range: ", "cuda_profiler_range", 40, 10, pid=0, tid=7, **{"smsp__cycles": 1.5}),
    ]  # fmt: skip
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}], "distributedInfo": {"rank": 1},
            "baseTimeNanoseconds": 1_700_000_000 * 10**9}  # fmt: skip
    older = [dict(event, ts=event["ts"] + 1.6e15) for event in events]
    return [{**head, "traceEvents": events}, older, {"traceEvents": events[3:9]}]


def _chrome():
    begin_end = [
        {"ph": ph, "name": name, "pid": 1, "tid": tid, "ts": ts, "cat": "any"}
        for ph, name, tid, ts in [
            ("B", "a", 1, 0),
            ("B", "b", 1, 5),
            ("E", "b", 1, 9),
            ("E", "a", 1, 20),
            ("B", "c", "x", 3),
        ]
    ]
    more = [
        {"ph": "X", "name": "step", "pid": "main", "tid": "t", "ts": 0.25, "dur": 3},
        {"ph": "b", "cat": "async", "id": "0x1", "name": "wait", "pid": 1, "tid": 1, "ts": 2},
        {"ph": "e", "cat": "async", "id": "0x1", "name": "wait", "pid": 1, "tid": 1, "ts": 8},
        {"ph": "C", "name": "memory", "pid": 1, "ts": 4, "args": {"used": 3}},
        {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 1, "s": "g"},
    ]
    return [[*begin_end, *more], {"traceEvents": [*more, *begin_end], "displayTimeUnit": "ns", "otherData": {"a": 1}}]


def _xplane():
    from test_xplane_synthetic import gpu_space, tpu_space

    return [tpu_space(marks=True), tpu_space(marks=False), gpu_space()]


def _nsys():
    from nsys_export import Export

    with tempfile.TemporaryDirectory() as folder:
        export = Export(Path(folder) / "made.sqlite")
        for i in range(6):
            at = 1000 * i
            export.range(f"step {i}", at, at + 900)
            export.call("cudaLaunchKernel", at + 100, at + 150, i + 1)
            export.kernel("gemm", at + 200, at + 700, correlation=i + 1, stream=7 + i % 2)
        export.close()
        return [(Path(folder) / "made.sqlite").read_bytes()]


def _rocprof():
    from test_rocprof import dispatch, output, record

    calls = [record(2, 0, 50 * i, 50 * i + 20, correlation=i) for i in range(3)]
    ranges = [record(3, 1, 0, 900, correlation=7), record(3, 2, 100, 500, correlation=8)]
    kernels = [dispatch(100, 200, correlation=1), dispatch(300, 400, correlation=2, stream=2, dispatch_id=2)]
    copies = [record(1, 1, 410, 450, correlation=1, src_agent_id={"handle": 9}, dst_agent_id={"handle": 10}, bytes=64)]
    made = output(
        markers=[(7, "step 1"), (8, "layer")],
        counters=[{"id": {"handle": 1}, "name": "SQ_WAVES", "agent_id": {"handle": 10}}],
        counted=[
            {
                "dispatch_data": {"dispatch_info": {"dispatch_id": 1}},
                "records": [{"counter_id": {"handle": 1}, "value": 3.5}],
            }
        ],
        kernel_dispatch=kernels, hip_api=calls, marker_api=ranges, memory_copy=copies,
    )  # fmt: skip
    return [made, output(kernel_dispatch=kernels[:1])]


def _jaeger():
    from test_jaeger import document, span, xsp_spans

    return [document(*xsp_spans()), document(span("a", 0, 10, id="1"), span("b", 2, 5, parent="1", logs=2))]


def _otel():
    from test_otel import document, span

    made = [document(span("step", 0, 100, id="01"), span("op", 10, 50, parent="01", events=1, step=3, share=0.5))]
    return [*made, document(span("lone", 5, 6), service="other", scopes="instrumentationLibrarySpans")]


_MADE = {
    "kineto": _kineto,
    "chrome": _chrome,
    "xplane": _xplane,
    "nsys": _nsys,
    "rocprof": _rocprof,
    "jaeger": _jaeger,
    "otel": _otel,
    "run": run_seeds,
}
