"""Runs of every sort that a rule or an analysis may be given: empty, small, planted with causes, imported."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
from device_runs import instruction, view_of_ops
from full_traces import ONE_STEP_RUNS
from planted_runs import EPOCH_NS, MS, capture, counter, noisy_steps, steps_of, view_of, write_host
from planted_spans import US, Timeline, busy_step, captured_run

from phasepoint.sources.ingest.import_run import import_file
from phasepoint.store import create_run, open_run

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "cli"), str(TESTS / "sources")]  # made_run.py; rank_traces.py, nsys_export.py
from made_run import made_run  # noqa: E402
from nsys_export import Export  # noqa: E402
from rank_traces import rank_trace  # noqa: E402

N = 600
MIB = 1 << 20


def nothing(folder):
    """A run in which no process wrote anything."""
    return open_run(create_run(folder / "run", command=["python", "train.py"], created_unix_ns=EPOCH_NS))


def no_steps(folder):
    return _run_of(folder, (steps_of([]), {}))


def one_step(folder):
    return _run_of(folder, (steps_of([30 * MS]), {}))


def instant_steps(folder):
    """Steps that take no time at all."""
    return _run_of(folder, (steps_of([0] * 60), {}))


def no_windows(folder):
    return _run_of(folder, (steps_of(noisy_steps(300)), {}))


def made(folder):
    """Compilation, evaluation, checkpoints, a stretch of slow input; names that are markup."""
    return open_run(made_run(folder / "run"))


def clocked_causes(folder):
    """What the clock and the hooks see: waits for input, compilations, saves, evaluations, pauses, growing memory."""
    dur_ps = np.asarray(noisy_steps(N, noise=0.02) * (1 + 0.5 * np.arange(N) / N), np.int64)
    compile_ps = np.zeros(N, np.int64)
    compile_ps[[0, 200, 201, 330]] = 900 * MS
    dur_ps += compile_ps
    dur_ps[np.arange(50, N, 97)] += 200 * MS
    saved = np.arange(40, N, 60)
    dur_ps[saved] += 500 * MS
    rss = np.asarray(4_000 * MIB + 3 * MIB * np.arange(N), np.int64)
    steps = steps_of(dur_ps, input_ps=dur_ps // 5, compile_ps=compile_ps, host_rss_bytes=rss)
    start_ps = steps["start_ps"]
    rows = capture(steps, lambda i: {"compute": 0.4, "data_movement": 0.1, "host": 0.1})
    rows["checkpoints"] = [
        {"step": int(i), "path": f"ckpt/{i}", "start_ps": int(start_ps[i]) + MS, "dur_ps": 500 * MS,
         "framework": "torch", "bytes": MIB, "asynchronous": False, "has_iterator": False}
        for i in saved
    ]  # fmt: skip
    rows["hints"] = [
        {"name": "eval", "start_ps": int(start_ps[i]), "dur_ps": int(dur_ps[i : i + 10].sum()),
         "first_step": i, "last_step": i + 9}
        for i in range(100, N, 100)
    ]  # fmt: skip
    end_ps = int(start_ps[-1] + dur_ps[-1])
    pauses = [counter("gc.pause", at, 200 * MS) for at in range(3_000 * MS, end_ps, 3_000 * MS)]
    pauses += [counter("gc.pause.long", at - 50 * MS, 50 * MS) for at in range(3_000 * MS, end_ps, 3_000 * MS)]
    rows["counters"] = [*pauses, counter("memory.limit", 0, 16_000 * MIB, "bytes")]
    return _run_of(folder, (steps, rows))


def late_host(folder):
    """Two hosts that meet in every step; the second is late."""
    own = np.stack([noisy_steps(N, noise=0.02, seed=seed) for seed in (1, 2)])
    own[1] += 6 * MS
    dur_ps = own.max(axis=0) + MS
    hosts = []
    for one in own:

        def shares(i, one=one):
            return {"compute": 0.9 * one[i] / dur_ps[i], "communication": 1 - one[i] / dur_ps[i]}

        steps = steps_of(dur_ps)
        hosts.append((steps, capture(steps, shares)))
    return _run_of(folder, *hosts)


def programs_ops(folder):
    """A compiled program's ops on a GPU: a product in f32, elementwise ones, a transpose, a collective."""
    shares = {
        "dot.1": ("compute", 0.3), "exp.1": ("compute", 0.1), "add.1": ("compute", 0.1),
        "transpose.1": ("data_movement", 0.1), "all-reduce.1": ("communication", 0.2),
    }  # fmt: skip

    def work(flop):
        return {"flop": flop, "bytes": 3 * 4 * 10**8}

    rows = [
        instruction("p", "parameter", "f32[10000,10000]{1,0}"),
        instruction(
            "dot.1",
            "dot",
            "f32[10000,10000]{1,0}",
            "p",
            "p",
            flop=2 * 130**3,
            bytes=3 * 4 * 130**2,
            op_name="jit(step)/dot",
        ),
        instruction("exp.1", "exponential", "f32[10000,10000]{1,0}", "dot.1", op_name="jit(step)/exp", **work(10**8)),
        instruction("add.1", "add", "f32[10000,10000]{1,0}", "exp.1", "p", op_name="jit(step)/add", **work(10**8)),
        instruction("transpose.1", "transpose", "f32[10000,10000]{0,1}", "add.1", op_name="jit(step)/transpose"),
        instruction("all-reduce.1", "all-reduce", "f32[10000,10000]{1,0}", "transpose.1", op_name="jit(step)/psum"),
    ]
    gpu = {"device": "gpu:0", "level": "kernel", "devices": ("gpu:0 NVIDIA H100 80GB HBM3",)}
    return view_of_ops(folder, shares, rows, every=100, **gpu).analysis.run


def framework_ops(folder):
    """PyTorch's operators on a CPU, without programs."""
    shares = {"aten::mm": ("compute", 0.5), "aten::copy_": ("data_movement", 0.2), "aten::add": ("compute", 0.1)}
    return view_of_ops(folder, shares, program=None, every=100).analysis.run


def slow_host(folder):
    """Many small launches, waits for the device in every step, tiny executions."""

    def fill(timeline: Timeline, where, dur_ps):
        for i in range(60):
            timeline.launch(where, i * dur_ps // 80, 20 * US)
            timeline.work(where, i * dur_ps // 80 + 30 * US, 5 * US, name=f"dot.{i % 3}")
        timeline.add(where, "np.asarray(jax.Array)", dur_ps * 8 // 10, dur_ps // 10)

    return _run_of(folder, captured_run(fill, n=240))


def busy_device(folder):
    """Nothing is wrong."""
    return _run_of(folder, captured_run(busy_step, n=240))


def kineto_ranks(folder):
    """PyTorch's traces of two ranks."""
    for rank in range(2):
        (folder / f"{rank}.json").write_bytes(rank_trace(rank, n_steps=4))
        import_file(folder / f"{rank}.json", "kineto", folder / "run", rank)
    return open_run(folder / "run")


def xplane(folder):
    """A recording of TensorFlow."""
    (folder / "t.pb").write_bytes(gzip.decompress((TESTS / "sources" / "tensorflow_cpu.xplane.pb.gz").read_bytes()))
    import_file(folder / "t.pb", "xplane", folder / "run", 0)
    return open_run(folder / "run")


def nsys(folder):
    export = Export(folder / "report.sqlite")
    for step in range(3):
        at = 1_000_000 * step
        export.range(f"step {step}", at, at + 900_000).call("cudaLaunchKernel_v7000", at + 100, at + 400, step + 1)
        export.kernel("gemm<float>", at + 500, at + 800_000, correlation=step + 1)
    import_file(Path(export.close()), "nsys", folder / "run", 0)
    return open_run(folder / "run")


def chrome(folder):
    events = [
        {"ph": "X", "name": f"step {i}", "pid": 1, "tid": 1, "ts": 1000 * i, "dur": 900, "args": {}} for i in range(4)
    ]
    return _imported(folder, "chrome", {"traceEvents": events})


def rocprof(folder):
    kinds = [{"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE"]}]
    info = {"agent_id": {"handle": 10}, "queue_id": {"handle": 5}, "kernel_id": 3, "dispatch_id": 1}
    rows = [
        {"kind": 0, "operation": 1, "thread_id": 7, "correlation_id": {"internal": i}, "start_timestamp": 1000 * i,
         "end_timestamp": 1000 * i + 700, "dispatch_info": info, "stream_id": {"handle": 1}}
        for i in range(1, 5)
    ]  # fmt: skip
    process = {
        "metadata": {"pid": 42},
        "agents": [{"id": {"handle": 10}, "type": 2, "node_id": 1, "product_name": "AMD Instinct MI300X"}],
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "gemm(float*)"}],
        "strings": {"buffer_records": kinds, "marker_api": []},
        "counters": [],
        "callback_records": {"counter_collection": []},
        "buffer_records": {"kernel_dispatch": rows},
    }
    return _imported(folder, "rocprof", {"rocprofiler-sdk-tool": [process]})


def jaeger(folder):
    spans = [
        {"traceID": "t", "spanID": f"s{i}", "operationName": "predict", "startTime": 1_600_000_000_000_000 + 1000 * i,
         "duration": 800, "references": [], "tags": [], "logs": [], "processID": "p1"}
        for i in range(3)
    ]  # fmt: skip
    data = [{"traceID": "t", "spans": spans, "processes": {"p1": {"serviceName": "agent"}}}]
    return _imported(folder, "jaeger", {"data": data})


def otel(folder):
    spans = [
        {"traceId": "5b8aa5a2d2c872e8", "spanId": f"s{i}", "parentSpanId": "", "name": "step", "kind": 1,
         "startTimeUnixNano": str(EPOCH_NS + 1000 * i), "endTimeUnixNano": str(EPOCH_NS + 1000 * i + 900)}
        for i in range(3)
    ]  # fmt: skip
    return _imported(folder, "otel", {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]})


RUNS = (
    *(nothing, no_steps, one_step, instant_steps, no_windows, made, clocked_causes, late_host),
    *(programs_ops, framework_ops, slow_host, busy_device),
    *(kineto_ranks, xplane, nsys, chrome, rocprof, jaeger, otel),
    *ONE_STEP_RUNS,
)
"""Every sort of run, by the function that writes it into a folder."""


def _run_of(folder, *hosts):
    return view_of(folder, *hosts).analysis.run if hosts[0][0]["step"].size else _unseen(folder, *hosts)


def _unseen(folder, *hosts):
    path = create_run(folder / "run", command=["python", "train.py"], created_unix_ns=EPOCH_NS)
    for host, (steps, rows) in enumerate(hosts):
        write_host(path, steps, rows, host=host)
    return open_run(path)


def _imported(folder, form, document):
    (folder / "trace.json").write_text(json.dumps(document))
    import_file(folder / "trace.json", form, folder / "run", 0)
    return open_run(folder / "run")
