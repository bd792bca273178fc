"""XSpaces built from the schema: TPU and GPU planes, and random CPU traces against the slow oracle."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xplane_schema import oracle
from xplane_schema.build import PlaneBuilder, environment, new_space

from phasepoint.core.tables import table_from_columns
from phasepoint.sources.events.capture import CaptureRequest, find_steps
from phasepoint.sources.xplane.reader import read_xplane

US = 1_000_000


def read(space, **options):
    return read_xplane(space.SerializeToString(), CaptureRequest(**options))


def breakdown(capture, step, device):
    rows = capture.breakdowns.to_pylist()
    return {r["category"]: r["wall_ps"] for r in rows if r["step"] == step and r["device"] == device}


def ops(capture):
    return {(r["step"], r["device"], r["op"]): r for r in capture.ops.to_pylist()}


def tpu_space(*, marks):
    """Two steps on one TPU: a fusion under an asynchronous copy, an all-reduce, and a copy-done that waits."""
    space = new_space()
    environment(space, 1_700_000_000_000_000_000)
    tpu = PlaneBuilder(space, "/device:TPU:0", timestamp_ns=1000)
    for step in (0, 1):
        base = step * 100 * US
        run = 70 + step
        tpu.event("Steps", str(40 + step), base, 90 * US)
        tpu.event("XLA Modules", "jit_step(99)", base + 10 * US, 80 * US, run_id=run, program_id=99)
        details = {"program_id": 99, "hlo_category": "convolution fusion", "tf_op": "jit(step)/jvp(Net)/Dense_0/dot:"}
        hlo = "%fusion.3 = bf16[8,128]{1,0:T(8,128)} fusion(bf16[8,128]{1,0:T(8,128)S(5)} %p)"
        tpu.event("XLA Ops", hlo, base + 10 * US, 40 * US, display_name="fusion.3", of_metadata=details)
        reduce = {"program_id": 99, "hlo_category": "all-reduce"}
        tpu.event("XLA Ops", "%all-reduce.1 = f32[8] all-reduce(%x)", base + 50 * US, 20 * US, of_metadata=reduce)
        copying = {"program_id": 99, "hlo_category": "copy-start"}
        tpu.event(
            "Async XLA Ops", "%copy-start.2 = f32[8] copy-start(%x)", base + 40 * US, 45 * US, of_metadata=copying
        )
        tpu.event("Framework Ops", "Net/Dense_0", base + 10 * US, 80 * US)
        tpu.event("XLA TraceMe", "barrier", base + 88 * US, US)
    host = PlaneBuilder(space, "/host:CPU", timestamp_ns=1000)
    for step in (0, 1):
        if marks:
            host.event("python", "phasepoint.step", step * 100 * US, 90 * US, step_num=7 + step)
        host.event("python", "Execute", step * 5 * US + 2 * US, 3 * US, run_id=70 + step)
    return space


def test_tpu_ops_take_their_text_from_the_metadata():
    capture = read(tpu_space(marks=False))
    by_op = ops(capture)
    fusion = by_op[40, "tpu:0", "fusion.3"]
    assert (fusion["category"], fusion["program"], fusion["total_ps"]) == ("compute", 99, 40 * US)
    assert "Dense_0" in fusion["layer"]
    assert by_op[40, "tpu:0", "all-reduce.1"]["category"] == "communication"
    assert by_op[40, "tpu:0", "copy-start.2"]["category"] == "data_movement"
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["ignored_events"], row["spans"]) == (16, 2, 14)


def test_tpu_time_is_charged_by_priority():
    """10–50 computes, 50–70 communicates, 70–85 copies, the host works in 2–5 and 7–10, the rest is idle."""
    capture = read(tpu_space(marks=True))
    assert breakdown(capture, 7, "tpu:0") == {
        "compute": 40 * US, "communication": 20 * US, "data_movement": 15 * US, "host": 6 * US, "idle": 9 * US,
    }  # fmt: skip


def test_tpu_work_goes_to_the_step_whose_run_it_is():
    """Both runs are launched within the first step; the second executes during the second."""
    capture = read(tpu_space(marks=True))
    assert ops(capture)[7, "tpu:0", "fusion.3"]["count"] == 2
    assert (8, "tpu:0", "fusion.3") not in ops(capture)


def test_tpu_steps_are_found_without_marks():
    steps = find_steps(read(tpu_space(marks=False))).select(["step", "start_ps", "dur_ps"]).to_pylist()
    assert steps == [
        {"step": 40, "start_ps": 1000_000, "dur_ps": 90 * US},
        {"step": 41, "start_ps": 1000_000 + 100 * US, "dur_ps": 90 * US},
    ]


def test_device_clock_is_moved_by_one_constant():
    space = new_space()
    tpu = PlaneBuilder(space, "/device:TPU:0", timestamp_ns=1000)
    for i in range(3):
        times = {"device_offset_ps": 5_000_000 + i * 2000, "device_duration_ps": 1501}
        tpu.event("XLA Ops", f"%dot.{i}", i * 2000 + (i == 0), 1500, **times)
    spans = read(space).spans.to_pylist()
    assert [s["dur_ps"] for s in spans] == [1501] * 3
    assert [s["start_ps"] - spans[0]["start_ps"] for s in spans] == [0, 2000, 4000]
    assert spans[0]["start_ps"] == 1000_000


def gpu_space():
    space = new_space()
    gpu = PlaneBuilder(space, "/device:GPU:1", timestamp_ns=10)
    host = PlaneBuilder(space, "/host:CPU", timestamp_ns=10)
    named = {"hlo_op": "gemm_fusion_dot.3", "hlo_module": "jit_step", "program_id": 17}
    for step in (0, 1):
        base = step * 100 * US
        host.event("python", "phasepoint.step", base, 100 * US, step_num=step)
        host.event("python", "cuLaunchKernel", base + US, 2 * US, correlation_id=10 + step, device_id=1, **named)
        host.event("python", "cuLaunchKernel", base + 3 * US, 2 * US, correlation_id=20 + step, device_id=1)
        gpu.event("Stream #13(Compute)", "nvjet_hsh", base + 90 * US, 30 * US, correlation_id=10 + step, **named)
        gpu.event("Stream #20(MemcpyH2D)", "MemcpyH2D", base + 50 * US, 50 * US, correlation_id=20 + step)
        gpu.event("XLA Ops", "gemm_fusion_dot.3", base + 90 * US, 30 * US)
    gpu.event("Stream #13(Compute)", "ncclDevKernel_AllReduce", 10 * US, 5 * US, correlation_id=999)
    return space


def test_gpu_kernels_belong_to_their_launch_and_derived_lines_are_not_counted_twice():
    capture = read(gpu_space())
    by_op = ops(capture)
    assert by_op[0, "gpu:1", "gemm_fusion_dot.3"]["total_ps"] == 30 * US
    assert by_op[1, "gpu:1", "gemm_fusion_dot.3"]["count"] == 1
    assert by_op[0, "gpu:1", "MemcpyH2D"]["category"] == "data_movement"
    assert by_op[0, "host", "cuLaunchKernel"]["category"] == "host"
    orphan = by_op[None, "gpu:1", "ncclDevKernel_AllReduce"]
    assert (orphan["category"], orphan["count"]) == ("communication", 1)
    row = capture.conversion.to_pylist()[0]
    assert (row["orphan_events"], row["ignored_events"]) == (1, 2)


def test_gpu_breakdown_sees_the_wall_not_the_launch():
    """The kernel that the step before launched runs into this step, over this step's launches."""
    capture = read(gpu_space())
    assert breakdown(capture, 1, "gpu:1") == {
        "compute": 30 * US, "communication": 0, "data_movement": 40 * US, "host": 0, "idle": 30 * US,
    }  # fmt: skip
    kernels = [s for s in capture.spans.to_pylist() if s["level"] == "kernel"]
    assert {s["name"] for s in kernels} == {"nvjet_hsh", "MemcpyH2D", "ncclDevKernel_AllReduce"}


def test_a_call_has_the_stage_of_the_program_that_it_launches():
    """The third launches a program of two stages; a call of another thread launches nothing."""
    space = new_space()
    host, gpu = PlaneBuilder(space, "/host:CPU"), PlaneBuilder(space, "/device:GPU:0")
    host.event("python", "phasepoint.step", 0, 200 * US, step_num=0)
    host.event("other", "PjitFunction(g)", 52 * US, 2 * US)
    op_names = {"forward": "jit(f)/jvp(M)/mul", "backward": "jit(f)/transpose(jvp(M))/mul"}
    launched = [(0, 1, ["forward"]), (60, 2, ["backward"]), (120, 3, ["forward", "backward"])]
    for begin, program, stages in launched:
        host.event("python", "PjitFunction(<lambda>)", begin * US, 10 * US)
        host.event("python", "PjitFunction(<lambda>)", begin * US, 9 * US)
        for i, stage in enumerate(stages):
            run = {"correlation_id": 10 * program + i, "device_id": 0}
            host.event("python", "cuLaunchKernel", (begin + 2 + 3 * i) * US, 2 * US, **run)
            named = {"hlo_op": f"fusion.{program}{i}", "program_id": program, "of_metadata": {"tf_op": op_names[stage]}}
            gpu.event("Stream #1", f"kernel_{stage}", (begin + 30 + 10 * i) * US, 10 * US, **run, **named)
    capture = read(space)
    found = {(row["category"], row["stage"]): row["wall_ps"] / US for row in capture.stages.to_pylist()}
    assert found == {
        ("compute", "forward"): 20,
        ("compute", "backward"): 20,
        ("host", "forward"): 10,
        ("idle", "forward"): 20,
        ("host", "backward"): 10,
        ("idle", "backward"): 20,
        ("host", None): 12,
        ("idle", None): 18 + 20 + 20 + 30,
    }


def test_an_asynchronous_op_lasts_until_its_completion_is_announced():
    space = new_space()
    cpu = PlaneBuilder(space, "/host:CPU")
    stats = {"hlo_module": "jit_f", "program_id": 1, "run_id": 5, "device_ordinal": 0}
    cpu.event("python", "phasepoint.step", 0, 1000, step_num=0)
    cpu.event("python", "ExecuteHelper", 0, 10)
    cpu.event("python", "ThreadpoolListener::Record", 1, 0, _p=77)
    cpu.event("pool", "ThreadpoolListener::StartRegion", 90, 0, _c=77)
    cpu.event("pool", "convolution.1", 100, 50, hlo_op="convolution.1", _p=1, **stats)
    cpu.event("pool", "copy.2", 200, 50, hlo_op="copy.2", _p=2, **stats)
    cpu.event("pool", "end: copy.2", 245, 1, _c=2)
    cpu.event("other", "end: convolution.1", 300, 1, _c=1)
    capture = read(space)
    conv = next(s for s in capture.spans.to_pylist() if s["name"] == "convolution.1")
    assert (conv["dur_ps"], conv["self_ps"], conv["track"], conv["step"]) == (200, 200, "pool (async)", 0)
    assert breakdown(capture, 0, "cpu:0") == {
        "compute": 200, "communication": 0, "data_movement": 0, "host": 10, "idle": 790,
    }  # fmt: skip


def test_absolute_time_stamps_are_taken_from_the_profiles_start():
    start_ns = 1_700_000_000_000_000_000
    space = new_space()
    environment(space, start_ns)
    PlaneBuilder(space, "/host:CPU", timestamp_ns=start_ns + 7).event("python", "f", 3, 1)
    assert read(space).spans.column("start_ps").to_pylist() == [7003]


def test_steps_of_the_clock_stand_in_for_marks():
    space = new_space()
    cpu = PlaneBuilder(space, "/host:CPU")
    cpu.event("python", "dot.1", 10, 80, hlo_op="dot.1", program_id=1)
    columns = {"step": [5], "start_ps": [0], "dur_ps": [100]}
    capture = read(space, steps=table_from_columns("steps", columns))
    assert breakdown(capture, 5, "cpu:0")["compute"] == 80


def test_repeated_launches_are_steps_where_nothing_marks_any():
    space = new_space()
    cpu = PlaneBuilder(space, "/host:CPU")
    for i in range(3):
        cpu.event("python", "PjitFunction(train)", i * 100, 30)
        cpu.event("python", "PjitFunction(train)", i * 100 + 1, 28)
        cpu.event("python", "PjitFunction(tiny)", i * 100 + 40, 2)
        cpu.event("pool", "dot.1", i * 100 + 5, 90, hlo_op="dot.1", program_id=1)
    steps = find_steps(read(space)).select(["step", "start_ps", "dur_ps"]).to_pylist()
    assert steps == [
        {"step": 0, "start_ps": 0, "dur_ps": 100},
        {"step": 1, "start_ps": 100, "dur_ps": 100},
        {"step": 2, "start_ps": 200, "dur_ps": 95},
    ]


@pytest.mark.parametrize("build", [lambda space: None, lambda space: PlaneBuilder(space, "/host:CPU").line("python")])
def test_a_trace_without_events_gives_empty_tables(build):
    space = new_space()
    environment(space, 10**18)
    build(space)
    capture = read(space)
    assert (capture.spans.num_rows, capture.ops.num_rows, capture.breakdowns.num_rows) == (0, 0, 0)
    assert capture.conversion.to_pylist()[0]["events"] == 0


def test_unknown_devices_are_devices():
    space = new_space()
    PlaneBuilder(space, "/device:NPU:3").event("Stream #1", "matmul", 0, 10)
    capture = read(space)
    assert capture.ops.column("device").to_pylist() == ["npu:3"]


NAMES = ["dot.1", "copy.2", "fusion", "all-reduce.3", "while.4"]
events = st.lists(
    st.tuples(
        st.sampled_from(["python", "pool/1", "pool/2"]),
        st.integers(0, 120),
        st.integers(0, 60),
        st.sampled_from([*NAMES, "PjitFunction(f)", "Wait for x", "ThreadpoolListener::Record"]),
        st.integers(0, 80),
    ),
    max_size=20,
)


@settings(max_examples=150)
@given(events, st.booleans())
def test_random_cpu_traces_match_the_oracle(rows, inline):
    space = new_space()
    cpu = PlaneBuilder(space, "/host:CPU", timestamp_ns=3)
    cpu.event("python", "phasepoint.step", 10, 60, step_num=0)
    cpu.event("python", "phasepoint.step", 70, 80, step_num=1)
    for i, (line, start, dur, name, late) in enumerate(rows):
        if name in NAMES:
            cpu.event(line, name, start, dur, inline=inline, hlo_op=name, program_id=1, device_ordinal=0, _p=i)
            cpu.event("pool/2", f"end: {name}", start + late, 1, _c=i)
        else:
            cpu.event(line, name, start, dur)
    data = space.SerializeToString()
    capture = read_xplane(data, CaptureRequest())
    spans, ignored = oracle.read(data)
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["spans"], row["ignored_events"]) == (len(spans) + ignored, len(spans), ignored)
    keys = ("name", "start_ps", "dur_ps", "self_ps")
    assert Counter(tuple(s[k] for k in keys) for s in capture.spans.to_pylist()) == Counter(
        (s.name, s.start, s.end - s.start + s.tail, s.self_time) for s in spans
    )
    categories = {"copy.2": "data_movement", "all-reduce.3": "communication"}
    for step, (low, high) in enumerate([(3010, 3070), (3070, 3150)]):
        if not any(s.op for s in spans):
            assert capture.breakdowns.num_rows == 0
            continue
        assert breakdown(capture, step, "cpu:0") == oracle.breakdown(
            spans, lambda s: categories.get(s.op, "compute"), low, high, "cpu:0",
            lambda s: s.step is not None or "Wait" in s.name,
        )  # fmt: skip


def started_space():
    """Starting the profiler takes 2 s; a frame stands around it; a step follows 1 ms later."""
    space, second = new_space(), 10**12
    environment(space, 1_700_000_000_000_000_000)
    host = PlaneBuilder(space, "/host:CPU", timestamp_ns=0)
    host.event("python", "$contextlib.py:130 __enter__", 0, 2 * second + 500 * US)
    host.event("python", "$profiler.py:91 start_trace", 100 * US, 2 * second - 100 * US)
    host.event("python", "phasepoint.step", 2 * second + 1000 * US, 90 * US, step_num=7)
    return space


def test_times_of_an_import_begin_when_the_profiler_had_started():
    capture = read(started_space())
    spans = {s["name"]: (s["start_ps"], s["dur_ps"]) for s in capture.spans.to_pylist()}
    assert spans["$contextlib.py:130 __enter__"] == (0, 500 * US)
    assert spans["$profiler.py:91 start_trace"] == (0, 0)
    assert spans["phasepoint.step"] == (1000 * US, 90 * US)
    assert capture.start_unix_ns == 1_700_000_002_000_000_000


def test_times_of_a_recording_count_from_its_session_however_long_the_profiler_started():
    capture = read(started_space(), epoch_unix_ns=1_700_000_000_000_000_000)
    assert find_steps(capture)["start_ps"].to_pylist() == [2 * 10**12 + 1000 * US]
