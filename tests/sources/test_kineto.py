import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import CATEGORIES, TABLES, validate_table
from phasepoint.sources.chrome.reader import read_kineto
from phasepoint.sources.events.capture import CaptureRequest

US = 1_000_000


def event(name, cat, ts, dur, /, *, pid=1, tid=1, ph="X", **args):
    return {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, *, stream=7, correlation, device=0, cat="kernel"):
    return event(name, cat, ts, dur, pid=device, tid=stream, device=device, stream=stream, correlation=correlation)


def capture(events, *, base_ns=0, **options):
    data = json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": events}).encode()
    return read_kineto(data, CaptureRequest(window=4, **options))


def rows(table, *names):
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def walls(found, device):
    return {
        (row["step"], row["category"]): row["wall_ps"] // US
        for row in found.breakdowns.to_pylist()
        if row["device"] == device and row["wall_ps"]
    }


GPU_STEP = [
    event("phasepoint.step#8", "user_annotation", 0, 100),
    event("phasepoint.step#9", "user_annotation", 100, 100),
    event("aten::mm", "cpu_op", 10, 20),
    event("cudaLaunchKernel", "cuda_runtime", 15, 5, correlation=1),
    event("cudaDeviceSynchronize", "cuda_runtime", 90, 105, correlation=2),
    kernel("ampere_sgemm_128x64_nn", 50, 60, correlation=1),
    kernel("ncclDevKernel_AllReduce_Sum_f32", 105, 25, stream=9, correlation=3),
    kernel("Memcpy DtoH (Device -> Pinned)", 120, 30, cat="gpu_memcpy", correlation=99),
    event("Iteration Start", "", 0, 0, ph="i"),
]


def test_a_gpu_capture_closes_and_follows_launches():
    found = capture([*GPU_STEP, event("cudaLaunchKernel", "cuda_runtime", 30, 5, correlation=3)])
    assert rows(found.steps, "step", "start_ps", "dur_ps") == [(8, 0, 100 * US), (9, 100 * US, 100 * US)]
    kernels = {
        row["name"]: (row["step"], row["category"], row["device"], row["track"], row["correlation"])
        for row in found.spans.to_pylist()
        if row["level"] == "kernel"
    }
    assert kernels == {
        "ampere_sgemm_128x64_nn": (8, "compute", "gpu:0", "gpu:0 stream 7", 1),
        "ncclDevKernel_AllReduce_Sum_f32": (8, "communication", "gpu:0", "gpu:0 stream 9", 3),
        "Memcpy DtoH (Device -> Pinned)": (None, "data_movement", "gpu:0", "gpu:0 stream 7", 99),
    }
    # Step 8: aten::mm with its launch 10–30 and the launch 30–35 on the host, then the kernel; a wait is no work.
    assert walls(found, "gpu:0") == {
        (8, "compute"): 50,
        (8, "host"): 25,
        (8, "idle"): 25,
        (9, "compute"): 10,
        (9, "communication"): 20,
        (9, "data_movement"): 20,
        (9, "idle"): 50,
    }
    assert {row["category"] for row in found.spans.to_pylist() if row["device"] == "host"} == {"host"}
    assert found.conversion["orphan_events"].to_pylist() == [1]
    assert "phasepoint.step#8" not in found.ops["op"].to_pylist()


CPU_STEP = [
    event("ProfilerStep#3", "user_annotation", 0, 50),
    event("aten::linear", "cpu_op", 1, 20),
    event("aten::t", "cpu_op", 2, 3),
    event("aten::addmm", "cpu_op", 6, 14),
    event("Optimizer.step#SGD.step", "user_annotation", 30, 15),
    event("aten::add_", "cpu_op", 35, 5),
    event("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", 10, 15, tid=2),
    event("aten::copy_", "cpu_op", 22, 2, tid=2),
]


def test_on_a_cpu_the_operators_are_the_device():
    found = capture(CPU_STEP)
    ops = {row["op"]: row for row in found.ops.to_pylist()}
    assert ops["aten::linear"]["total_ps"] == 20 * US
    assert ops["aten::linear"]["self_ps"] == 3 * US
    assert (ops["aten::t"]["category"], ops["aten::t"]["device"]) == ("data_movement", "cpu:0")
    assert ops["Optimizer.step#SGD.step"]["self_ps"] == 10 * US
    assert {row["step"] for row in ops.values()} == {3}
    # Computing at 1–2, 5–22 and 24–25 (two threads), 35–40; moving at 2–5 and 22–24; the optimizer itself 30–35, 40–45.
    assert walls(found, "cpu:0") == {(3, "compute"): 24, (3, "data_movement"): 5, (3, "host"): 10, (3, "idle"): 11}
    parents = {row["name"]: row["parent"] for row in found.spans.to_pylist()}
    names = found.spans["name"].to_pylist()
    assert names[parents["aten::addmm"]] == "aten::linear"
    assert names[parents["aten::copy_"]].startswith("autograd::engine")


def test_steps_are_found_in_order_of_trust():
    given_steps = TABLES["steps"].empty
    optimizer = [event("Optimizer.step#Adam.step", "user_annotation", ts, 5) for ts in (10, 40, 70)]
    other = [event("Optimizer.step#SGD.step", "user_annotation", 60, 5)]
    work = [event("aten::mm", "cpu_op", 2, 5)]
    found = capture([*work, *optimizer, *other], steps=given_steps)
    assert rows(found.steps, "step", "start_ps", "dur_ps") == [
        (0, 0, 13 * US),
        (1, 13 * US, 30 * US),
        (2, 43 * US, 30 * US),
    ]
    clock = capture(CPU_STEP).steps  # any table of steps
    assert rows(capture([*work, *optimizer], steps=clock).steps, "step") == [(3,)]
    marked = capture([*GPU_STEP, *optimizer], steps=clock)
    assert rows(marked.steps, "step") == [(8,), (9,)]
    assert len(capture(work).steps) == len(capture(work).breakdowns) == 0
    assert capture(work).ops["step"].to_pylist() == [None]


def test_times_count_from_the_epoch_or_from_the_first_event():
    events = [event("aten::mm", "cpu_op", 4373768380354.218, 0.042)]
    base_ns = 1790857026000000000
    start_ns = base_ns + 4373768380354218
    found = capture(events, base_ns=base_ns, epoch_unix_ns=start_ns - 7)
    assert rows(found.spans, "start_ps", "dur_ps") == [(7_000, 42_000)]
    assert rows(capture(events, base_ns=base_ns).spans, "start_ps", "dur_ps") == [(0, 42_000)]


def test_what_cannot_be_placed_is_counted():
    found = capture(
        [
            *CPU_STEP,
            event("aten::mm", "cpu_op", "soon", 1),
            event("aten::mm", "cpu_op", 1, -1),
            event("unfinished", "cpu_op", 1, None),
            event("thread_name", "", 0, 0, ph="M", name="worker"),
            {"ph": "X", "name": 7, "cat": "cpu_op", "ts": 1, "dur": 1},
        ]
    )
    (row,) = found.conversion.to_pylist()
    assert (row["events"], row["spans"], row["ignored_events"], row["dropped_events"]) == (13, 9, 1, 3)
    assert row["problem"] is None


def test_threads_of_one_name_stay_apart():
    names = [event("thread_name", "", 0, 0, ph="M", tid=tid, name="pool") for tid in (1, 2)]
    found = capture([*names, event("aten::mm", "cpu_op", 0, 10), event("aten::mm", "cpu_op", 5, 10, tid=2)])
    assert len(set(found.spans["track"].to_pylist())) == 2
    assert found.conversion["misnested_events"].to_pylist() == [0]


@pytest.mark.parametrize("data", [b"", b"{}x", b"\x00\x01", b"not json", b'{"traceEvents": 3'])
def test_no_trace_at_all(data):
    with pytest.raises(SourceError, match=f"no Kineto trace in {len(data)} bytes"):
        read_kineto(data, CaptureRequest())


def test_a_trace_without_events_has_empty_tables():
    for data in (b"{}", b"[]", b'{"traceEvents": []}'):
        found = read_kineto(data, CaptureRequest())
        assert len(found.spans) == len(found.ops) == len(found.breakdowns) == 0
        for name in ("spans", "ops", "breakdowns", "programs", "instructions", "steps"):
            validate_table(name, getattr(found, name))


@given(st.integers(0, 2000))
@settings(max_examples=60)
def test_of_a_truncated_file_all_whole_events_are_read(cut):
    data = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 10**18, "traceEvents": GPU_STEP}, indent=1).encode()
    head = data[: max(len(data) - 1 - cut, data.index(b"[") + 1)]
    found = read_kineto(head, CaptureRequest())
    whole = head.count(b"\n  }")
    (row,) = found.conversion.to_pylist()
    assert row["spans"] + row["ignored_events"] == whole
    assert row["dropped_events"] == (row["events"] - whole) <= 1
    assert row["problem"].startswith("damaged JSON")


def test_numbers_that_are_no_json_cost_only_themselves():
    data = json.dumps({"traceEvents": CPU_STEP}).encode().replace(b'"args": {}', b'"args": {"load": NaN}', 1)
    found = read_kineto(data, CaptureRequest())
    assert len(found.spans) == len(CPU_STEP)
    data = data.replace(b'"aten::t"', b'"aten::t"oops')
    (row,) = read_kineto(data, CaptureRequest()).conversion.to_pylist()
    assert (row["spans"], row["dropped_events"]) == (len(CPU_STEP) - 1, 1)


@given(st.binary(max_size=60), st.integers(0, 10_000))
@settings(max_examples=100)
def test_damage_never_crashes(garbage, place):
    data = json.dumps({"traceEvents": GPU_STEP}).encode()
    place %= len(data)
    try:
        found = read_kineto(data[:place] + garbage + data[place + len(garbage) :], CaptureRequest())
    except SourceError:
        return
    (row,) = found.conversion.to_pylist()
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]


@pytest.mark.torch
def test_a_recorded_capture_equals_the_session_s_own_events(tmp_path):
    torch = pytest.importorskip("torch")
    results = record_torch(torch, n_steps=3)
    path = tmp_path / "capture.json"
    results.save(str(path))
    epoch_ns = results.trace_start_ns()
    found = read_kineto(path.read_bytes(), CaptureRequest(window=1, epoch_unix_ns=epoch_ns))
    truth = sorted((e.name(), (e.start_ns() - epoch_ns) * 1000, e.duration_ns() * 1000) for e in results.events())
    assert sorted(rows(found.spans, "name", "start_ps", "dur_ps")) == truth
    assert rows(found.steps, "step") == [(0,), (1,), (2,)]
    (row,) = found.conversion.to_pylist()
    assert (row["dropped_events"], row["misnested_events"], row["problem"]) == (0, 0, None)
    assert row["events"] == row["spans"] + row["ignored_events"]
    assert_closes(found)
    assert_self_times_close(found)
    backward = [r for r in found.spans.to_pylist() if r["name"].endswith("AddmmBackward0")]
    assert {r["step"] for r in backward} == {0, 1, 2}
    shares = dict.fromkeys(CATEGORIES, 0)
    for category, wall_ps in rows(found.breakdowns, "category", "wall_ps"):
        shares[category] += wall_ps
    assert shares["compute"] > shares["data_movement"] > 0
    assert shares["communication"] == 0


def record_torch(torch, n_steps):
    from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig
    from torch.autograd import _disable_profiler, _enable_profiler, _prepare_profiler

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, labels = torch.randn(16, 32), torch.zeros(16, dtype=torch.long)
    options = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
    _prepare_profiler(options, {ProfilerActivity.CPU})
    _enable_profiler(options, {ProfilerActivity.CPU})
    for step in range(n_steps):
        with torch.profiler.record_function(f"phasepoint.step#{step}"):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return _disable_profiler()


def assert_closes(found):
    """Categories of a step add up to its duration, for every device."""
    total: dict[tuple[int, str], int] = {}
    for step, device, wall_ps in rows(found.breakdowns, "step", "device", "wall_ps"):
        total[step, device] = total.get((step, device), 0) + wall_ps
    durations = dict(rows(found.steps, "step", "dur_ps"))
    assert total == {key: durations[key[0]] for key in total}


def assert_self_times_close(found):
    """On each track self times add up to the time in which it was busy, found here second by second."""
    tracks: dict[str, list[tuple[int, int]]] = {}
    own: dict[str, int] = {}
    for track, start_ps, dur_ps, self_ps in rows(found.spans, "track", "start_ps", "dur_ps", "self_ps"):
        tracks.setdefault(track, []).append((start_ps, start_ps + dur_ps))
        own[track] = own.get(track, 0) + self_ps
    assert own == {track: slow_union_ps(spans) for track, spans in tracks.items()}


def slow_union_ps(spans):
    """Length of a union of intervals, piece by elementary piece."""
    cuts = np.unique(np.array(spans).ravel())
    covered = np.zeros(len(cuts), np.int64)
    for start, end in spans:
        covered[np.searchsorted(cuts, start) : np.searchsorted(cuts, end)] = 1
    return int((np.diff(cuts) * covered[:-1]).sum())


DATA = os.environ.get("PHASEPOINT_DATA", "")
KERNELS = {
    "a100_alexnet": 98,
    "h100_bert_small": 61,
    "h100_vit": 156,
    "h100_qwen_0.5b": 1707,
    "nccl_rank": 3774,
    "ns_resolution": 6095,
    "mi250_toy": 16,
    "torch_compile_triton": 12,
}


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PHASEPOINT_DATA is not set: real traces are elsewhere")
@pytest.mark.parametrize("name", KERNELS)
def test_real_traces(name):
    data = gzip.decompress((Path(DATA) / "traces" / "kineto" / f"{name}.json.gz").read_bytes())
    found = read_kineto(data, CaptureRequest())
    (row,) = found.conversion.to_pylist()
    everything = json.loads(data)["traceEvents"]
    assert row["events"] == len(everything)
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]
    device = [r for r in found.spans.to_pylist() if r["level"] == "kernel"]
    assert len(device) == KERNELS[name]
    assert_closes(found)
    launches = [e for e in everything if e.get("cat", "").endswith(("_runtime", "_driver"))]
    on_host = {e["args"].get("correlation") for e in launches if "args" in e}
    on_device = [e for e in everything if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert row["orphan_events"] == sum(e["args"].get("correlation") not in on_host - {0, None} for e in on_device)
    # Device busy time of each step, by brute force.
    steps = rows(found.steps, "step", "start_ps", "dur_ps")
    for step, start_ps, dur_ps in steps:
        clipped = [(max(r["start_ps"], start_ps), min(r["start_ps"] + r["dur_ps"], start_ps + dur_ps)) for r in device]
        busy_ps = slow_union_ps([span for span in clipped if span[0] < span[1]] or [(0, 0)])
        own = [r for r in found.breakdowns.to_pylist() if r["step"] == step]
        assert sum(r["wall_ps"] for r in own if r["category"] in CATEGORIES[:3]) == busy_ps
