"""Recorded windows of a job against what the profiler's own bytes say, counted apart; called by `child.py`.

The second count shares nothing with the package: Kineto's JSON through Python's decimals, XPlane's bytes through a
reader of some lines, and a sweep over sorted ends.
"""

import itertools
import json
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import make_job

WINDOW_STEPS, WINDOWS = 3, 4
POWER_S = 10.0
"""How long the job lasts whose energy is counted."""

KINETO_EXECUTIONS = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of Kineto's events that are executions on a device."""

PS_PER_US = 10**6


def windows_of(*, framework: str, net: str, mode: str, keep: str, device: str, small: bool) -> dict[str, Any]:
    """Record windows back to back, and say what the run's tables and the raw captures hold of the device.

    Args:
        framework, net, mode, device, small: of `make_job`.
        keep: folder for the first window's raw capture.

    Returns:
        `ours_ps` and `apart_ps`: busy time by device (`apart_ps` is empty on a CPU, whose ops are its executions);
        `executions`, `launched`, `in_layer_ps`, `all_ps`, `layers`; `peak_bytes` of the framework's allocator and
        `told_bytes`, the most that the run's steps hold; `dropped`, events that could not be placed.
    """
    from phasepoint.recorder import record
    from phasepoint.sources.ingest.opened import open_run
    from phasepoint.store import open_run as open_raw

    job = make_job(framework, net, mode=mode, device=device, small=small)
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        out = f"{folder}/run"
        with record(out, budget=None, window_steps=WINDOW_STEPS, framework=framework) as run:
            for index in run.steps(range((WINDOWS + 1) * WINDOW_STEPS)):
                float(job.step(index))
        raw = min(Path(out).glob("host=*/raw/*"))
        shutil.copy(raw, Path(keep, f"{framework}-{net}-{mode}-{raw.name}"))
        apart = _busy_apart(open_raw(out)) if device == "cuda" else {}
        found = _told_by_tables(open_run(out))
        peak = job.memory()
        return found | {"apart_ps": apart, "peak_bytes": None if peak is None else peak[1]}


def energy_of(*, device: str, small: bool) -> dict[str, Any]:
    """Record a job for some seconds, and hold its counters against the driver's own running total.

    Returns:
        `told_j`, from the run's counters; `driver_j`, read before and after; `phases_j`, what its phases add up to;
        `power_w` and `clock_mhz`, each sample; `slowed`, the share of samples with the clock held down; `verdict`.
    """
    import pynvml

    from phasepoint.findings.judge import summarize_run
    from phasepoint.recorder import record
    from phasepoint.sources.ingest.opened import open_run

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    job = make_job("torch", "transformer", device=device, small=small)
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        out, end_s = f"{folder}/run", time.monotonic() + POWER_S
        with record(out, framework="torch") as run:
            before_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            for index in run.steps(itertools.count()):
                float(job.step(index))
                if time.monotonic() > end_s:
                    break
            after_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        recorded = open_run(out)
        summary = summarize_run(recorded)
        values: dict[str, list[float]] = defaultdict(list)
        for row in recorded.table("counters").to_pylist():
            if row["device"] == "gpu:0":
                values[row["name"]].append(row["value"])
        held = [values[name] for name in values if name.startswith("gpu.slowed.")]
        return {
            "told_j": values["gpu.energy"][-1] - values["gpu.energy"][0],
            "driver_j": (after_mj - before_mj) / 1e3,
            "phases_j": sum(phase.energy_j or 0.0 for phase in summary.phases),
            "power_w": values["gpu.power"],
            "clock_mhz": values["gpu.clock"],
            "slowed": sum(map(any, zip(*held, strict=True))) / max(len(held[0]), 1),
            "verdict": summary.verdict,
        }


def _told_by_tables(run: Any) -> dict[str, Any]:
    from phasepoint.stack.analyses.table import analyse
    from phasepoint.stack.shard.executions import read_executions
    from phasepoint.stack.shard.layers import read_layers
    from phasepoint.stack.shard.shard import shards_of

    busy = analyse(run, "device-time", workers=1).rows.select(["device", "busy_ps"]).to_pylist()
    (shard,) = shards_of(run)
    executions, layers = read_executions(shard), read_layers(shard)
    dur_ps = executions.end_ps - executions.start_ps
    code = layers.code[executions.row] if layers.source == "module" else executions.row * 0 - 1
    told = [size for size in run.table("steps")["device_memory_bytes"].to_pylist() if size is not None]
    return {
        "ours_ps": {row["device"]: row["busy_ps"] for row in busy},
        "executions": len(dur_ps),
        "launched": int((executions.launch >= 0).sum()),
        "in_layer_ps": int(dur_ps[code >= 0].sum()),
        "all_ps": int(dur_ps.sum()),
        "layers": len(layers.names),
        "told_bytes": max(told, default=None),
        "dropped": sum(run.table("conversions")["dropped_events"].to_pylist()),
    }


def _busy_apart(run: Any) -> dict[str, int]:
    """Busy time by device over all windows, from their raw captures."""
    busy: dict[str, int] = defaultdict(int)
    for window in run.table("windows").to_pylist():
        (shard,) = run.shards
        data = run.read_raw(shard.name, window["raw"])
        stretches = kineto_stretches(data) if window["format"] == "kineto" else xplane_stretches(data)
        by_device: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for device, start_ps, end_ps in stretches:
            by_device[device].append((start_ps, end_ps))
        for device, mine in by_device.items():
            busy[device] += union_ps(mine)
    return dict(busy)


def union_ps(stretches: Iterable[tuple[int, int]]) -> int:
    """Time covered by at least one stretch.

    Example:
        >>> union_ps([(0, 4), (2, 6), (8, 9)])
        7
    """
    total, until = 0, None
    for start, end in sorted(stretches):
        total += max(end - (start if until is None else max(start, until)), 0)
        until = end if until is None else max(until, end)
    return total


def kineto_stretches(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Device, start and end of every execution in Kineto's JSON, ps of the file's clock."""
    for event in json.loads(data, parse_float=Decimal)["traceEvents"]:
        if event.get("cat") in KINETO_EXECUTIONS:
            start = Decimal(event["ts"]) * PS_PER_US
            yield f"gpu:{event['args']['device']}", int(start), int(start + Decimal(event["dur"]) * PS_PER_US)


def xplane_stretches(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Device, start and end of every event on a stream of a GPU in an XSpace.

    Field numbers: tsl/profiler/protobuf/xplane.proto.
    """
    for plane in (value for field, value in _fields(data) if field == 1):
        name = next((bytes(value).decode() for field, value in _fields(plane) if field == 2), "")
        if not name.startswith("/device:GPU:"):
            continue
        device = f"gpu:{name.rpartition(':')[2].split()[0]}"
        for line in (value for field, value in _fields(plane) if field == 3):
            parts = list(_fields(line))
            if not next((bytes(value) for field, value in parts if field == 2), b"").startswith(b"Stream"):
                continue
            base_ps = next((value for field, value in parts if field == 3), 0) * 1000
            for event in (dict(_fields(value)) for field, value in parts if field == 4):
                start_ps = base_ps + event.get(2, 0)
                yield device, start_ps, start_ps + event.get(3, 0)


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message: an integer, or the bytes of what is nested."""
    view, at = memoryview(data), 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(view, at)
        elif kind == 2:
            length, at = _varint(view, at)
            value, at = view[at : at + length], at + length
        else:  # fixed 64 or 32 bits
            length = 8 if kind == 1 else 4
            value, at = view[at : at + length], at + length
        yield key >> 3, value


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
