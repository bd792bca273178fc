"""Launches: how long executions took to start, how full the queue was, and where launching costs more than the work.

A delay is counted from the begin of the launch call to the start of the execution, as the trace gives both; where
clocks of host and device disagree it can be below 0, and is not mended. The queue's depth is what had been launched to
the device and had not ended when the call began.
"""

from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import median_ps, quantile_ps
from phasepoint.core.tables import Column
from phasepoint.core.units import PS_PER_S
from phasepoint.stack.shard.executions import NO_DEVICE_NOTE, Executions, read_executions, texts_of
from phasepoint.stack.shard.hierarchy import NONE, inherited
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis

SHORT_PS = PS_PER_S // 100_000
"""10 µs: launching an execution takes the host about as long. Source: median launch calls of 1 to 14 µs, most
of them 4 to 10, in the traces of docs/device-time.md (A100 to B200, MI210 to MI355; November 2026)."""

_INT = pa.int64()


@dataclass(frozen=True, eq=False)
class _Launched:
    """Executions of one device `[n]` beside their launches; values of those without one mean nothing."""

    known: NDArray[np.bool_]
    name: NDArray[np.object_]
    dur_ps: Int64s
    launch: Int64s
    delay_ps: Int64s
    call_ps: Int64s
    depth: Int64s
    in_graph: NDArray[np.bool_]
    step: Int64s

    def of(self, chosen: NDArray[np.bool_]) -> "_Launched":
        return _Launched(*(getattr(self, field.name)[chosen] for field in fields(self)))


@analysis(
    Column("device", pa.string(), "the device"),
    Column("name", pa.string(), "name of the executions; null for the device's row of all", nullable=True),
    Column("events", _INT, "executions", "executions"),
    Column("launched", _INT, "of these, those whose launch is in the trace", "executions"),
    Column("launch_calls", _INT, "calls that launched them", "calls"),
    Column("delay_min_ps", _INT, "least delay from call to start", "ps", nullable=True),
    Column("delay_median_ps", _INT, "median delay", "ps", nullable=True),
    Column("delay_p95_ps", _INT, "95 of 100 delays are no longer", "ps", nullable=True),
    Column("delay_max_ps", _INT, "longest delay", "ps", nullable=True),
    Column("call_median_ps", _INT, "median duration of the launch calls", "ps", nullable=True),
    Column("queue_median", _INT, "median depth of the queue at the calls", "executions", nullable=True),
    Column("queue_max", _INT, "deepest queue", "executions", nullable=True),
    Column("shorter_than_call", _INT, "executions shorter than their launch call, graphs aside", "executions"),
    Column("short_events", _INT, "executions shorter than 10 µs", "executions"),
    Column("short_ps", _INT, "their time", "ps"),
    Column("calls_per_step", _INT, "median launch calls of a step", "calls", nullable=True),
    Column("graph_launches", _INT, "calls that launched a graph", "calls"),
    Column("graph_events", _INT, "executions that graphs launched", "executions"),
    Column("events_per_graph_launch", _INT, "median executions of a graph's launch", "executions", nullable=True),
)
def launch_statistics(shard: StackShard) -> RowsAndNotes:
    """Launches: for each device a row of all its executions, then one for each name, by number of executions."""
    executions = shard.once(read_executions)
    rows: list[dict[str, int | str | None]] = []
    notes = []
    for device in executions.devices:
        launched = _launched(shard, executions.of(device))
        rows.append({"device": device, "name": None, **_row(launched)})
        names, number, count = np.unique(launched.name.astype(str), return_inverse=True, return_counts=True)
        for i in np.lexsort((names, -count)):
            rows.append({"device": device, "name": str(names[i]), **_row(launched.of(number == i))})
        missing = int((~launched.known).sum())
        if missing:
            total = len(launched.known)
            notes.append(
                f"{device}: {missing} of {total} executions have no launch in the trace; delays leave them out"
            )
    return rows, notes if rows else (NO_DEVICE_NOTE,)


def _launched(shard: StackShard, mine: Executions) -> _Launched:
    spans = shard.table("spans")
    start_ps, dur_ps = spans["start_ps"].to_numpy(), spans["dur_ps"].to_numpy()
    called_ps = start_ps[mine.launch]
    names = spans["name"].take(pa.array(mine.row))
    calls = pc.match_substring_regex(spans["name"].cast(pa.string()), "(?i)graphlaunch").to_numpy()
    step = inherited(spans, "step").take(pa.array(mine.row)).fill_null(NONE).to_numpy()
    known = mine.launch != NONE
    return _Launched(
        known=known,
        name=texts_of(names),
        dur_ps=mine.end_ps - mine.start_ps,
        launch=mine.launch,
        delay_ps=mine.start_ps - called_ps,
        call_ps=dur_ps[mine.launch],
        depth=_depth(called_ps, mine.end_ps, known),
        in_graph=known & calls[mine.launch],
        step=step,
    )


def _depth(called_ps: Int64s, end_ps: Int64s, known: NDArray[np.bool_]) -> Int64s:
    """`[n]` executions launched before each call began that had not ended by then."""
    waits = known & (end_ps > called_ps)
    called, ended = np.sort(called_ps[waits]), np.sort(end_ps[waits])
    return np.searchsorted(called, called_ps, side="left") - np.searchsorted(ended, called_ps, side="right")


def _row(launched: _Launched) -> dict[str, int | None]:
    known = launched.of(launched.known)
    short = launched.dur_ps < SHORT_PS
    calls, first, sizes = np.unique(known.launch, return_index=True, return_counts=True)
    graphs = known.in_graph[first]
    some = len(calls) > 0
    return {
        "events": len(launched.known),
        "launched": len(known.known),
        "launch_calls": len(calls),
        "delay_min_ps": int(known.delay_ps.min()) if some else None,
        "delay_median_ps": median_ps(known.delay_ps) if some else None,
        "delay_p95_ps": quantile_ps(known.delay_ps, 0.95) if some else None,
        "delay_max_ps": int(known.delay_ps.max()) if some else None,
        "call_median_ps": median_ps(known.call_ps[first]) if some else None,
        "queue_median": median_ps(known.depth[first]) if some else None,
        "queue_max": int(known.depth.max()) if some else None,
        "shorter_than_call": int(((known.dur_ps < known.call_ps) & ~known.in_graph).sum()),
        "short_events": int(short.sum()),
        "short_ps": int(launched.dur_ps[short].sum()),
        "calls_per_step": _calls_per_step(known.step[first]),
        "graph_launches": int(graphs.sum()),
        "graph_events": int(known.in_graph.sum()),
        "events_per_graph_launch": median_ps(sizes[graphs]) if graphs.any() else None,
    }


def _calls_per_step(step: Int64s) -> int | None:
    """Median over the steps that have any; null outside steps."""
    _, count = np.unique(step[step != NONE], return_counts=True)
    return median_ps(count) if len(count) else None
