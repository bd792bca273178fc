"""How long a step takes and how many items a second that makes, by batch size.

Latency is that of the model's level: of steps that were not captured where there are enough, since capturing slows.
Steps in which something was compiled are left out.
The best batch size is the smallest after which doubling it wins no more than 5 % of throughput.

Source: XSP (IPDPS 2020), section III-D, analysis 1, and section IV for the 5 %.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.intervals import held_in
from phasepoint.core.tables import Column
from phasepoint.core.units import PS_PER_S
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis

LEAST_GAIN_RATIO = 0.05
"""What doubling the batch size must win in throughput to be worth it."""

LEAST_STEPS = 5
"""So many uncaptured steps are measured alone."""

_BATCH = re.compile(r"(?:\bbatch(?:[ _-]?size)?|\bbs)[ =:_-]*(\d{1,15})\b", re.IGNORECASE)

NO_STEPS_NOTE = (
    "no steps were recorded: iterate over run.steps(loader), or call torch.profiler's step() every step; "
    "an HLO program that repeats is taken for a step by itself"
)
NO_BATCH_NOTE = (
    "the batch size is not known, so throughput is in steps; name the steps by it: with run.phase('batch=32'), "
    "and record several sizes to find the best"
)


@analysis(
    Column("kind", pa.string(), "the user's name for these steps (`run.phase`)", nullable=True),
    Column("batch_size", pa.int64(), "items of one step, from the name: batch=32, bs32", "items", nullable=True),
    Column("steps", pa.int64(), "steps measured", "steps"),
    Column("measured", pa.string(), "uncaptured steps alone, or all where those are fewer than 5"),
    Column("latency_ps", pa.int64(), "median duration of a step", "ps"),
    Column("p05_ps", pa.int64(), "duration below which 5 % of the steps stay", "ps"),
    Column("p95_ps", pa.int64(), "duration below which 95 % of the steps stay", "ps"),
    Column("steps_per_s", pa.float64(), "steps a second at the median", "steps/s"),
    Column("items_per_s", pa.float64(), "throughput: batch size over latency", "items/s", nullable=True),
    Column("is_best", pa.bool_(), "whether this is the best batch size; null where sizes are not known", nullable=True),
)
def model_information(shard: StackShard) -> RowsAndNotes:
    """A1, model information: a row for each kind of step, by batch size."""
    steps = shard.table("steps")
    if not steps.num_rows:
        return [], (NO_STEPS_NOTE,)
    kind, kinds = encode_column(steps["kind"])
    compiles = pc.fill_null(steps["compile_ps"], 0).to_numpy() > 0
    captured = _captured(shard, steps["step"].to_numpy())
    dur_ps = steps["dur_ps"].to_numpy()
    rows = []
    for code in np.unique(kind).tolist():
        mine = kind == code
        mine = mine & ~compiles if (mine & ~compiles).any() else mine
        free = mine & ~captured
        measured, chosen = ("uncaptured", free) if free.sum() >= LEAST_STEPS else ("all", mine)
        rows.append(_row(None if code < 0 else kinds[code], dur_ps[chosen], measured))
    rows.sort(key=lambda row: (row["batch_size"] is None, row["batch_size"] or 0))
    _mark_best(rows)
    return rows, () if any(row["batch_size"] is not None for row in rows) else (NO_BATCH_NOTE,)


def best_batch_size(sizes: Sequence[int], items_per_s: Sequence[float]) -> int | None:
    """The smallest size from which the next, at least twice as large, wins no more than `LEAST_GAIN_RATIO`.

    Args:
        sizes: rising.
        items_per_s: throughput of each.

    Returns:
        None where none is followed by one at least twice as large, or throughput still grows at the largest.
    """
    for i, size in enumerate(sizes):
        larger = next((j for j in range(i + 1, len(sizes)) if sizes[j] >= 2 * size), None)
        if larger is not None and items_per_s[larger] <= items_per_s[i] * (1 + LEAST_GAIN_RATIO):
            return size
    return None


def _captured(shard: StackShard, step: Int64s) -> Bools:
    """`[n_steps]` whether a window holds the step."""
    windows = shard.table("windows", ["first_step", "last_step"])
    return held_in(step, windows["first_step"].to_numpy(), windows["last_step"].to_numpy())


def _row(kind: str | None, dur_ps: Int64s, measured: str) -> dict[str, object]:
    ordered = np.sort(dur_ps)
    middle, low, high = (int(ordered[int((len(ordered) - 1) * share)]) for share in (0.5, 0.05, 0.95))
    found = _BATCH.search(kind) if kind else None
    size = int(found[1]) if found else None
    per_s = PS_PER_S / middle if middle else 0.0
    return {
        "kind": kind,
        "batch_size": size,
        "steps": len(ordered),
        "measured": measured,
        "latency_ps": middle,
        "p05_ps": low,
        "p95_ps": high,
        "steps_per_s": per_s,
        "items_per_s": None if size is None else size * per_s,
        "is_best": None,
    }


def _mark_best(rows: list[dict[str, object]]) -> None:
    known = [row for row in rows if row["batch_size"] is not None]
    sizes = [int(str(row["batch_size"])) for row in known]
    best = best_batch_size(sizes, [float(str(row["items_per_s"])) for row in known])
    for row, size in zip(known, sizes, strict=True):
        row["is_best"] = None if best is None else size == best
