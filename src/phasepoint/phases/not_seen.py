"""What a recording did not see, straight from the run's own tables."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.units import format_counted
from phasepoint.phases.clock import RunClock, sum_ps
from phasepoint.phases.summary_types import GapSummary, NotSeen


def count_not_seen(
    clock: RunClock,
    captured: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    *,
    windows: pa.Table,
    conversions: pa.Table,
    gaps: pa.Table,
    problems: Sequence[str],
) -> NotSeen:
    """Everything that was not observed.

    Args:
        clock: the run's steps.
        captured: `[n_steps]`, whether a converted window saw the step in full.
        windows: `Run.table("windows")`.
        conversions: `Run.table("conversions")`.
        gaps: `Run.table("gaps")`.
        problems: what could not be read, in words.
    """
    inside_ps = clock.inside_ps
    found = [text for text in conversions.column("problem").to_pylist() if text is not None]
    return NotSeen(
        gaps=merge_gaps(gaps),
        steps=clock.n_steps,
        missing_steps=_missing_steps(clock),
        captured_steps=int(captured.sum()),
        captured_step_share=float(captured.mean()) if len(captured) else 0.0,
        captured_time_share=sum_ps(clock.dur_ps[captured]) / inside_ps if inside_ps else 0.0,
        windows=windows.num_rows,
        pending_windows=windows.num_rows - _converted(windows, conversions),
        empty_windows=_total(pc.less(windows.column("last_step"), windows.column("first_step"))),
        events=_total(conversions.column("events")),
        dropped_events=_total(conversions.column("dropped_events")),
        ignored_events=_total(conversions.column("ignored_events")),
        orphan_events=_total(conversions.column("orphan_events")),
        misnested_events=_total(conversions.column("misnested_events")),
        problems=(*problems, *_merged_texts(found)),
    )


def merge_gaps(gaps: pa.Table) -> tuple[GapSummary, ...]:
    """Gaps by reason, longest first."""
    merged: dict[str, list[dict[str, object]]] = {}
    for row in gaps.select(["why", "dur_ps", "first_step", "last_step", "unknown"]).to_pylist():
        merged.setdefault(row["why"], []).append(row)
    summaries = [_merge(why, rows) for why, rows in merged.items()]
    return tuple(sorted(summaries, key=lambda gap: (-(gap.total_ps or 0), gap.why)))


def _merge(why: str, rows: list[dict[str, object]]) -> GapSummary:
    lengths = [row["dur_ps"] for row in rows if isinstance(row["dur_ps"], int)]
    steps = [
        row["last_step"] - row["first_step"] + 1
        for row in rows
        if isinstance(row["first_step"], int) and isinstance(row["last_step"], int)
    ]
    texts = {str(row["unknown"]): None for row in rows}
    unknown = next(iter(texts)) + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")
    return GapSummary(why, len(rows), sum(lengths) if lengths else None, sum(steps) if steps else None, unknown)


def _missing_steps(clock: RunClock) -> int:
    missing = 0
    for session in clock.sessions:
        steps = clock.step[session.rows]
        missing += int(steps[-1] - steps[0]) + 1 - len(steps) if len(steps) else 0
    return missing


def _converted(windows: pa.Table, conversions: pa.Table) -> int:
    done = {tuple(row.values()) for row in conversions.select(["host", "attempt", "window"]).to_pylist()}
    return sum(tuple(row.values()) in done for row in windows.select(["host", "attempt", "window"]).to_pylist())


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _merged_texts(texts: list[str]) -> tuple[str, ...]:
    return tuple(f"{text} ({format_counted(texts.count(text), 'window')})" for text in dict.fromkeys(texts))
