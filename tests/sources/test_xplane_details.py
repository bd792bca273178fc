"""What GPU planes say of single events: launch parameters, bytes, launches; and what becomes of everything else."""

import pytest
from xplane_schema.build import PlaneBuilder, environment, new_space

from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane.reader import read_xplane

US = 1_000_000


def read(space, **options):
    return read_xplane(space.SerializeToString(), CaptureRequest(**options))


def gpu_space(*, inline=False):
    space = new_space()
    environment(space, 1_700_000_000_000_000_000)
    host = PlaneBuilder(space, "/host:CPU")
    gpu = PlaneBuilder(space, "/device:GPU:1")
    gpu.plane_stats(gpu_device_name="NVIDIA H100")
    host.event("python", "cuLaunchKernel", 0, US, correlation_id=1)
    host.event("python", "cuMemcpyAsync", 2 * US, US, correlation_id=2)
    details = "regs:32 static_shared:100 dynamic_shared:28 grid:4,2,1 block:128,1,1 occ_pct:62.5"
    gpu.event("Stream #7(Kernel)", "gemm", 5 * US, US, inline=inline, correlation_id=1, kernel_details=details)
    gpu.event(
        "Stream #8(MemcpyH2D)", "MemcpyH2D", 7 * US, US, inline=inline, correlation_id=2,
        memcpy_details="kind_src:host kind_dst:device size:4096 dest:0 async:1",
    )  # fmt: skip
    gpu.event("Stream #7(Kernel)", "lost", 9 * US, US, correlation_id=3)
    return space


@pytest.mark.parametrize("inline", [False, True])
def test_launches_bytes_and_parameters(inline):
    capture = read(gpu_space(inline=inline))
    found = {s["name"]: s for s in capture.spans.to_pylist()}
    assert (found["gemm"]["launch"], found["lost"]["launch"]) == (found["cuLaunchKernel"]["span"], None)
    assert (found["MemcpyH2D"]["launch"], found["MemcpyH2D"]["bytes"]) == (found["cuMemcpyAsync"]["span"], 4096)
    assert capture.launches.to_pylist() == [
        {
            "window": 0, "span": found["gemm"]["span"], "grid": "4,2,1", "block": "128,1,1", "registers": 32,
            "shared_bytes": 128, "occupancy_ratio": 0.625, "graph": None,
        }
    ]  # fmt: skip
    assert capture.conversion["orphan_events"].to_pylist() == [1]
    assert (capture.devices, capture.start_unix_ns) == (("gpu:1 NVIDIA H100",), 1_700_000_000_000_000_000)


def test_memory_that_the_profiler_did_not_fill_is_not_reported():
    space = new_space()
    gpu = PlaneBuilder(space, "/device:GPU:0")
    details = "regs:2191500840 static_shared:32462 dynamic_shared:0 grid:8,1,1 block:256,1,1 occ_pct:0"
    gpu.event("Stream #1", "k", 0, US, kernel_details=details)
    (row,) = read(space).launches.to_pylist()
    assert (row["grid"], row["registers"], row["shared_bytes"], row["occupancy_ratio"]) == ("8,1,1", None, None, None)


def test_shared_memory_as_amd_calls_it():
    space = new_space()
    gpu = PlaneBuilder(space, "/device:GPU:0")
    gpu.event("Stream #1", "k", 0, US, kernel_details=" grid:2,1,1 block:64,1,1 private_mem:8 group_mem:512 occ_pct:0")
    assert read(space).launches["shared_bytes"].to_pylist() == [512]


def test_kernels_of_a_graph():
    space = new_space()
    PlaneBuilder(space, "/device:GPU:0").event("Stream #1", "graph", 0, US, cuda_graph_id=9)
    assert read(space).launches["graph"].to_pylist() == ["9"]


def test_costs_of_operations_on_a_tpu():
    space = new_space()
    tpu = PlaneBuilder(space, "/device:TPU:0")
    costs = {"flops": 1024, "bytes_accessed": 96}
    tpu.event("XLA Ops", "%fusion.3 = f32[8] fusion(%p)", 0, US, of_metadata=costs)
    assert [(m["span"], m["name"], m["unit"], m["value"], m["of"]) for m in read(space).metrics.to_pylist()] == [
        (None, "flops", "flop", 1024.0, "tpu:0 fusion.3"), (None, "bytes_accessed", "bytes", 96.0, "tpu:0 fusion.3"),
    ]  # fmt: skip


def test_work_of_a_tpu_knows_its_launch():
    space = new_space()
    PlaneBuilder(space, "/host:CPU").event("python", "Execute", 0, US, run_id=70)
    tpu = PlaneBuilder(space, "/device:TPU:0")
    tpu.event("XLA Modules", "jit_f(1)", 5 * US, 9 * US, run_id=70)
    tpu.event("XLA Ops", "%dot.1", 6 * US, US)
    rows = {s["name"]: s for s in read(space).spans.to_pylist()}
    assert rows["dot.1"]["launch"] == rows["Execute"]["span"]


def test_every_event_is_accounted_for():
    space = gpu_space()
    gpu = PlaneBuilder(space, "/device:GPU:0")
    gpu.event("Stream #1", "k", 0, US)
    gpu.event("XLA Ops", "fusion", 0, US)
    gpu.event("Something new", "x", 0, US)
    PlaneBuilder(space, "#Chip TPU Misc#").event("line", "y", 0, US)
    host = PlaneBuilder(space, "/host:other")
    host.event("pool", "ThreadpoolListener::StartRegion", 0, 0)
    capture = read(space)
    assert {(a["fate"], a["what"], a["reason"]): a["events"] for a in capture.accounts.to_pylist()} == {
        ("kept", "host thread", ""): 2,
        ("kept", "stream", ""): 4,
        ("skipped", "bookkeeping", "says who launched what, and when it completed"): 1,
        ("skipped", "line Something new", "a line that is not known"): 1,
        ("skipped", "line XLA Ops", "repeats events of other lines"): 1,
        ("skipped", "plane #Chip TPU Misc#", "a plane that shows no work of the job"): 1,
    }
    row = capture.conversion.to_pylist()[0]
    assert row["events"] == 10 == row["spans"] + row["ignored_events"] + row["dropped_events"]


def test_without_spans_there_are_no_rows_of_single_spans():
    capture = read(gpu_space(), keep_spans=False)
    assert (capture.spans.num_rows, capture.launches.num_rows) == (0, 0)
