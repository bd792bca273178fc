"""From what the recorder holds (nanoseconds, indices) to rows of the declared tables (picoseconds, names, nulls)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from phasepoint.core.tables import table_from_columns, table_spec
from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.columns import column_of_values, int64_column, name_column
from phasepoint.recorder.cost import PURPOSES, RecorderCost
from phasepoint.recorder.epoch import Epoch
from phasepoint.recorder.step_clock import NOT_KNOWN, StepRows
from phasepoint.recorder.windows import CapturedWindow

Row = dict[str, Any]


class MemorySample(Struct, frozen=True):
    """Memory at one moment: `now_ns` on the session's clock, bytes; None where not known."""

    now_ns: int
    rss_bytes: int | None
    device_bytes: int | None


def table_of_rows(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows to a table of the declared schema, like `core.tables.table_from_rows`, but without importing anything."""
    spec = table_spec(name)
    return table_from_columns(
        name, {c.name: column_of_values([row.get(c.name) for row in rows], c.type) for c in spec.columns}
    )


def steps_table(rows: StepRows, kinds: Sequence[str], samples: Sequence[MemorySample], epoch: Epoch) -> pa.Table:
    """The `steps` table of rows `[n]`. A memory sample goes to the step in which it was taken, the others have null."""
    dur_ns = rows.end_ns - rows.start_ns
    unseen = rows.got_ns == NOT_KNOWN
    input_ns = np.where(unseen, 0, np.minimum(rows.got_ns - rows.start_ns, dur_ns))
    return table_from_columns(
        "steps",
        {
            "step": int64_column(rows.step),
            "start_ps": int64_column((rows.start_ns - epoch.now_ns) * PS_PER_NS),
            "dur_ps": int64_column(dur_ns * PS_PER_NS),
            "input_ps": int64_column(input_ns * PS_PER_NS, ~unseen),
            "dispatch_ps": int64_column((dur_ns - input_ns) * PS_PER_NS),
            "compile_ps": int64_column(rows.compile_ns * PS_PER_NS),
            "kind": name_column(rows.kind, kinds),
            "host_rss_bytes": _place(rows, [(s.now_ns, s.rss_bytes) for s in samples]),
            "device_memory_bytes": _place(rows, [(s.now_ns, s.device_bytes) for s in samples]),
        },
    )


def window_row(window: CapturedWindow, *, write_ps: int, raw: str, size: int, format: str, epoch: Epoch) -> Row:
    """One row of `windows`."""
    known = (window.start_ps, window.slowdown_ps or 0, window.stop_ps, write_ps)
    return {
        "window": window.window,
        "first_step": window.first_step,
        "last_step": window.last_step,
        "start_ps": epoch.to_ps(window.start_ns),
        "dur_ps": (window.end_ns - window.start_ns) * PS_PER_NS,
        "reason": window.opening.reason,
        "probability": window.opening.probability,
        "start_cost_ps": window.start_ps,
        "slowdown_cost_ps": window.slowdown_ps,
        "stop_cost_ps": window.stop_ps,
        "write_cost_ps": write_ps,
        "capture_cost_ps": sum(known),
        "predicted_cost_ps": None if window.opening.plan is None else window.opening.plan.predicted_ps,
        "ended_by": window.ended_by,
        "cut_step": window.cut_step,
        "format": format,
        "raw": raw,
        "bytes": size,
    }


def gap_row(
    why: str,
    unknown: str,
    *,
    epoch: Epoch,
    start_ns: int | None = None,
    end_ns: int | None = None,
    steps: tuple[int, int] | None = None,
) -> Row:
    """One row of `gaps`; `unknown` says in one sentence what is not known because of it."""
    first_step, last_step = steps if steps is not None else (None, None)
    return {
        "why": why,
        "start_ps": None if start_ns is None else epoch.to_ps(start_ns),
        "dur_ps": None if start_ns is None or end_ns is None else (end_ns - start_ns) * PS_PER_NS,
        "first_step": first_step,
        "last_step": last_step,
        "unknown": unknown,
    }


def cost_rows(cost: RecorderCost, time_ps: int, counts: dict[str, int]) -> list[Row]:
    """Rows of `counters` that say what recording cost: `recorder.cost.<purpose>` in ps, and its counts."""
    values = {f"recorder.cost.{purpose}": (getattr(cost, f"{purpose}_ps"), "ps") for purpose in PURPOSES}
    values["recorder.cost.total"] = (cost.total_ps, "ps")
    values["recorder.elapsed"] = (cost.elapsed_ps, "ps")
    values |= {f"recorder.{name}": (count, "count") for name, count in counts.items()}
    return [
        {"name": name, "unit": unit, "device": "host", "time_ps": time_ps, "value": float(value)}
        for name, (value, unit) in values.items()
    ]


def _place(rows: StepRows, samples: Sequence[tuple[int, int | None]]) -> pa.Array:
    values, known = np.zeros(len(rows.step), np.int64), np.zeros(len(rows.step), np.bool_)
    for now_ns, value in samples:
        at = int(np.searchsorted(rows.start_ns, now_ns, side="right")) - 1
        if value is not None and at >= 0 and now_ns <= rows.end_ns[at]:
            values[at], known[at] = value, True
    return int64_column(values, known)
