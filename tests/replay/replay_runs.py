"""Runs with phases and checkpoints, written through the store for the tests of replays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import PS_PER_MS
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import Analysis, analyse_run

EPOCH_NS = 1_700_000_000_000_000_000
FIRST_START_PS = 250 * PS_PER_MS
OPS = (("dot.1", "compute", 7), ("copy.2", "data_movement", 1))
"""Name, category and tenths of the step's time."""


def write_run(
    path: Path,
    dur_ms: Sequence[int],
    *,
    windows: Sequence[int] = (),
    checkpoints: Sequence[Mapping[str, Any]] = (),
    hints: Mapping[int, str] | None = None,
    window_steps: int = 5,
    input_ms: int | None = 1,
    compile_ms: Mapping[int, int] | None = None,
    attempts: int = 1,
    notes: Mapping[str, str] | None = None,
) -> str:
    """Write a run of one host and return its path.

    Args:
        path: where to.
        dur_ms: duration of every step.
        windows: first step of every captured window.
        checkpoints: columns of `checkpoints`, over usual ones; `step` and `path` are to be given.
        hints: the user's name of a step, where it has one.
        window_steps: steps in a window.
        input_ms: wait for input in every step, None where it is not known.
        compile_ms: compilation by step, 0 elsewhere.
        attempts: the whole is recorded so often, each but the last one without an end.
        notes: of the session.
    """
    create_run(path, command=("python", "train.py", "--lr", "0.1"), frameworks={"jax": "0.10.2"}, devices=("cpu",))
    steps = _steps(dur_ms, hints or {}, input_ms, compile_ms or {})
    for attempt in range(attempts):
        epoch_ns = EPOCH_NS + attempt * 3600 * 10**9
        writer = open_shard(path, 0, epoch_unix_ns=epoch_ns, clock=lambda: EPOCH_NS + 10**9, notes=notes or {})
        tables = {"steps": steps, **_captured(steps, windows, window_steps)}
        tables["checkpoints"] = [_checkpoint(row, steps) for row in checkpoints if row.get("attempt", 0) == attempt]
        for name, rows in tables.items():
            writer.append(name, table_from_rows(name, rows))
        writer.close(status="ok" if attempt == attempts - 1 else "error")
    return str(path)


def analysed(path: Path, dur_ms: Sequence[int], **options: Any) -> Analysis:
    """The analysis of such a run."""
    return analyse_run(open_run(write_run(path, dur_ms, **options)))


def _steps(
    dur_ms: Sequence[int], hints: Mapping[int, str], input_ms: int | None, compile_ms: Mapping[int, int]
) -> list[dict[str, Any]]:
    rows, at = [], FIRST_START_PS
    for step, ms in enumerate(dur_ms):
        # A few picoseconds apart, so that a sum tells which steps are in it.
        dur = ms * PS_PER_MS + step * 1_000_003 % 97
        row = {"step": step, "start_ps": at, "dur_ps": dur, "kind": hints.get(step)}
        row["input_ps"] = None if input_ms is None else input_ms * PS_PER_MS + step % 7
        row["compile_ps"] = compile_ms.get(step, 0) * PS_PER_MS
        rows.append(row)
        at += dur
    return rows


def _captured(steps: list[dict[str, Any]], windows: Sequence[int], n: int) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in ("windows", "conversions", "ops", "breakdowns")}
    for number, first in enumerate(windows):
        seen = steps[first : first + n]
        tables["windows"].append(_window(number, seen))
        counts = dict.fromkeys(("ignored_events", "dropped_events", "misnested_events", "orphan_events"), 0)
        tables["conversions"].append({"window": number, "events": 10, "spans": 10, **counts, "convert_cost_ps": 1})
        for row in seen:
            parts = dict.fromkeys(("compute", "communication", "data_movement", "host"), 0)
            for op, category, tenths in OPS:
                self_ps = row["dur_ps"] * tenths // 10
                parts[category] += self_ps
                names = {"op": op, "level": "op", "category": category, "layer": None}
                times = {"count": 1, "total_ps": self_ps, "self_ps": self_ps}
                where = {"window": number, "step": row["step"], "device": "cpu:0", "program": None}
                tables["ops"].append({**where, **names, **times})
            parts["idle"] = row["dur_ps"] - sum(parts.values())
            for category, wall_ps in parts.items():
                where = {"window": number, "step": row["step"], "device": "cpu:0"}
                tables["breakdowns"].append({**where, "category": category, "wall_ps": wall_ps})
    return tables


def _window(number: int, seen: list[dict[str, Any]]) -> dict[str, Any]:
    first, last = seen[0], seen[-1]
    costs = dict.fromkeys(("start_cost_ps", "slowdown_cost_ps", "stop_cost_ps", "write_cost_ps", "capture_cost_ps"), 0)
    return {
        "window": number,
        "first_step": first["step"],
        "last_step": last["step"],
        "start_ps": first["start_ps"],
        "dur_ps": last["start_ps"] + last["dur_ps"] - first["start_ps"],
        "reason": "sample",
        "probability": 0.01,
        **costs,
        "format": "xplane",
        "raw": None,
        "bytes": 1,
    }


def _checkpoint(row: Mapping[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    step = row["step"]
    start_ps = 0 if step is None else steps[step]["start_ps"] + steps[step]["dur_ps"] - 1
    usual = {"start_ps": start_ps, "dur_ps": 5 * PS_PER_MS, "framework": "user", "bytes": 1 << 20}
    row = {**usual, "asynchronous": False, "has_iterator": None, "iterator_state": None, **row}
    return {name: value for name, value in row.items() if name != "attempt"}
