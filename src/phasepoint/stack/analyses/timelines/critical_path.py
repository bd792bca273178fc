"""The critical path: for each step the heaviest chain of host and device work, each waiting for the one before.

What counts is work: time in ops and calls of a thread that is not waiting, executions, a launch's way to a free stream,
and the way back to a call that waited. Shortening anything else does not shorten the step; shortening what is on the
path does, until another chain is as long. What is between, and before and after, is told as waiting, or as untraced
time of a thread, in which no op or call was open: the parts add up to the step's span exactly.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import IntervalSet, covered_ps, overlaps
from phasepoint.core.tables import Column
from phasepoint.stack.analyses.timelines.path_graph import (
    LAUNCH,
    RUN,
    SYNC,
    THREAD,
    Calls,
    PathGraph,
    Runs,
    Thread,
    heaviest_path,
    path_graph,
)
from phasepoint.stack.shard.executions import Executions, read_executions, texts_of
from phasepoint.stack.shard.hierarchy import NONE, inherited
from phasepoint.stack.shard.host_activity import HostActivity, HostSide, read_host
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis

PARTS = ("host", "host-untraced", "launch", "device", "synchronisation", "waiting")
_HOST, _UNTRACED, _LAUNCH, _DEVICE, _SYNC, _WAITING = range(len(PARTS))

_NO_ORDER = (
    "which stream waited for which event is not in the tables: a stream told to wait is held to wait for what ended "
    "last on the other streams of its device"
)


@dataclass(frozen=True, eq=False)
class _View:
    """A shard's spans and what is computed of them once; arrays are `[n_spans]`, `run_step` `[n_executions]`.

    The activity is that of threads that launch work or run ops, the executions those of accelerators.
    """

    host: HostSide
    step: Int64s
    names: pa.ChunkedArray
    category: pa.ChunkedArray
    activity: HostActivity
    is_annotation: Bools
    executions: Executions
    run_step: Int64s
    told: Bools


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Pieces of a path `[m]`: the part, the row of `spans` that names each (`NONE` for nothing), how long."""

    part: Int64s
    row: Int64s
    dur_ps: Int64s


@analysis(
    Column("step", pa.int64(), "the step; null where the trace has none", nullable=True),
    Column("part", pa.string(), ", ".join(PARTS)),
    Column("category", pa.string(), "of executions: compute, communication, data_movement", nullable=True),
    Column("name", pa.string(), "outermost op or annotation of the host, or execution", nullable=True),
    Column("time_ps", pa.int64(), "time on the path; over a step it adds up to span_ps", "ps"),
    Column("pieces", pa.int64(), "pieces of the path", "pieces"),
    Column("share_ratio", pa.float64(), "time_ps of span_ps", "ratio", nullable=True),
    Column("span_ps", pa.int64(), "from the step's first work to its last", "ps"),
)
def critical_path(shard: StackShard) -> RowsAndNotes:
    """The chain of work that each step hangs on: rows by step, the longest first."""
    view = _view(shard)
    of_activity, of_run = _by_step(view.step[view.activity.row]), _by_step(view.run_step)
    steps = sorted({*of_activity, *of_run})
    if not steps:
        return [], ("no work was recorded",)
    rows = []
    for step in steps[1:] if len(steps) > 1 and steps[0] == NONE else steps:
        nothing = np.empty(0, np.int64)
        raw = view.activity.where(of_activity.get(step, nothing))
        head = {"step": None if step == NONE else step}
        rows += [{**head, **row} for row in _step_rows(view, raw, view.executions.where(of_run.get(step, nothing)))]
    notes = [_NO_ORDER] if view.host.naming.stream_waits.any() else []
    if view.executions.orphan.any():
        notes.append("executions whose launch is not in the trace hang on their stream alone")
    return rows, notes


def _view(shard: StackShard) -> _View:
    spans, host, executions = shard.table("spans"), shard.once(read_host), shard.once(read_executions)
    on_cpu = np.fromiter((device.startswith("cpu:") for device in executions.device), np.bool_, len(executions.row))
    executions = executions.where(~on_cpu)
    step = inherited(spans, "step").fill_null(NONE).to_numpy(zero_copy_only=False)
    launch = executions.launch[executions.launch != NONE]
    levels = texts_of(spans["level"])
    runs_ops = levels[host.activity.row] == "op"
    working = np.union1d(host.tracks[launch], host.tracks[host.activity.row[runs_ops]])
    return _View(
        host=host,
        step=step,
        names=spans["name"].cast(pa.string()),
        category=spans["category"].cast(pa.string()),
        activity=host.activity.where(np.isin(host.activity.track, working)),
        is_annotation=levels == "layer",
        executions=executions,
        run_step=_run_steps(executions, step),
        told=host.told_to_wait(launch),
    )


def _run_steps(runs: Executions, step: Int64s) -> Int64s:
    """`[n]` the step of each execution: its launch's, else its own, else that of the execution before it, or after."""
    if not len(runs.row):
        return np.empty(0, np.int64)
    found = np.where(runs.launch == NONE, step[runs.row], step[runs.launch])
    order = np.argsort(runs.start_ps, kind="stable")
    known = np.flatnonzero(found[order] != NONE)
    if len(known):
        before = np.searchsorted(known, np.arange(len(order)), side="right") - 1
        found[order] = found[order][known[np.maximum(before, 0)]]
    return found


def _by_step(step: Int64s) -> dict[int, Int64s]:
    """Where each step stands in `[n]` steps, in order."""
    order = np.argsort(step, kind="stable")
    steps, first = np.unique(step[order], return_index=True)
    return dict(zip(steps.tolist(), np.split(order, first[1:]), strict=True)) if len(steps) else {}


def _step_rows(view: _View, raw: HostActivity, runs: Executions) -> list[dict[str, object]]:
    """The rows of one step, from what threads did in it and its executions."""
    waits = np.unique(raw.row[view.host.naming.waits[raw.row]])
    calls = Calls(view.host.tracks[waits], view.host.start_ps[waits], view.host.end_ps[waits])
    graph = path_graph(_threads(view, raw), _runs(view, runs), calls)
    path = heaviest_path(graph.source, graph.target, graph.weight_ps, len(graph.time_ps))
    pieces = _pieces(graph, path, runs, (raw, view.is_annotation[raw.row]))
    span_ps = int(graph.time_ps[-1] - graph.time_ps[0])
    return [
        {
            "part": PARTS[row["part"]],
            "category": row["category"],
            "name": row["name"],
            "time_ps": row["dur_sum"],
            "pieces": row["dur_count"],
            "share_ratio": row["dur_sum"] / span_ps if span_ps else None,
            "span_ps": span_ps,
        }
        for row in _grouped(view, pieces)
    ]


def _threads(view: _View, raw: HostActivity) -> list[Thread]:
    threads = []
    for track in np.unique(raw.track):
        mine = raw.where(raw.track == track)
        works = ~(view.host.naming.idles | view.is_annotation)[mine.row]
        times = IntervalSet(mine.times.start_ps[works], mine.times.end_ps[works])
        extent = int(mine.times.start_ps[0]), int(mine.times.end_ps[-1])
        threads.append(Thread(int(track), times, mine.row[works], *extent))
    return threads


def _runs(view: _View, runs: Executions) -> Runs:
    known, launch = runs.launch != NONE, runs.launch
    _, device = np.unique(runs.device.astype(str), return_inverse=True)
    return Runs(
        start_ps=runs.start_ps,
        end_ps=runs.end_ps,
        stream=view.host.tracks[runs.row],
        device=device.astype(np.int64),
        track=np.where(known, view.host.tracks[launch], NONE),
        called_ps=np.where(known, view.host.start_ps[launch], 0),
        returned_ps=np.where(known, view.host.end_ps[launch], 0),
        told=known & view.told[launch],
    )


def _pieces(graph: PathGraph, path: Int64s, runs: Executions, raw: tuple[HostActivity, Bools]) -> _Pieces:
    """The path from the step's first point to its last, cut by what each piece is."""
    source, target, kind, what = (values[path] for values in (graph.source, graph.target, graph.kind, graph.what))
    since_ps, until_ps = graph.time_ps[source], graph.time_ps[target]
    dur_ps, weight_ps = until_ps - since_ps, graph.weight_ps[path]
    first, last = graph.time_ps[0], graph.time_ps[-1]
    outside_ps = last - first - dur_ps.sum() if len(path) else last - first
    found = [(_WAITING, np.array([NONE]), np.array([outside_ps]))]
    for one, part in ((RUN, _DEVICE), (SYNC, _SYNC), (LAUNCH, _LAUNCH)):
        mine = kind == one
        found.append((part, runs.row[what[mine]], weight_ps[mine]))
    idle = kind != THREAD
    found.append((_WAITING, np.full(idle.sum(), NONE), (dur_ps - weight_ps)[idle]))
    for number in np.unique(what[kind == THREAD]):
        mine = (kind == THREAD) & (what == number)
        found += _thread_pieces(graph.threads[number], since_ps[mine], until_ps[mine], raw)
    parts = np.concatenate([np.full(len(row), part) for part, row, _ in found])
    rows, durs = (np.concatenate([piece[i] for piece in found]).astype(np.int64) for i in (1, 2))
    some = durs > 0
    return _Pieces(parts[some], rows[some], durs[some])


def _thread_pieces(
    work: Thread, since_ps: Int64s, until_ps: Int64s, raw: tuple[HostActivity, Bools]
) -> list[tuple[int, Int64s, Int64s]]:
    """What a thread did between points: work by name, waits, and time in which no op or call was open."""
    activity, is_annotation = raw
    lasts = until_ps > since_ps
    windows = IntervalSet(since_ps[lasts], until_ps[lasts])
    _, segment, times = overlaps(windows, work.times)
    worked_ps = covered_ps(work.times, windows.start_ps, windows.end_ps)
    mine = activity.track == work.track
    annotated = activity.where(mine & is_annotation)
    _, stretch, named = overlaps(windows, annotated.times)
    named_ps = covered_ps(annotated.times, windows.start_ps, windows.end_ps)
    open_ps = covered_ps(activity.where(mine & ~is_annotation).times, windows.start_ps, windows.end_ps)
    nothing = np.full(len(worked_ps), NONE)
    return [
        (_HOST, work.row[segment], times.end_ps - times.start_ps),
        (_WAITING, nothing, open_ps - worked_ps),
        (_UNTRACED, annotated.row[stretch], named.end_ps - named.start_ps),
        (_UNTRACED, nothing, windows.end_ps - windows.start_ps - open_ps - named_ps),
    ]


def _grouped(view: _View, pieces: _Pieces) -> list[dict[str, Any]]:
    """Pieces of one part, category and name added up, the longest first."""
    named = np.where((pieces.part == _HOST) & (pieces.row != NONE), view.host.naming.named[pieces.row], pieces.row)
    take = pa.array(pieces.row, mask=pieces.part != _DEVICE)
    table = pa.table(
        {
            "part": pieces.part,
            "category": view.category.take(take),
            "name": view.names.take(pa.array(named, mask=named == NONE)),
            "dur": pieces.dur_ps,
        }
    )
    keys = ["part", "category", "name"]
    rows = table.group_by(keys).aggregate([("dur", "sum"), ("dur", "count")])
    rows = rows.sort_by([("dur_sum", "descending"), *((key, "ascending") for key in keys)])
    return cast(list[dict[str, Any]], rows.to_pylist())
