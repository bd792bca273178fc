"""Why a device was idle: every idle stretch between its first and last execution, split among causes exactly.

A stretch ends when the next execution starts. Until the host begins that execution's launch call the host is late, by
what it was doing: loading input, waiting for the device, anything else. Then come the launch call itself and the time
that the launch takes to arrive. If the call had returned before the stretch began, the execution was waiting in its
queue: for other work (dependency), or just for its turn behind its predecessor (between executions).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import IntervalSet, overlaps, union
from phasepoint.core.tables import Column
from phasepoint.stack.shard.executions import NO_DEVICE_NOTE, Executions, read_executions
from phasepoint.stack.shard.hierarchy import NONE
from phasepoint.stack.shard.host_activity import HostSide, read_host
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis

CAUSES = (
    "host",
    "input",
    "synchronisation",
    "launching",
    "launch-latency",
    "dependency",
    "between-executions",
    "unknown",
)
_HOST, _INPUT, _SYNC, _LAUNCHING, _LATENCY, _DEPENDENCY, _BETWEEN, _UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True, eq=False)
class _Gaps:
    """Idle stretches `[n]`: from, to, the execution that ended each, its launch's row, whether the launch is known."""

    start_ps: Int64s
    end_ps: Int64s
    execution: Int64s
    launch: Int64s
    known: Bools


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of stretches `[m]`: the stretch, its cause, the row that names it (`NONE` for nothing), how long."""

    gap: Int64s
    cause: Int64s
    during: Int64s
    dur_ps: Int64s


@analysis(
    Column("device", pa.string(), "the device"),
    Column("cause", pa.string(), ", ".join(CAUSES)),
    Column(
        "during",
        pa.string(),
        "what the launching thread was in, or which execution waited; null where no span was open",
        nullable=True,
    ),
    Column("idle_ps", pa.int64(), "idle time of this cause; over a device it adds up to its idle time", "ps"),
    Column("stretches", pa.int64(), "idle stretches that it had a part in", "stretches"),
    Column("longest_ps", pa.int64(), "its longest part of one stretch", "ps"),
    Column("share_ratio", pa.float64(), "idle_ps of the device's idle time", "ratio"),
)
def idle_causes(shard: StackShard) -> RowsAndNotes:
    """Why each device was idle: a row for each cause and what went on meanwhile, the longest first."""
    executions = shard.once(read_executions)
    if not len(executions.row):
        return [], (NO_DEVICE_NOTE,)
    host, names = shard.once(read_host), shard.table("spans")["name"]
    told = host.told_to_wait(executions.launch[executions.launch != NONE])
    rows, notes = [], []
    for device in executions.devices:
        mine = executions.of(device)
        gaps = _gaps(mine)
        unlaunched = np.flatnonzero(~gaps.known)
        unknown = _parts(
            unlaunched, _UNKNOWN, np.full(len(unlaunched), NONE), (gaps.end_ps - gaps.start_ps)[unlaunched]
        )
        parts = _join([unknown, *_before_launch(gaps, host), *_after_launch(gaps, mine, host, told)])
        rows += [{"device": device, **row} for row in _rows(parts, names)]
        if len(unlaunched):
            notes.append(
                f"{device}: {len(unlaunched)} of {len(gaps.known)} idle stretches end with an execution whose "
                "launch is not in the trace: record the host's runtime calls too, from before the first execution"
            )
    return rows, notes


def _gaps(mine: Executions) -> _Gaps:
    """Idle stretches of one device and what ended each: of executions that start together, the first launched."""
    busy = union(mine.start_ps, mine.end_ps)
    start_ps = np.append(mine.start_ps.min(), busy.end_ps)
    end_ps = np.append(busy.start_ps, mine.end_ps.max())
    idle = end_ps > start_ps
    start_ps, end_ps = start_ps[idle], end_ps[idle]
    order = np.lexsort((np.where(mine.launch == NONE, np.iinfo(np.int64).max, mine.launch), mine.start_ps))
    execution = order[np.searchsorted(mine.start_ps[order], end_ps)]
    on_cpu = mine.device[0].startswith("cpu:")  # an op of a CPU is where its thread calls it
    launch = mine.row[execution] if on_cpu else mine.launch[execution]
    return _Gaps(start_ps, end_ps, execution, launch, launch != NONE)


def _before_launch(gaps: _Gaps, host: HostSide) -> list[_Parts]:
    """The part of each stretch until its launch call begins, by what the launching thread was doing."""
    gap = np.flatnonzero(gaps.known)
    until = np.minimum(host.start_ps[gaps.launch[gap]], gaps.end_ps[gap])
    late = until > gaps.start_ps[gap]
    gap, until = gap[late], until[late]
    tracks = host.tracks[gaps.launch[gap]]
    parts = []
    for track in np.unique(tracks):
        here, ends = gap[tracks == track], until[tracks == track]
        windows = IntervalSet(gaps.start_ps[here], ends)
        activity = host.activity.of(int(track))
        window, segment, common = overlaps(windows, activity.times)
        row, dur_ps = activity.row[segment], common.end_ps - common.start_ps
        naming = host.naming
        cause = np.where(naming.is_input[row], _INPUT, np.where(naming.waits[row], _SYNC, _HOST))
        parts.append(_Parts(here[window], cause, naming.named[row], dur_ps))
        covered = np.zeros(len(here), np.int64)
        np.add.at(covered, window, dur_ps)
        parts.append(_parts(here, _HOST, np.full(len(here), NONE), ends - windows.start_ps - covered))
    return parts


def _after_launch(gaps: _Gaps, mine: Executions, host: HostSide, told: Bools) -> list[_Parts]:
    """The part of each stretch from its launch call on."""
    gap = np.flatnonzero(gaps.known)
    launch, start_ps, end_ps = gaps.launch[gap], gaps.start_ps[gap], gaps.end_ps[gap]
    called = np.clip(host.start_ps[launch], start_ps, end_ps)
    returned = np.clip(host.end_ps[launch], called, end_ps)
    waiting = host.end_ps[launch] <= start_ps
    cause = np.where(waiting, _queue_cause(gaps, mine, host, told)[gap], _LATENCY)
    execution = mine.row[gaps.execution[gap]]
    during = np.where(cause == _DEPENDENCY, execution, NONE)
    return [
        _parts(gap, _LAUNCHING, host.naming.named[launch], returned - called),
        _Parts(gap, cause, during, end_ps - returned),
    ]


def _queue_cause(gaps: _Gaps, mine: Executions, host: HostSide, told: Bools) -> Int64s:
    """`[n]` why an execution that was launched in time did not start: its stream was told to wait, or stood free."""
    stream = host.tracks[mine.row]
    order = np.lexsort((mine.start_ps, stream))
    before = np.full(len(order), NONE)
    same = stream[order[1:]] == stream[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    previous = before[gaps.execution]
    behind = (previous != NONE) & (mine.end_ps[previous] == gaps.start_ps)
    return np.where(behind & ~told[gaps.launch], _BETWEEN, _DEPENDENCY)


def _parts(gap: Int64s, cause: int, during: Int64s, dur_ps: Int64s) -> _Parts:
    return _Parts(gap, np.full(len(gap), cause), during, dur_ps)


def _join(parts: list[_Parts]) -> _Parts:
    gap, cause, during, dur_ps = (
        np.concatenate([getattr(part, name) for part in parts]).astype(np.int64)
        for name in ("gap", "cause", "during", "dur_ps")
    )
    some = dur_ps > 0
    return _Parts(gap[some], cause[some], during[some], dur_ps[some])


def _rows(parts: _Parts, names: pa.ChunkedArray) -> list[dict[str, object]]:
    """Rows of one device: parts of one stretch that share cause and name are one."""
    table = pa.table(
        {
            "gap": parts.gap,
            "cause": parts.cause,
            "during": names.cast(pa.string()).take(pa.array(parts.during, mask=parts.during == NONE)),
            "dur": parts.dur_ps,
        }
    )
    by_gap = table.group_by(["gap", "cause", "during"]).aggregate([("dur", "sum")])
    rows = by_gap.group_by(["cause", "during"]).aggregate([("dur_sum", "sum"), ("gap", "count"), ("dur_sum", "max")])
    rows = rows.sort_by([("dur_sum_sum", "descending"), ("cause", "ascending"), ("during", "ascending")])
    idle_ps = int(parts.dur_ps.sum())
    return [
        {
            "cause": CAUSES[row["cause"]],
            "during": row["during"],
            "idle_ps": row["dur_sum_sum"],
            "stretches": row["gap_count"],
            "longest_ps": row["dur_sum_max"],
            "share_ratio": row["dur_sum_sum"] / idle_ps,
        }
        for row in rows.to_pylist()
    ]
