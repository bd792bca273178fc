"""Idle stretches of a device, each split exactly among what the host did until the work that ended it was there.

A stretch ends when the next execution starts. Until the host begins that execution's launch call the host is late, by
what it was doing: loading input, waiting for the device, anything else. Then come the launch call itself and the time
that the launch takes to arrive. If the call had returned before the stretch began, the execution was waiting in its
queue: for other work (dependency), or just for its turn behind its predecessor (between executions).
"""

from dataclasses import dataclass, fields

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import IntervalSet, overlaps, subtract, union
from phasepoint.stack.shard.executions import Executions
from phasepoint.stack.shard.hierarchy import NONE
from phasepoint.stack.shard.host_activity import HostSide

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
HOST, INPUT, SYNC, LAUNCHING, LATENCY, DEPENDENCY, BETWEEN, UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True, eq=False)
class IdleGaps:
    """Idle stretches `[n]` of a device: from, to, the execution that ended each, its launch's row, whether it is known.

    `execution` is a position in the device's executions, `launch` a row of `spans`.
    """

    start_ps: Int64s
    end_ps: Int64s
    execution: Int64s
    launch: Int64s
    known: Bools


@dataclass(frozen=True, eq=False)
class IdleParts:
    """Parts of stretches `[m]`, which together are the stretches.

    Attributes:
        gap: the stretch.
        cause: its cause, a position in `CAUSES`.
        during: row of `spans` whose name says what went on, `NONE` for nothing.
        start_ps: from.
        end_ps: to.
    """

    gap: Int64s
    cause: Int64s
    during: Int64s
    start_ps: Int64s
    end_ps: Int64s

    @property
    def dur_ps(self) -> Int64s:
        """How long each is."""
        return self.end_ps - self.start_ps


def find_gaps(mine: Executions, *, from_ps: int | None = None) -> IdleGaps:
    """Idle stretches of one device and what ended each: of executions that start together, the first launched.

    Args:
        mine: the device's executions, one or more.
        from_ps: whether, and since when, the time before its first execution counts as one.
    """
    busy = union(mine.start_ps, mine.end_ps)
    start_ps = np.append(mine.start_ps.min() if from_ps is None else from_ps, busy.end_ps)
    end_ps = np.append(busy.start_ps, mine.end_ps.max())
    idle = end_ps > start_ps
    start_ps, end_ps = start_ps[idle], end_ps[idle]
    order = np.lexsort((np.where(mine.launch == NONE, np.iinfo(np.int64).max, mine.launch), mine.start_ps))
    execution = order[np.searchsorted(mine.start_ps[order], end_ps)]
    on_cpu = mine.device[0].startswith("cpu:")  # an op of a CPU is where its thread calls it
    launch = mine.row[execution] if on_cpu else mine.launch[execution]
    return IdleGaps(start_ps, end_ps, execution, launch, launch != NONE)


def split_gaps(gaps: IdleGaps, mine: Executions, host: HostSide, told: Bools) -> IdleParts:
    """The parts of idle stretches.

    Args:
        gaps: of the device.
        mine: the device's executions.
        host: the host's side of the shard.
        told: `[n_spans]` as `HostSide.told_to_wait` gives it.
    """
    lost = np.flatnonzero(~gaps.known)
    unknown = _parts(lost, UNKNOWN, np.full(len(lost), NONE), gaps.start_ps[lost], gaps.end_ps[lost])
    found = [unknown, *_before_launch(gaps, host), *_after_launch(gaps, mine, host, told)]
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in found]) for f in fields(IdleParts)}
    some = columns["end_ps"] > columns["start_ps"]
    return IdleParts(**{name: column[some].astype(np.int64) for name, column in columns.items()})


def _before_launch(gaps: IdleGaps, host: HostSide) -> list[IdleParts]:
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
        row, naming = activity.row[segment], host.naming
        cause = np.where(naming.is_input[row], INPUT, np.where(naming.waits[row], SYNC, HOST))
        parts.append(IdleParts(here[window], cause, naming.named[row], common.start_ps, common.end_ps))
        silent = subtract(windows, union(common.start_ps, common.end_ps))
        at = here[np.searchsorted(windows.start_ps, silent.start_ps, side="right") - 1]
        parts.append(_parts(at, HOST, np.full(len(at), NONE), silent.start_ps, silent.end_ps))
    return parts


def _after_launch(gaps: IdleGaps, mine: Executions, host: HostSide, told: Bools) -> list[IdleParts]:
    """The part of each stretch from its launch call on."""
    gap = np.flatnonzero(gaps.known)
    launch, start_ps, end_ps = gaps.launch[gap], gaps.start_ps[gap], gaps.end_ps[gap]
    called = np.clip(host.start_ps[launch], start_ps, end_ps)
    returned = np.clip(host.end_ps[launch], called, end_ps)
    waiting = host.end_ps[launch] <= start_ps
    cause = np.where(waiting, _queue_cause(gaps, mine, host, told)[gap], LATENCY)
    execution = mine.row[gaps.execution[gap]]
    during = np.where(cause == DEPENDENCY, execution, NONE)
    return [
        _parts(gap, LAUNCHING, host.naming.named[launch], called, returned),
        IdleParts(gap, cause, during, returned, end_ps),
    ]


def _queue_cause(gaps: IdleGaps, mine: Executions, host: HostSide, told: Bools) -> Int64s:
    """`[n]` why an execution that was launched in time did not start: its stream was told to wait, or stood free."""
    stream = host.tracks[mine.row]
    order = np.lexsort((mine.start_ps, stream))
    before = np.full(len(order), NONE)
    same = stream[order[1:]] == stream[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    previous = before[gaps.execution]
    behind = (previous != NONE) & (mine.end_ps[previous] == gaps.start_ps)
    return np.where(behind & ~told[gaps.launch], BETWEEN, DEPENDENCY)


def _parts(gap: Int64s, cause: int, during: Int64s, start_ps: Int64s, end_ps: Int64s) -> IdleParts:
    return IdleParts(gap, np.full(len(gap), cause), during, start_ps, end_ps)
