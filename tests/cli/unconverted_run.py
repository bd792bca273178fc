"""The made run with its last window still to be converted, as a recording leaves it that ended a moment ago."""

import json
from pathlib import Path

from made_run import N_STEPS, START_NS, WINDOW_STEPS, WINDOWS, run_tables, step_rows

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import PS_PER_US
from phasepoint.store import create_run, open_shard

LAST_WINDOW = len(WINDOWS) - 1
_RAW = f"raw/window-{LAST_WINDOW:06d}.json.zst"


def unconverted_run(path: Path, *, only: bool = False) -> str:
    """Write the run and return its path.

    Args:
        path: where to.
        only: whether that window is the only one.
    """
    create_run(path, command=("python", "train.py"), frameworks={"torch": "2.9.0"}, devices=("cpu",))
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: START_NS + 12 * 10**9)
    writer.write_raw(_RAW, _capture())
    for name, rows in run_tables(step_rows()).items():
        kept = rows
        if name == "windows":
            kept = [row | {"format": "kineto", "raw": _RAW} if row["window"] == LAST_WINDOW else row for row in rows]
        if name in {"conversions", "ops", "breakdowns", "spans"}:
            kept = [row for row in rows if row["window"] != LAST_WINDOW]
        if only and name in {"windows", "conversions", "ops", "breakdowns", "spans"}:
            kept = [row for row in kept if row["window"] == LAST_WINDOW]
        writer.append(name, table_from_rows(name, kept))
    writer.close()
    return str(path)


def _capture() -> bytes:
    """An operator in each of the window's steps, on the clock of the session."""
    first = WINDOWS[-1]
    assert first + WINDOW_STEPS <= N_STEPS
    events = []
    for row in step_rows()[first : first + WINDOW_STEPS]:
        start_us, dur_us = START_NS / 1000 + row["start_ps"] / PS_PER_US, row["dur_ps"] / PS_PER_US
        mark = {"name": f"phasepoint.step#{row['step']}", "cat": "user_annotation", "ts": start_us, "dur": dur_us}
        work = {"name": "aten::mm", "cat": "cpu_op", "ts": start_us + 10, "dur": 5000}
        events += [{"ph": "X", "pid": 1, "tid": 1, "args": {}, **event} for event in (mark, work)]
    return json.dumps({"baseTimeNanoseconds": 0, "traceEvents": events}).encode()
