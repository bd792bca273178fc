"""A small run made by hand through the store: 200 steps with a compilation, an evaluation and a slow input stretch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.store import ShardWriter, create_run, open_shard

EVIL = "<img src=x onerror=alert(1)></script>[red]\x1b[31m&amp;"
"""A name that is markup in HTML, in rich and in a terminal at once."""

N_STEPS = 200
EVAL = range(100, 110)
STALL = range(150, 160)
WINDOW_STEPS = 5
WINDOWS = tuple(range(10, N_STEPS, 30))
"""First step of every capture window."""

START_NS = 1_700_000_000_000_000_000
OPS = (("fusion.1", "compute", 30), ("copy.2", "data_movement", 3), (EVIL, "compute", 1))
"""Name, category and self time in ms of the ops of every captured step outside the evaluation."""


def made_run(path: Path) -> str:
    """Write the run and return its path."""
    create_run(path, command=("python", "train.py"), frameworks={"jax": "0.10.2"}, devices=("cpu",))
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: START_NS + 12 * 10**9)
    steps = step_rows()
    for name, rows in run_tables(steps).items():
        writer.append(name, table_from_rows(name, rows))
    writer.close()
    return str(path)


def step_rows() -> list[dict[str, Any]]:
    """The steps, back to back from 100 ms on."""
    rows, at = [], 100 * PS_PER_MS
    for step in range(N_STEPS):
        dur = _step_ms(step) * PS_PER_MS + step % 7 * PS_PER_MS // 10
        rows.append(
            {
                "step": step,
                "start_ps": at,
                "dur_ps": dur,
                "input_ps": (150 if step in STALL else 2) * PS_PER_MS,
                "compile_ps": 900 * PS_PER_MS if step == 0 else 0,
                "host_rss_bytes": (1 << 30) + step * (1 << 20) if step % 10 == 0 else None,
            }
        )
        at += dur
    return rows


def _step_ms(step: int) -> int:
    if step == 0:
        return 1000
    return 120 if step in EVAL else 190 if step in STALL else 40


def run_tables(steps: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_step = {row["step"]: row for row in steps}
    windows = [_window(number, first, by_step) for number, first in enumerate(WINDOWS)]
    return {
        "steps": steps,
        "windows": windows,
        "conversions": [_conversion(number) for number in range(len(WINDOWS))],
        "ops": list(_ops(by_step)),
        "breakdowns": list(_breakdowns(by_step)),
        "spans": list(_spans(by_step)),
        "hints": [_hint(by_step)],
        "checkpoints": [_checkpoint(by_step[99], f"ckpt/{EVIL}"), _checkpoint(by_step[170], "ckpt/170")],
        "counters": [_counter(row) for row in steps[::20]] + [_own_cost(row) for row in steps[::50]],
        "gaps": [_gap()],
    }


def _window(number: int, first: int, by_step: dict[int, Any]) -> dict[str, Any]:
    last = first + WINDOW_STEPS - 1
    start = by_step[first]["start_ps"]
    return {
        "window": number,
        "first_step": first,
        "last_step": last,
        "start_ps": start,
        "dur_ps": by_step[last]["start_ps"] + by_step[last]["dur_ps"] - start,
        "reason": "sample",
        "probability": 1 / 30,
        "start_cost_ps": PS_PER_MS,
        "slowdown_cost_ps": PS_PER_MS,
        "stop_cost_ps": 5 * PS_PER_MS,
        "write_cost_ps": None,
        "capture_cost_ps": 7 * PS_PER_MS,
        "format": "xplane",
        "raw": None,
        "bytes": 100_000,
    }


def _conversion(window: int) -> dict[str, Any]:
    counts = {"events": 500, "spans": 480, "ignored_events": 20, "dropped_events": 0}
    return {"window": window, **counts, "misnested_events": 0, "orphan_events": 0, "convert_cost_ps": 9 * PS_PER_MS}


def _captured() -> Iterator[tuple[int, int]]:
    for number, first in enumerate(WINDOWS):
        for step in range(first, first + WINDOW_STEPS):
            yield number, step


def _ops(by_step: dict[int, Any]) -> Iterator[dict[str, Any]]:
    for window, step in _captured():
        for name, category, self_ms in [("eval_fusion.9", "compute", 90)] if step in EVAL else OPS:
            yield {
                "window": window,
                "step": step,
                "device": "cpu:0",
                "program": 1,
                "op": name,
                "level": "op",
                "category": category,
                "layer": f"Net/{name}",
                "count": 2,
                "total_ps": self_ms * PS_PER_MS + PS_PER_MS,
                "self_ps": self_ms * PS_PER_MS,
            }


def _breakdowns(by_step: dict[int, Any]) -> Iterator[dict[str, Any]]:
    for window, step in _captured():
        dur = by_step[step]["dur_ps"]
        compute, movement = 31 * PS_PER_MS, 3 * PS_PER_MS
        parts = {"compute": compute, "communication": 0, "data_movement": movement, "host": PS_PER_MS}
        parts["idle"] = dur - sum(parts.values())
        for category, wall in parts.items():
            yield {"window": window, "step": step, "device": "cpu:0", "category": category, "wall_ps": wall}


def _spans(by_step: dict[int, Any]) -> Iterator[dict[str, Any]]:
    """In every window: a launch on the host and its execution on the device, one with a child."""
    for window, first in enumerate(WINDOWS):
        at = by_step[first]["start_ps"]
        base = {"window": window, "step": first, "program": 1, "layer": None}
        rows = (
            (0, None, "runtime", "host", "launch", 1, 2, "host", "main", 7),
            (1, None, "kernel", "compute", EVIL, 4, 20, "cpu:0", "worker 1", 7),
            (2, 1, "op", "data_movement", "copy.2", 5, 3, "cpu:0", "worker 1", None),
        )
        for span, parent, level, category, name, start, dur, device, track, correlation in rows:
            yield {
                **base,
                "span": span,
                "parent": parent,
                "level": level,
                "category": category,
                "name": name,
                "start_ps": at + start * PS_PER_MS + 1,
                "dur_ps": dur * PS_PER_MS,
                "self_ps": (17 if span == 1 else dur) * PS_PER_MS,
                "device": device,
                "track": track,
                "correlation": correlation,
            }


def _hint(by_step: dict[int, Any]) -> dict[str, Any]:
    first, last = by_step[EVAL[0]], by_step[EVAL[-1]]
    dur = last["start_ps"] + last["dur_ps"] - first["start_ps"]
    steps = {"first_step": EVAL[0], "last_step": EVAL[-1]}
    return {"name": "eval", "start_ps": first["start_ps"], "dur_ps": dur, **steps}


def _checkpoint(row: dict[str, Any], path: str) -> dict[str, Any]:
    what = {"framework": "orbax", "bytes": 1 << 20, "asynchronous": False, "has_iterator": True}
    return {"step": row["step"], "path": path, "start_ps": row["start_ps"] + PS_PER_MS, "dur_ps": PS_PER_MS, **what}


def _counter(row: dict[str, Any]) -> dict[str, Any]:
    sample = {"time_ps": row["start_ps"], "value": 20.5 + row["step"] / 100}
    return {"name": "power", "unit": "W", "device": "cpu:0", **sample}


def _own_cost(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "recorder.cost.total",
        "unit": "ps",
        "device": "host",
        "time_ps": row["start_ps"],
        "value": 1e9 * row["step"],
    }


def _gap() -> dict[str, Any]:
    when = {"start_ps": 0, "dur_ps": PS_PER_S // 10, "first_step": None, "last_step": None}
    return {"why": "outside-steps", **when, "unknown": "what the job did before its loop"}


__all__ = ["EVIL", "ShardWriter", "made_run"]
