"""One small trace of every format, real in its looks: steps or ranges, calls of the host, kernels, a lost launch."""

import json

from nsys_export import GLOBAL_TID, PROCESS, Export
from test_jaeger import document as jaeger_document
from test_jaeger import xsp_spans
from test_otel import document as otel_document
from test_otel import span as otel_span
from test_rocprof import HIP, MARKER, dispatch, output, record
from trace_encoders import HostSpan, Kernel, MadeRun, as_kineto, as_xplane

RUN = MadeRun(
    first_step=3,
    step_bounds_ns=[0, 1000, 2100, 3000],
    host=[HostSpan(0, "aten::mm", 1000 * i + 110, 1000 * i + 400) for i in range(3)]
    + [HostSpan(0, "cudaLaunchKernel", 1000 * i + 120, 1000 * i + 150, kernel=i) for i in range(3)],
    kernels=[Kernel(7, "gemm", 1000 * i + 300, 1000 * i + 800, launched=True) for i in range(3)]
    + [Kernel(7, "relu_kernel", 2850, 2950, launched=False)],
)


def chrome():
    spans = [{"ph": "X", "name": f"work {i}", "pid": 1, "tid": i % 2, "ts": 10 * i, "dur": 7} for i in range(6)]
    opened = [
        {"ph": phase, "name": "f", "pid": 1, "tid": 5, "ts": ts} for phase, ts in (("B", 1), ("E", 40), ("B", 50))
    ]
    return json.dumps({"traceEvents": [*spans, *opened, {"ph": "i", "name": "mark", "ts": 3}]}).encode()


def nsys():
    export = Export(":memory:")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    export.add("ANALYSIS_DETAILS", startTime=0)
    for i in range(3):
        begin = 1000 * i
        export.add("NVTX_EVENTS", start=begin, end=begin + 950, eventType=59, text=f"step {i}", globalTid=GLOBAL_TID)
        export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            **{"start": begin + 100, "end": begin + 130, "globalTid": GLOBAL_TID, "correlationId": i + 1},
            nameId=export.string("cudaLaunchKernel_v7000"),
        )
        export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **{"start": begin + 300, "end": begin + 800, "deviceId": 0, "streamId": 7, "globalPid": PROCESS},
            correlationId=i + 1 if i else 99,
            shortName=export.string("gemm"),
        )
    export.connection.commit()
    return export.connection.serialize()


def rocprof():
    steps = range(3)
    made = output(
        kernel_dispatch=[dispatch(1000 * i + 300, 1000 * i + 800, correlation=10 + i, dispatch_id=i) for i in steps],
        hip_api=[record(HIP, 0, 1000 * i + 100, 1000 * i + 130, correlation=10 + i) for i in steps[1:]],
        marker_api=[record(MARKER, 1, 1000 * i, 1000 * i + 950, correlation=20 + i) for i in steps],
        markers=[(20 + i, f"step {i}") for i in steps],
    )
    return json.dumps(made).encode()


def otel():
    steps = [otel_span("train_step", 1000 * i, 1000 * i + 900, id=f"step{i}", step=i) for i in range(3)]
    inner = [otel_span("forward", 1000 * i + 100, 1000 * i + 500, id=f"f{i}", parent=f"step{i}") for i in range(3)]
    return json.dumps(otel_document(*steps, *inner)).encode()


SAMPLES = {
    "xplane": lambda: as_xplane(RUN),
    "kineto": lambda: as_kineto(RUN),
    "chrome": chrome,
    "nsys": nsys,
    "rocprof": rocprof,
    "jaeger": lambda: json.dumps(jaeger_document(*xsp_spans())).encode(),
    "otel": otel,
}
"""Bytes of a trace by the name of its format; a new row of `FORMATS` needs one here."""
