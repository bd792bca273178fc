"""The critical path: for each step the heaviest chain of host and device work, each waiting for the one before.

What counts is work: time in ops and calls of a thread that is not waiting, executions, a launch's way to a free stream,
and the way back to a call that waited. Shortening anything else does not shorten the step; shortening what is on the
path does, until another chain is as long. What is between, and before and after, is told as waiting, or as untraced
time of a thread, in which no op or call was open: the parts add up to the step's span exactly.
"""

from dataclasses import dataclass

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
    Work,
    path_graph,
)
from phasepoint.stack.shard.executions import Executions, read_executions, texts_of
from phasepoint.stack.shard.hierarchy import NONE, inherited
from phasepoint.stack.shard.host_activity import (
    HostActivity,
    Naming,
    host_activity,
    name_activity,
    told_to_wait,
    tracks_of,
)
from phasepoint.stack.shard.shard import ShardRows, StackShard, rows_of

PARTS = ("host", "host-untraced", "launch", "device", "synchronisation", "waiting")
_HOST, _UNTRACED, _LAUNCH, _DEVICE, _SYNC, _WAITING = range(len(PARTS))

COLUMNS = (
    Column("host", pa.int64(), "rank of the process"),
    Column("step", pa.int64(), "the step; null where the trace has none", nullable=True),
    Column("part", pa.string(), ", ".join(PARTS)),
    Column("category", pa.string(), "of executions: compute, communication, data_movement", nullable=True),
    Column("name", pa.string(), "outermost op or annotation of the host, or execution", nullable=True),
    Column("time_ps", pa.int64(), "time on the path; over a step it adds up to span_ps", "ps"),
    Column("pieces", pa.int64(), "pieces of the path", "pieces"),
    Column("share_ratio", pa.float64(), "time_ps of span_ps", "ratio", nullable=True),
    Column("span_ps", pa.int64(), "from the step's first work to its last", "ps"),
)

_NO_ORDER = (
    "which stream waited for which event is not in the tables: a stream told to wait is held to wait for what ended "
    "last on the other streams of its device"
)


@dataclass(frozen=True, eq=False)
class _View:
    """A shard's spans and what is computed of them once; arrays are `[n_spans]`."""

    start_ps: Int64s
    end_ps: Int64s
    tracks: Int64s
    step: Int64s
    names: pa.ChunkedArray
    category: pa.ChunkedArray
    naming: Naming
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


def of_shard(shard: StackShard) -> ShardRows:
    """Rows by step, the longest first."""
    data: dict[str, list[object]] = {column.name: [] for column in COLUMNS}
    view = _view(shard)
    used = view.activity.row if not len(view.executions.row) else np.append(view.activity.row, view.executions.row)
    if not len(used):
        return ShardRows(rows_of(COLUMNS, data), ("no work was recorded",))
    of_activity, of_run = _by_step(view.step[view.activity.row]), _by_step(view.run_step)
    steps = sorted({*of_activity, *of_run})
    for step in steps[1:] if len(steps) > 1 and steps[0] == NONE else steps:
        nothing = np.empty(0, np.int64)
        raw = view.activity.where(of_activity.get(step, nothing))
        _add_step(data, view, (step, raw, view.executions.where(of_run.get(step, nothing))), shard.host)
    notes = [_NO_ORDER] if view.naming.stream_waits.any() else []
    if view.executions.orphan.any():
        notes.append("executions whose launch is not in the trace hang on their stream alone")
    return ShardRows(rows_of(COLUMNS, data), tuple(notes))


def _view(shard: StackShard) -> _View:
    spans = shard.table("spans")
    executions = read_executions(shard)
    on_cpu = np.fromiter((device.startswith("cpu:") for device in executions.device), np.bool_, len(executions.row))
    executions = executions.where(~on_cpu)
    start_ps, tracks = spans["start_ps"].to_numpy(), tracks_of(spans)
    activity = host_activity(spans, tracks)
    naming = name_activity(spans, activity.above)
    step = inherited(spans, "step").fill_null(NONE).to_numpy(zero_copy_only=False)
    launch = executions.launch
    told = told_to_wait(launch[launch != NONE], start_ps, tracks, naming.stream_waits)
    levels = texts_of(spans["level"])
    working = np.union1d(tracks[launch[launch != NONE]], tracks[activity.row[levels[activity.row] == "op"]])
    return _View(
        start_ps=start_ps,
        end_ps=start_ps + spans["dur_ps"].to_numpy(),
        tracks=tracks,
        step=step,
        names=spans["name"].cast(pa.string()),
        category=spans["category"].cast(pa.string()),
        naming=naming,
        activity=activity.where(np.isin(activity.track, working)),
        is_annotation=levels == "layer",
        executions=executions,
        run_step=_run_steps(executions, step),
        told=told,
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


def _add_step(
    data: dict[str, list[object]], view: _View, work: tuple[int, HostActivity, Executions], host: int
) -> None:
    from phasepoint.stack.analyses.timelines.path_graph import heaviest_path

    step, raw, runs = work
    graph = path_graph(_threads(view, raw), _runs(view, runs), _calls(view, raw))
    path = heaviest_path(graph.source, graph.target, graph.weight_ps, len(graph.time_ps))
    pieces = _pieces(graph, path, runs, (raw, view.is_annotation[raw.row]))
    span_ps = int(graph.time_ps[-1] - graph.time_ps[0])
    rows = _grouped(view, pieces)
    for part, category, name, time_ps, count in rows:
        data["host"].append(host)
        data["step"].append(None if step == NONE else step)
        data["part"].append(PARTS[part])
        data["category"].append(category)
        data["name"].append(name)
        data["time_ps"].append(time_ps)
        data["pieces"].append(count)
        data["share_ratio"].append(time_ps / span_ps if span_ps else None)
        data["span_ps"].append(span_ps)


def _threads(view: _View, raw: HostActivity) -> list[Work]:
    threads = []
    for track in np.unique(raw.track):
        mine = raw.where(raw.track == track)
        works = ~(view.naming.idles | view.is_annotation)[mine.row]
        times = IntervalSet(mine.times.start_ps[works], mine.times.end_ps[works])
        extent = int(mine.times.start_ps[0]), int(mine.times.end_ps[-1])
        threads.append(Work(int(track), times, mine.row[works], *extent))
    return threads


def _runs(view: _View, runs: Executions) -> Runs:
    known, launch = runs.launch != NONE, runs.launch
    _, device = np.unique(runs.device.astype(str), return_inverse=True)
    return Runs(
        start_ps=runs.start_ps,
        end_ps=runs.end_ps,
        stream=view.tracks[runs.row],
        device=device.astype(np.int64),
        track=np.where(known, view.tracks[launch], NONE),
        called_ps=np.where(known, view.start_ps[launch], 0),
        returned_ps=np.where(known, view.end_ps[launch], 0),
        told=known & view.told[launch],
    )


def _calls(view: _View, raw: HostActivity) -> Calls:
    row = np.unique(raw.row[view.naming.waits[raw.row]])
    return Calls(view.tracks[row], view.start_ps[row], view.end_ps[row])


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
    work: Work, since_ps: Int64s, until_ps: Int64s, raw: tuple[HostActivity, Bools]
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


def _grouped(view: _View, pieces: _Pieces) -> list[tuple[int, str | None, str | None, int, int]]:
    """(part, category, name, time, pieces), the longest first."""
    named = np.where((pieces.part == _HOST) & (pieces.row != NONE), view.naming.named[pieces.row], pieces.row)
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
    return [(row["part"], row["category"], row["name"], row["dur_sum"], row["dur_count"]) for row in rows.to_pylist()]
