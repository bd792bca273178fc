"""Runs made by hand for the tests of fidelity: a job of equal steps, and replays of it that differ in one thing."""

from dataclasses import dataclass, field, replace

import numpy as np

from phasepoint.core.tables import CATEGORIES, table_from_rows
from phasepoint.replay.folder import ReplayRecord
from phasepoint.store import create_run, open_run, open_shard

START_NS = 1_700_000_000_000_000_000
MS = 10**9
OPS = {"dot.1": 600, "fusion.2": 300, "copy.3": 100}
"""Self time in µs of each op of a step."""
STEPS, WINDOWS = 120, (20, 60)
"""Steps of the original, and the first of the five that each window saw."""


@dataclass(frozen=True)
class Job:
    """What a run did.

    Attributes:
        first, last: its steps.
        windows: first step of each window of five.
        step_us: duration of a step.
        jitter: part of it by which steps scatter.
        seed: of the scatter.
        ops: self time in µs by op; None: the program's ops are not recorded.
        fingerprint: of the program; None where it has none.
        shape: of what goes into the program.
        opcodes: of its instructions, in order.
        loss: by step; None: nothing is logged.
        frameworks, devices, python: of the manifest.
        compiled: steps that compile for most of their time.
        uneven: by how much the first op scatters from step to step.
    """

    first: int = 0
    last: int = STEPS - 1
    windows: tuple[int, ...] = WINDOWS
    step_us: int = 2000
    jitter: float = 0.01
    seed: int = 0
    ops: dict[str, int] | None = field(default_factory=lambda: dict(OPS))
    fingerprint: str | None = "a" * 32
    shape: str = "f32[8,16]"
    opcodes: tuple[str, ...] = ("dot", "fusion", "copy")
    loss: dict[int, float] | None = field(default_factory=lambda: {s: 1 / (s + 1) for s in range(STEPS)})
    frameworks: dict[str, str] = field(default_factory=lambda: {"jax": "0.10.2"})
    devices: tuple[str, ...] = ("cpu:0 cpu",)
    compiled: tuple[int, ...] = ()
    uneven: float = 0.0


ORIGINAL = Job()
REPLAY = Job(first=10, last=24, windows=(20,), seed=1)


def written(path, job, **changes):
    """The job as a run, opened."""
    job = replace(job, **changes)
    create_run(path, command=("python", "train.py"), frameworks=job.frameworks, devices=job.devices)
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: START_NS + 10**12)
    steps = _steps(job)
    writer.append("steps", table_from_rows("steps", steps))
    by_step = {row["step"]: row for row in steps}
    if job.windows:
        writer.append("windows", table_from_rows("windows", [_window(*one, by_step) for one in enumerate(job.windows)]))
        writer.append("breakdowns", table_from_rows("breakdowns", list(_breakdowns(job, by_step))))
    if job.ops is not None:
        for name, rows in (("ops", _ops(job)), ("programs", _programs(job)), ("instructions", _instructions(job))):
            writer.append(name, table_from_rows(name, list(rows)))
    if job.loss is not None:
        losses = [{"step": s, "name": "loss", "value": v} for s, v in job.loss.items() if job.first <= s <= job.last]
        writer.append("scalars", table_from_rows("scalars", losses))
    writer.append("checkpoints", table_from_rows("checkpoints", [_checkpoint(by_step[max(job.first, 2)])]))
    writer.close()
    return open_run(path)


def record(**changes):
    """What was asked of `REPLAY`, whose first seven steps are lost: it runs warm from step 13 on."""
    asked = {"version": 1, "original": "original", "phase": "train", "phase_id": 0, "checkpoint": "ckpt/10"}
    steps = {"first_step": 3, "target_first": 20, "target_last": 24, "last_step": 24}
    return ReplayRecord(**{**asked, **steps, "command": ("python", "train.py"), "status": "done", **changes})


def _steps(job):
    rng, rows, at = np.random.default_rng(job.seed), [], MS
    for step in range(job.first, job.last + 1):
        dur_ps = int(job.step_us * 10**6 * (1 + job.jitter * rng.uniform(-1, 1)))
        compile_ps = 50 * dur_ps if step in job.compiled else 0
        rows.append({"step": step, "start_ps": at, "dur_ps": dur_ps + compile_ps, "compile_ps": compile_ps})
        at += dur_ps + compile_ps
    return rows


def _window(number, first, by_step):
    start_ps, last = by_step[first]["start_ps"], by_step[min(first + 4, max(by_step))]
    costs = dict.fromkeys(("start_cost_ps", "stop_cost_ps", "capture_cost_ps"), 0)
    return {
        **{"window": number, "first_step": first, "last_step": last["step"], "start_ps": start_ps},
        **{"dur_ps": last["start_ps"] + last["dur_ps"] - start_ps, "reason": "sample", "probability": 0.1},
        **{**costs, "format": "xplane", "raw": None, "bytes": 1},
    }


def _captured(job):
    for window, first in enumerate(job.windows):
        for step in range(first, min(first + 5, job.last + 1)):
            yield window, step


def _breakdowns(job, by_step):
    for window, step in _captured(job):
        for category in CATEGORIES:
            wall_ps = by_step[step]["dur_ps"] if category == "compute" else 0
            yield {"window": window, "step": step, "device": "cpu:0", "category": category, "wall_ps": wall_ps}


def _ops(job):
    rng = np.random.default_rng(job.seed)
    for window, step in _captured(job):
        for number, (op, mean_us) in enumerate(job.ops.items()):
            time_us = round(mean_us * np.exp(job.uneven * rng.normal())) if number == 0 else mean_us
            where = {"window": window, "step": step, "device": "cpu:0", "level": "op", "category": "compute"}
            program = None if job.fingerprint is None else 1
            times = {"total_ps": time_us * 10**6, "self_ps": time_us * 10**6}
            yield {**where, "program": program, "op": op, "layer": None, "count": 1, **times}


def _programs(job):
    if job.fingerprint is not None:
        yield {"program": 1, "name": "jit_step", "fingerprint": job.fingerprint, "first_window": 0, "instructions": 4}


def _instructions(job):
    if job.fingerprint is None:
        return
    lists = {"operands": [], "calls": [], "is_root": False, "computation": "main", "category": "compute"}
    for op, opcode in zip(("p.0", *job.ops), ("parameter", *job.opcodes), strict=False):
        yield {"program": 1, "op": op, "opcode": opcode, "shape": f"{job.shape}{{1,0}}", "is_entry": True, **lists}


def _checkpoint(row):
    return {"step": row["step"], "path": "ckpt/10", "start_ps": row["start_ps"], "dur_ps": MS, "framework": "orbax"}
