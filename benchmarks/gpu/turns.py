"""The same steps with and without a tool, in turns within one process; called by `child.py`.

Every turn trains the same steps from the same state, so that the results of all turns must be the same bits.
"""

import atexit
import gc
import hashlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import Job, make_job

LOG_EVERY = 10
"""Steps between two looks at the loss, as training loops do."""

PROBED_STEPS = 30
LEAST_STEPS = 20
AROUND_WINDOW = 2
"""Steps before and after a window in which what it cost may show on the device's timeline."""

Loader = Callable[[int], Iterable[int]]


def overhead(
    *, framework: str, net: str, mode: str, device: str, small: bool, pairs: int, turn_s: float, tool: str = "record"
) -> dict[str, Any]:
    """Pairs of turns without and with a tool, each pair in the other order than the one before.

    Args:
        framework, net, mode, device, small: of `make_job`.
        pairs: of turns.
        turn_s: how long a turn is meant to last.
        tool: "record", "profiler" (the framework's own, left on) or "traceml".

    Returns:
        `off` and `on`, a list of turns each, and what the first window of the process took (`first_s`).
    """
    job = make_job(framework, net, mode=mode, device=device, small=small)
    steps = max(LEAST_STEPS, int(turn_s / _step_s(job)))
    found: dict[str, Any] = {"off": [], "on": [], "steps": steps}
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        began_s = time.perf_counter()
        _turn(job, LEAST_STEPS, TOOLS[tool](framework, f"{folder}/first", True))
        found["first_s"] = time.perf_counter() - began_s
        for pair in range(pairs):
            for side in ("off", "on") if pair % 2 == 0 else ("on", "off"):
                of_tool = TOOLS[tool] if side == "on" else _nothing
                found[side].append(_turn(job, steps, of_tool(framework, f"{folder}/{pair}", False)))
    return found


def _step_s(job: Job) -> float:
    job.wait()
    began_s = time.perf_counter()
    for index in range(PROBED_STEPS):
        job.step(index)
    job.wait()
    return (time.perf_counter() - began_s) / PROBED_STEPS


Tool = AbstractContextManager[tuple[Loader, Callable[[], dict[str, Any]]]]
"""Gives what a loop takes its steps from and, once it is left, what the tool tells of itself."""


def _nothing(framework: str, out: str, is_first: bool) -> Tool:
    return nullcontext((range, dict))


@contextmanager
def _recorded(framework: str, out: str, is_first: bool) -> Iterator[tuple[Loader, Callable[[], dict[str, Any]]]]:
    """Phasepoint at its default budget; the first time without one, so that the profiler starts."""
    from phasepoint.recorder import record

    with record(out, framework=framework, budget=None if is_first else 0.01) as run:
        yield lambda steps: run.steps(range(steps)), lambda: _told_by(run, out)


def _told_by(run: Any, out: str) -> dict[str, Any]:
    from phasepoint.store import open_run

    cost, recorded = run.cost, open_run(out)
    columns = ["first_step", "last_step", "start_cost_ps", "stop_cost_ps", "slowdown_cost_ps", "capture_cost_ps"]
    return {
        "own_ratio": cost.ratio,
        "entry_s": cost.entry_ps / 1e12,
        "windows": recorded.table("windows").select(columns).to_pylist(),
        "clock_s": sum(recorded.table("steps")["dur_ps"].to_pylist()) / 1e12,
        "run_bytes": sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file()),
    }


@contextmanager
def _profiled(framework: str, out: str, is_first: bool) -> Iterator[tuple[Loader, Callable[[], dict[str, Any]]]]:
    """The framework's own profiler, left on; writing its trace is no part of the turn's loop."""
    if framework == "jax":
        import jax

        with jax.profiler.trace(out):
            yield range, dict
        return
    from torch.profiler import profile

    with profile():
        yield range, dict


@contextmanager
def _traceml(framework: str, out: str, is_first: bool) -> Iterator[tuple[Loader, Callable[[], dict[str, Any]]]]:
    """TraceML's tracing of every step, its aggregator a process beside the job, as `traceml run` has it."""
    import torch
    import traceml_ai

    if is_first:
        serve = [sys.executable, "-m", "traceml_ai.launcher.cli", "serve", "--mode", "summary", "--logs-dir", out]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(server.terminate)
        traceml_ai.init(ui_mode="summary", logs_dir=out, on_missing_aggregator="raise", connect_timeout_sec=30.0)
    model = torch.nn.Identity()

    def loader(steps: int) -> Iterator[int]:
        for step in range(steps):
            with traceml_ai.trace_step(model):
                yield step

    yield loader, dict


TOOLS: dict[str, Callable[[str, str, bool], Tool]] = {
    "record": _recorded,
    "profiler": _profiled,
    "traceml": _traceml,
}


def _turn(job: Job, steps: int, tool: Tool) -> dict[str, Any]:
    """Train; the loop's time is from the first step to the end of all device work, the tool's begin and end apart."""
    job.reset()
    job.wait()
    gc.collect()
    digest, marks = hashlib.sha256(), []
    whole_s = time.perf_counter()
    with tool as (loader, told):
        loop_s, cpu_s = time.perf_counter(), time.process_time()
        for index in loader(steps):
            if job.mark is not None:
                marks.append(job.mark())
            loss = job.step(index)
            if index % LOG_EVERY == LOG_EVERY - 1:
                digest.update(float(loss).hex().encode())
        if job.mark is not None:
            marks.append(job.mark())
        job.wait()
        loop_s, cpu_s = time.perf_counter() - loop_s, time.process_time() - cpu_s
    whole_s = time.perf_counter() - whole_s
    digest.update(job.state())
    device_ms = job.between_ms(marks)
    found = {"loop_s": loop_s, "cpu_s": cpu_s, "whole_s": whole_s, "digest": digest.hexdigest()} | told()
    found["device_s"] = sum(device_ms) / 1e3 if device_ms else None
    found["lost_ms"] = [_lost_ms(device_ms, window) for window in found.get("windows", ())] if device_ms else []
    return found


def _lost_ms(device_ms: list[float], window: dict[str, Any]) -> float:
    """What the steps in and around a window took on the device's timeline beyond the usual step."""
    from statistics import median

    first, last = max(window["first_step"] - AROUND_WINDOW, 0), window["last_step"] + AROUND_WINDOW
    return sum(device_ms[first : last + 1]) - median(device_ms) * len(device_ms[first : last + 1])


def memory(*, framework: str, net: str, device: str, small: bool, windows: int) -> dict[str, Any]:
    """Resident memory of the process and of the framework's allocator over so many windows back to back."""
    from phasepoint.recorder import record

    job = make_job(framework, net, device=device, small=small)
    steps, resident, allocated = 2 * windows, [], []
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        with record(f"{folder}/run", budget=None, window_steps=2, framework=framework) as run:
            for index in run.steps(range(steps)):
                job.step(index)
                if index % max(steps // 10, 1) == 0:
                    job.wait()
                    resident.append(_resident_bytes())
                    allocated.append((job.memory() or (0, 0))[0])
        return {"windows": run.cost.windows, "resident_bytes": resident, "allocated_bytes": allocated}


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
