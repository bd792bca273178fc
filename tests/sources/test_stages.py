"""What a step's time served: `stages` against a count of every instant, and against `breakdowns`."""

import gzip
import json
import os
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.tables import CATEGORIES, STAGES
from phasepoint.sources.chrome.blocks import PlainBytes
from phasepoint.sources.chrome.reader import KinetoReading, read_kineto
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.events.operator_names import is_wait

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces" / "kineto"
PASSES = STAGES[:4]


def event(name, cat, ts, dur, tid=1, **args):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args}


def kernel(name, ts, dur, correlation, cat="kernel"):
    return event(name, cat, ts, dur, tid=7, correlation=correlation, device=0, stream=7)


def launch(ts, correlation, tid=1):
    return event("cudaLaunchKernel", "cuda_runtime", ts, 2, tid=tid, correlation=correlation)


def forward_op(name, ts, dur, sequence):
    return event(name, "cpu_op", ts, dur, **{"Sequence number": sequence, "Fwd thread id": 0})


BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"
GPU_STEP = [
    event("ProfilerStep#0", "user_annotation", 0, 1000),
    event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", 0, 50),
    event("cudaMemcpyAsync", "cuda_runtime", 60, 5, correlation=1),
    kernel("Memcpy HtoD (Pinned -> Device)", 70, 30, 1, cat="gpu_memcpy"),
    forward_op("aten::addmm", 100, 20, 5),
    launch(105, 2),
    kernel("gemm", 110, 100, 2),
    forward_op("aten::mse_loss", 220, 10, 6),
    launch(222, 3),
    kernel("reduce", 230, 70, 3),
    event(BACKWARD, "cpu_op", 300, 50, tid=2),
    launch(310, 4, tid=2),
    kernel("gemm_nt", 320, 300, 4),
    event("ncclKernel_AllReduce", "kernel", 600, 60, tid=8, correlation=6, device=0, stream=8),
    event("Optimizer.step#Adam.step", "user_annotation", 700, 100),
    launch(710, 5),
    kernel("multi_tensor_apply", 750, 150, 5),
]


def stages_of(capture):
    """Time by device, step, category and stage, in µs."""
    found = defaultdict(int)
    for row in capture.stages.to_pylist():
        assert row["wall_ps"] > 0
        found[row["device"], row["step"], row["category"], row["stage"]] += row["wall_ps"]
    return dict(found)


def test_a_step_on_a_gpu_by_hand():
    found = stages_of(read_kineto(json.dumps({"traceEvents": GPU_STEP}).encode(), CaptureRequest()))
    us = {key[2:]: ps / 1e6 for key, ps in found.items()}
    assert us == {
        ("host", "input"): 50,  # the loader's own thread
        ("host", None): 5,  # the copy's call: between batches and forward
        ("data_movement", "to_device"): 30,
        ("host", "forward"): 10 + 10,  # until the first kernel; the call of the loss, while the device waits
        ("compute", "forward"): 100 + 70,
        ("idle", "forward"): 10,  # 210 to 220: between forward's kernel and its next call
        ("host", "backward"): 20,
        ("compute", "backward"): 300,
        ("communication", None): 40,
        ("idle", None): 10 + 5 + 40 + 100,  # around the copy; until the optimizer; after it
        ("host", "optimizer"): 50,
        ("compute", "optimizer"): 150,
    }


def test_stages_add_up_to_the_breakdown():
    capture = read_kineto(json.dumps({"traceEvents": GPU_STEP}).encode(), CaptureRequest())
    assert sums(capture.stages) == sums(capture.breakdowns)


def sums(table):
    """Time by step, device and category, where there is any."""
    found = defaultdict(int)
    for row in table.to_pylist():
        found[row["step"], row["device"], row["category"]] += row["wall_ps"]
    return {key: ps for key, ps in found.items() if ps}


def test_a_step_without_backward_and_optimizer_has_forward_only():
    events = [event("ProfilerStep#0", "user_annotation", 0, 100), forward_op("aten::mm", 10, 20, 1)]
    events += [event("aten::relu", "cpu_op", 40, 20), event("aten::relu", "cpu_op", 200, 20)]
    found = stages_of(read_kineto(json.dumps({"traceEvents": events}).encode(), CaptureRequest()))
    assert {key[2:]: ps / 1e6 for key, ps in found.items() if key[2] == "compute"} == {("compute", "forward"): 40}


def slow_stages(capture):
    """Every instant of every step, one after another."""
    spans = capture.spans.to_pylist()
    steps = [(row["step"], row["start_ps"], row["start_ps"] + row["dur_ps"]) for row in capture.steps.to_pylist()]
    found = {}
    for device in sorted({span["device"] for span in spans} - {"host"}) or ["cpu:0"]:
        found |= {(device, *key): ps for key, ps in _of_device(spans, steps, device).items() if ps}
    return found


def _of_device(spans, steps, device):
    edges = {edge for _, *bounds in steps for edge in bounds}
    times = sorted(edges | {t for s in spans for t in (s["start_ps"], s["start_ps"] + s["dur_ps"])})
    places = {time: i for i, time in enumerate(times)}
    by_track = defaultdict(list)
    for span in spans:  # by start
        by_track[span["track"]].append(span)
    active = [[] for _ in times]
    for track in by_track.values():
        innermost = {}
        for span in track:
            for at in range(places[span["start_ps"]], places[span["start_ps"] + span["dur_ps"]]):
                innermost[at] = span
        for at, span in innermost.items():
            active[at].append(span)
    told = [_tell(spans_of, device) for spans_of in active]
    begun, stages, before = {}, [], None
    for at, (_, _, evidence) in enumerate(told):
        begun = {stage: begun.get(stage, at) for stage in evidence}
        if evidence:
            before = max(begun, key=lambda stage: (begun[stage], PASSES.index(stage))), at + 1
        stages.append((evidence, before))
    found = defaultdict(int)
    after = None
    for at in reversed(range(len(times) - 1)):
        category, stage, evidence = told[at]
        if evidence:
            after = min(evidence, key=PASSES.index), at
        elif stage is None and category in ("host", "idle") and after and stages[at][1]:
            (left, since), (right, until) = stages[at][1], after
            apart = any(times[since] <= edge <= times[until] for edge in edges)
            stage = left if left == right and not apart else None
        for step, low, high in steps:
            if low <= times[at] < high:
                found[step, category, stage] += times[at + 1] - times[at]
    return _forward_only(found)


def _tell(active, device):
    """Category and stage of an instant, and the passes to which anything that runs belongs."""
    work, host, staged, evidence = [], False, [], set()
    for span in active:
        stage, on_device = span["direction"], span["device"] == device
        if "memcpy htod" in span["name"].lower() and span["category"] == "data_movement":
            stage = "to_device"
        if not (on_device or span["device"] == "host") or span["level"] == "model":
            continue
        waits = span["device"] == "host" and (
            (span["level"] == "runtime" and is_wait(span["name"])) or span["name"].startswith("phasepoint.")
        )
        if on_device and span["category"] != "host":
            work.append((CATEGORIES.index(span["category"]), STAGES.index(stage) if stage else len(STAGES)))
        else:
            host |= not waits
            staged += [STAGES.index(stage)] if stage else []
        evidence |= {stage} & set(PASSES)
    if work:
        category, stage = min(work)
        return CATEGORIES[category], (*STAGES, None)[stage], evidence
    return "host" if host else "idle", STAGES[min(staged)] if staged else None, evidence


def _forward_only(found):
    if not any(stage == "forward" for _, _, stage in found):
        return found
    busy = {
        step for step, category, stage in found if category in CATEGORIES[:3] and stage in ("backward", "optimizer")
    }
    result = defaultdict(int)
    for (step, category, stage), ps in found.items():
        moved = step not in busy and category in CATEGORIES[:3] and stage is None
        result[step, category, "forward" if moved else stage] += ps
    return result


def made_trace(drawn):
    """Operators of two threads and kernels of one device that serve this or that, and six steps."""
    made = []
    for i, (thread, start, dur, what) in enumerate(drawn):
        linked = {"correlation": i, "device": 0, "stream": 7 + thread}
        made += {
            "forward": [forward_op("aten::mm", start, dur, i) | {"tid": thread}],
            "backward": [event(BACKWARD, "cpu_op", start, dur, tid=thread)],
            "optimizer": [event("Optimizer.step#SGD.step", "user_annotation", start, dur, tid=thread)],
            "input": [event("enumerate(DataLoader)#x", "user_annotation", start, dur, tid=thread)],
            "plain": [event("aten::relu", "cpu_op", start, dur, tid=thread)],
            "mark": [event("phasepoint.layer#Net|1", "user_annotation", start, dur, tid=thread)],
            "whole": [event("phasepoint.backward", "user_annotation", start, dur, tid=thread)],
            "wait": [event("cudaStreamSynchronize", "cuda_runtime", start, dur, tid=thread)],
            "kernel": [launch(max(start - 3, 0), i, tid=thread), event("gemm", "kernel", start, dur, tid=7, **linked)],
            "copy": [event("Memcpy HtoD (a)", "gpu_memcpy", start, dur, tid=7, **linked)],
            "nccl": [event("ncclDevKernel_AllReduce", "kernel", start, dur, tid=8, **linked)],
        }[what]
    return made + [event(f"ProfilerStep#{k}", "user_annotation", 40 * k, 40, tid=9) for k in range(6)]


_WHATS = ["forward", "backward", "optimizer", "input", "plain", "mark", "whole", "wait", "kernel", "copy", "nccl"]


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 220), st.integers(0, 60), st.sampled_from(_WHATS)),
        min_size=1,
        max_size=30,
    ),
    st.integers(4, 20),
)
@settings(max_examples=200)
def test_stages_are_those_of_every_instant(drawn, slice_rows):
    data = json.dumps({"traceEvents": made_trace(drawn)}).encode()
    capture = read_kineto(data, CaptureRequest())
    assert stages_of(capture) == slow_stages(capture)
    assert sums(capture.stages) == sums(capture.breakdowns)
    with KinetoReading(PlainBytes(data), slice_rows=slice_rows) as reading:
        reading.set_window(CaptureRequest())
        assert stages_of(reading.capture()) == stages_of(capture)


def test_an_execution_hands_nothing_down_to_one_that_it_encloses():
    """In slices as in one piece; a random trace showed that what was held from the slice before did."""
    drawn = [(1, 0, 38, "forward"), (1, 80, 22, "backward"), (1, 102, 43, "kernel"), (1, 104, 41, "nccl")]
    data = json.dumps({"traceEvents": made_trace(drawn)}).encode()
    whole = stages_of(read_kineto(data, CaptureRequest()))
    assert whole["gpu:0", 2, "communication", None] == 16_000_000
    with KinetoReading(PlainBytes(data), slice_rows=4) as reading:
        reading.set_window(CaptureRequest())
        assert stages_of(reading.capture()) == whole


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces/kineto")
@pytest.mark.parametrize("name", ["mi250_toy", "nccl_rank", "a100_alexnet", "cpu_only_rank"])
def test_stages_of_a_real_trace_are_those_of_every_instant(name):
    capture = read_kineto(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()), CaptureRequest())
    assert stages_of(capture) == slow_stages(capture)
