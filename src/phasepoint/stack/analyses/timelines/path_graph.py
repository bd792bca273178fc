"""What had to wait for what: host threads and device executions of one step as a graph of points in time.

Edges, each from a point to a later one:
    run        an execution, start to end
    thread     along a thread of the host; it weighs what the thread worked, not what it waited or what is not known
    launch     from the launch call (its end, or the start if that comes first); it weighs the way to the device where
               the stream was free, nothing where the execution queued
    stream     from the execution before on the same stream; after a call that makes a stream wait, from the latest one
               that ended on any other stream of the device
    sync       from the execution that a synchronising call or a blocking copy waited for to the call's end
    handover   from the thread that stopped to the one that began while it stands still (backward after forward)

The compiled loop that finds the heaviest path through a graph whose points stand in the order of its edges.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.compiled import compiled
from phasepoint.core.intervals import EMPTY, IntervalSet, covered_ps, overlaps, subtract, union
from phasepoint.stack.shard.hierarchy import NONE

# Compiled: takes and returns arrays, and so carries no annotations.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201


@compiled()
def heaviest_path(source, target, weight, n_points):
    """Numbers of the edges of the heaviest path, in its order; O(edges).

    Args:
        source: `[n_edges]` point that each edge leaves; below its target.
        target: `[n_edges]` point that it reaches, rising.
        weight: `[n_edges]` its weight, not negative.
        n_points: number of points.

    Returns:
        `[k]` edges, none where no edge has a weight. Of equal paths into a point the one over the later source counts;
        of equal ends the earliest.
    """
    best = np.zeros(n_points, np.int64)
    through = np.full(n_points, -1, np.int64)
    for edge in range(len(source)):
        point, total = target[edge], best[source[edge]] + weight[edge]
        known = through[point]
        if total > best[point] or (total == best[point] and total > 0 and known >= 0 and source[edge] > source[known]):
            best[point], through[point] = total, edge
    point = np.int64(0)
    for candidate in range(n_points):
        if best[candidate] > best[point]:
            point = candidate
    path = np.empty(n_points, np.int64)
    size = 0
    while n_points and through[point] >= 0:
        path[size] = through[point]
        point = source[path[size]]
        size += 1
    return path[:size][::-1].copy()


RUN, THREAD, LAUNCH, STREAM, SYNC, HANDOVER = range(6)

_ENDS, _LEAVES, _JOINS, _STARTS, _VANISHES = range(5)
"""Order of points at one time: executions end; threads give, then take; executions start; those of no length end."""


@dataclass(frozen=True, eq=False)
class Thread:
    """What one thread did in a step. Arrays are `[n_segments]`, disjoint, by start.

    Attributes:
        track: number of the track.
        times: segments in which it worked, waits left out by `without`.
        row: what it did in each: a row of `spans`.
        start_ps: when its first span began.
        end_ps: when its last span ended.
    """

    track: int
    times: IntervalSet
    row: Int64s
    start_ps: int
    end_ps: int

    def without(self, waits: IntervalSet) -> "Thread":
        """The same thread, less the time in which it waited."""
        busy = subtract(IntervalSet(np.array([self.start_ps]), np.array([self.end_ps])), waits)
        segment, _, times = overlaps(self.times, busy)
        return Thread(self.track, times, self.row[segment], self.start_ps, self.end_ps)


@dataclass(frozen=True, eq=False)
class Runs:
    """Executions of one step on devices. Arrays are `[n]`.

    Attributes:
        start_ps: start.
        end_ps: end.
        stream: number of the stream, over all devices.
        device: number of the device.
        track: number of the launching thread's track, `NONE` where the launch is not known.
        called_ps: when the launch call began.
        returned_ps: when it ended.
        told: whether a stream was told to wait between the launch before on this thread and this one.
    """

    start_ps: Int64s
    end_ps: Int64s
    stream: Int64s
    device: Int64s
    track: Int64s
    called_ps: Int64s
    returned_ps: Int64s
    told: Bools


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls that wait for a device, of one step: track, begin, end. Arrays are `[n]`."""

    track: Int64s
    start_ps: Int64s
    end_ps: Int64s


@dataclass(frozen=True, eq=False)
class PathGraph:
    """The graph. Points stand in an order that every edge follows.

    Attributes:
        time_ps: `[n_points]` rising.
        source: `[n_edges]` point that each edge leaves.
        target: `[n_edges]` point that it reaches, rising.
        weight_ps: `[n_edges]` what counts of it.
        kind: `[n_edges]` RUN, THREAD, LAUNCH, STREAM, SYNC, HANDOVER.
        what: `[n_edges]` number of the execution, or of the thread in `threads`.
        threads: the threads, waits left out.
    """

    time_ps: Int64s
    source: Int64s
    target: Int64s
    weight_ps: Int64s
    kind: Int64s
    what: Int64s
    threads: list[Thread]


class _Draft:
    """Points and edges as they are found; `finish` puts them into order."""

    def __init__(self) -> None:
        self._points: list[tuple[Int64s, Int64s, Int64s]] = []
        self._edges: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]] = []
        self._size = 0

    def points(self, time_ps: Int64s, order: int, owner: Int64s | int) -> Int64s:
        """Add points of a thread (`owner` its number), or of executions (`NONE`); their numbers."""
        n = len(time_ps)
        self._points.append((time_ps, np.full(n, order), np.zeros(n, np.int64) + owner))
        self._size += n
        return np.arange(self._size - n, self._size)

    def edges(self, kind: int, source: Int64s, target: Int64s, weight_ps: Int64s, what: Int64s) -> None:
        """Add edges."""
        self._edges.append((source, target, weight_ps, np.full(len(source), kind), what))

    def finish(self, threads: list[Thread]) -> PathGraph:
        """Threads' points joined one after another, and everything in order."""
        time_ps, order, owner = (np.concatenate(parts) for parts in zip(*self._points, strict=True))
        for i, thread in enumerate(threads):
            mine = np.flatnonzero(owner == i)
            mine = mine[np.lexsort((order[mine], time_ps[mine]))]
            weight = covered_ps(thread.times, time_ps[mine[:-1]], time_ps[mine[1:]])
            self.edges(THREAD, mine[:-1], mine[1:], weight, np.full(len(weight), i))
        ranked = np.lexsort((owner, order, time_ps))
        place = np.empty(len(ranked), np.int64)
        place[ranked] = np.arange(len(ranked))
        source, target, weight_ps, kind, what = (np.concatenate(parts) for parts in zip(*self._edges, strict=True))
        source, target = place[source], place[target]
        kept = np.flatnonzero(source < target)  # at one instant, what is of no length has no certain order
        kept = kept[np.argsort(target[kept], kind="stable")]
        return PathGraph(time_ps[ranked], source[kept], target[kept], weight_ps[kept], kind[kept], what[kept], threads)


def path_graph(threads: list[Thread], runs: Runs, calls: Calls) -> PathGraph:
    """The graph of one step.

    Args:
        threads: threads of the host.
        runs: executions on devices.
        calls: calls that wait for a device.
    """
    draft = _Draft()
    start = draft.points(runs.start_ps, _STARTS, NONE)
    lasting = runs.end_ps > runs.start_ps
    end = np.empty(len(start), np.int64)
    end[lasting] = draft.points(runs.end_ps[lasting], _ENDS, NONE)
    end[~lasting] = draft.points(runs.end_ps[~lasting], _VANISHES, NONE)
    draft.edges(RUN, start, end, runs.end_ps - runs.start_ps, np.arange(len(start)))
    before = latest_before(runs)
    then = np.flatnonzero(before != NONE)
    draft.edges(STREAM, end[before[then]], start[then], np.zeros(len(then), np.int64), then)
    _add_dependencies(draft, runs, start, end)
    freed_ps = np.where(before == NONE, np.iinfo(np.int64).min, runs.end_ps[before]) if len(start) else runs.end_ps
    worked = []
    for i, thread in enumerate(threads):
        mine = np.flatnonzero((runs.track == thread.track) & (runs.called_ps <= runs.start_ps))
        leaves_ps = np.minimum(runs.returned_ps[mine], runs.start_ps[mine])
        weight = np.where(freed_ps[mine] <= leaves_ps, runs.start_ps[mine] - leaves_ps, 0)
        draft.edges(LAUNCH, draft.points(leaves_ps, _LEAVES, i), start[mine], weight, mine)
        waits = _add_waits(draft, runs, mine, calls, end=end, thread=i, track=thread.track)
        draft.points(np.array([thread.start_ps, thread.end_ps]), _LEAVES, i)
        worked.append(thread.without(waits))
    for i, thread in enumerate(worked):
        _add_handovers(draft, worked, i, thread)
    return draft.finish(worked)


def latest_before(runs: Runs) -> Int64s:
    """`[n]` for each execution, the one that ended last on its stream before it started; `NONE` where none did."""
    before = np.full(len(runs.start_ps), NONE)
    for stream in np.unique(runs.stream):
        mine = np.flatnonzero(runs.stream == stream)
        before[mine] = _latest_ended(runs, mine, runs.start_ps[mine])
    return before


def _latest_ended(runs: Runs, among: Int64s, time_ps: Int64s) -> Int64s:
    """`[m]` which of some executions ended last by each time; those of no length hold nothing up."""
    among = among[runs.end_ps[among] > runs.start_ps[among]]
    among = among[np.lexsort((runs.start_ps[among], runs.end_ps[among]))]
    place = np.searchsorted(runs.end_ps[among], time_ps, side="right") - 1
    return np.where(place >= 0, among[np.maximum(place, 0)], NONE) if len(among) else np.full(len(time_ps), NONE)


def _add_dependencies(draft: _Draft, runs: Runs, start: Int64s, end: Int64s) -> None:
    """Edges from other streams of the device to executions whose stream was told to wait."""
    for stream in np.unique(runs.stream[runs.told]):
        mine = np.flatnonzero(runs.told & (runs.stream == stream))
        others = np.flatnonzero((runs.stream != stream) & (runs.device == runs.device[mine[0]]))
        latest = _latest_ended(runs, others, runs.start_ps[mine])
        found = latest != NONE
        draft.edges(STREAM, end[latest[found]], start[mine[found]], np.zeros(found.sum(), np.int64), mine[found])


def _add_waits(
    draft: _Draft, runs: Runs, mine: Int64s, calls: Calls, *, end: Int64s, thread: int, track: int
) -> IntervalSet:
    """Edges into a thread from what it waited for; when it waited."""
    blocking = mine[runs.end_ps[mine] <= runs.returned_ps[mine]]
    of = np.flatnonzero(calls.track == track)
    awaited = np.full(len(of), NONE)
    order = mine[np.argsort(runs.called_ps[mine], kind="stable")]
    place = np.searchsorted(runs.called_ps[order], calls.start_ps[of], side="right") - 1
    device = runs.device[order[np.maximum(place, 0)]] if len(order) else awaited
    for one in np.unique(device[device != NONE]):
        here = np.flatnonzero(device == one)
        awaited[here] = _latest_ended(runs, np.flatnonzero(runs.device == one), calls.end_ps[of[here]])
    waited = np.flatnonzero(awaited != NONE)
    waited = waited[runs.end_ps[awaited[waited]] > calls.start_ps[of[waited]]]
    run = np.append(awaited[waited], blocking)
    since_ps = np.append(calls.start_ps[of[waited]], runs.start_ps[blocking])
    until_ps = np.append(calls.end_ps[of[waited]], runs.returned_ps[blocking])
    draft.edges(SYNC, end[run], draft.points(until_ps, _LEAVES, thread), until_ps - runs.end_ps[run], run)
    return union(since_ps, runs.end_ps[run]) if len(run) else EMPTY


def _add_handovers(draft: _Draft, threads: list[Thread], number: int, thread: Thread) -> None:
    """Edges into the begin of each stretch of work of a thread from the one that worked last, if it stands still."""
    stretches = union(thread.times.start_ps, thread.times.end_ps)
    begins = stretches.start_ps
    stopped = np.append(np.iinfo(np.int64).min, stretches.end_ps[:-1])[: len(begins)]
    giver, given = np.full(len(begins), NONE), stopped.copy()
    for other, work in enumerate(threads):
        if other == number or not len(work.times.start_ps):
            continue
        busy = union(work.times.start_ps, work.times.end_ps)
        place = np.searchsorted(busy.start_ps, begins, side="right") - 1
        last = np.where(place >= 0, busy.end_ps[np.maximum(place, 0)], np.iinfo(np.int64).min)
        better = (last <= begins) & (last > given)
        giver[better], given[better] = other, last[better]
    taken = np.flatnonzero(giver != NONE)
    source = draft.points(begins[taken], _LEAVES, giver[taken])
    target = draft.points(begins[taken], _JOINS, number)
    draft.edges(HANDOVER, source, target, np.zeros(len(taken), np.int64), np.full(len(taken), number))
