"""Why the device stood idle in the captured steps, by what the training thread did meanwhile.

An idle stretch in which a wait for the device ended **follows a sync**: the host had let the queue run empty. Unless
nothing was launched from there until work began: then the next work lay in the queue, and the device was late (its
thread had no core, a program began slowly). That is nobody's fault here, and is left out. Of the others, a stretch with
a piece of at least 100 µs in which the thread called nothing that the profiler sees is the loop's **own code** (inside
a step whose work this thread executes itself: of at least 500 µs); what is left is **dispatch**: calls that launch
work, and the Python between them. Waiting for input, collectives, checkpoints, what the job named an evaluation, and
long pauses of garbage collection are left out.

Where every step was captured and the trace says which call launched each execution, the account of
`stack/work/idle_account.py` takes the place of this: it knows every stretch, on every thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import EMPTY, IntervalSet, covered_ps, intersect, subtract, union, unite
from phasepoint.core.units import PS_PER_US
from phasepoint.findings.evidence.gc_pauses import long_pause_times
from phasepoint.findings.evidence.held_time import read_evaluations
from phasepoint.findings.evidence.window_spans import (
    TinyWork,
    WindowSpans,
    find_launch_rows,
    find_tiny_work,
    need_device,
    read_window_spans,
)
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.accounting import covered_time
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.idle_account import IdleAccount, account_idle, join_accounts
from phasepoint.summary.run_events import COMPILE_LEAST_PS

OWN_PIECE_PS = 100 * PS_PER_US
"""Python between two launches takes some 5–50 µs; ten times a call is more than issuing work."""
OWN_INSIDE_PS = 500 * PS_PER_US
"""Where the thread executes the work itself, the framework's own Python stands between two operations of a step: 0.1 to
0.5 ms to enter a module, begin the backward pass, group an optimizer's parameters (PyTorch on a CPU, measured)."""
MANY_LAUNCHES = 8
"""With more launches than that in one idle stretch it is the launching that takes the time."""
_SLACK_PS = 20 * PS_PER_US
"""By so much a wait may end before the device is seen to be idle: clocks of two threads, and waking up."""


@dataclass(frozen=True, eq=False)
class HostTime:
    """The captured steps whose events were kept, `[n]` each; the first of a window and those that compiled left out.

    Attributes:
        row: rows of the clock.
        window: number of the window, from 0.
        after_sync_ps: idle that followed a wait for the device.
        overlap_ps: waiting for the device while it worked: what the host could have done meanwhile.
        own_ps: idle during the loop's own code.
        dispatch_ps: idle while work was launched, tiny work left out.
        tiny_ps: stretches of tiny work, less one execution of each sort.
        issue_ps: these stretches and rows of launches, together.
        issue_idle_ps: time in them in which nothing was executed.
        waits: waits for the device.
        launches: calls that gave the device work.
        tiny: tiny executions.
        is_inline: whether the training thread executes the work itself.
        tiny_names: the tiny executions' names by how often they ran.
        account: why the device was idle, stretch by stretch; None where that is not known.
    """

    row: Int64s
    window: Int64s
    after_sync_ps: Int64s
    overlap_ps: Int64s
    own_ps: Int64s
    dispatch_ps: Int64s
    tiny_ps: Int64s
    issue_ps: Int64s
    issue_idle_ps: Int64s
    waits: Int64s
    launches: Int64s
    tiny: Int64s
    is_inline: bool
    tiny_names: tuple[str, ...]
    account: IdleAccount | None = None

    @property
    def sync_ps(self) -> Int64s:
        """What each step would win without its waits: host and device work side by side, the longer one counts."""
        return np.minimum(self.after_sync_ps, self.overlap_ps)

    @property
    def is_host_bound(self) -> bool:
        """Whether tiny work waits for its launch: for half of its stretches or more nothing is executed."""
        return not self.is_inline and bool(2 * self.issue_idle_ps.sum() >= self.issue_ps.sum())

    @property
    def rest_ps(self) -> Int64s:
        """Idle during the loop's own code that is left where nothing waits any more."""
        return self.own_ps + self.after_sync_ps - self.sync_ps


def read_idle_account(view: FindingsView) -> IdleAccount | None:
    """Why devices were idle, exactly; None where a step was not captured, or no work of an accelerator is kept."""
    if not view.is_fully_captured:
        return None
    shards = {(shard.host, shard.attempt): StackShard(view.analysis.run, shard) for shard in view.analysis.run.shards}
    found = []
    for session in view.clock.sessions:
        shard = shards.get((session.host, session.attempt))
        if shard is not None and session.end_row > session.first_row:
            row = np.arange(session.first_row, session.end_row)
            account = account_idle(shard, row, view.clock.start_ps[row], view.captured.parts_ps[row])
            found += [] if account is None else [account]
    return join_accounts(found)


def read_host_time(view: FindingsView) -> HostTime:
    """Measure every window whose events were kept.

    Raises:
        Unavailable: there is none, none holds a step to judge by, or the device is not in them.
    """
    view.need_windows()
    need_device(view)
    sessions, texts = read_window_spans(view)
    columns: list[Int64s] = []
    counted = np.zeros(len(texts), np.int64)
    inline = []
    for spans in sessions:
        tiny = find_tiny_work(spans, _input_waits(view, spans.rows))
        counted += np.bincount(tiny.name, minlength=len(texts))
        inline.append(is_inline(spans))
        columns.append(_measure(view, spans, tiny))
    table = np.concatenate(columns)
    kept = table[table[:, 2] == 1]
    if not len(kept):
        raise Unavailable("every captured step compiled or opened a window; record with windows of several steps")
    most = [texts[i] for i in np.argsort(-counted, kind="stable")[:5] if counted[i]]
    row, window, after, overlap, own, dispatch, small, issue, between, waits, launches, executions = np.delete(
        kept, 2, axis=1
    ).T
    times = (after, overlap, own, dispatch, small, issue, between)
    found = HostTime(row, window, *times, waits, launches, executions, all(inline), tuple(most))
    account = view.once(read_idle_account)
    return found if account is None else _accounted(found, account)


def _accounted(host: HostTime, account: IdleAccount) -> HostTime:
    """The same with what the account knows of its steps, and no other step."""
    kept = np.flatnonzero(np.isin(host.row, account.row))
    at = np.searchsorted(account.row, host.row[kept])
    dispatch_ps = np.zeros_like(account.launches) if account.has_few_launches else account.of("dispatch")
    return replace(
        host,
        row=host.row[kept],
        window=host.window[kept],
        after_sync_ps=account.of("sync")[at],
        overlap_ps=account.overlap_ps[at],
        own_ps=account.of(*account.unexplained)[at],
        dispatch_ps=dispatch_ps[at],
        tiny_ps=host.tiny_ps[kept],
        issue_ps=host.issue_ps[kept],
        issue_idle_ps=host.issue_idle_ps[kept],
        waits=account.waits[at],
        launches=account.launches[at],
        tiny=host.tiny[kept],
        account=account,
    )


def _measure(view: FindingsView, spans: WindowSpans, tiny: TinyWork) -> Int64s:
    """`[n_steps, 13]`: the columns of `HostTime`, with whether the step is kept as the third."""
    clock, rows = view.clock, spans.rows
    low, high = clock.start_ps[rows], clock.start_ps[rows] + clock.dur_ps[rows]
    busy = spans.merged(spans.is_work)
    idle = subtract(union(low, high), unite([spans.merged(spans.is_busy | spans.is_collective), *_excused(view, rows)]))
    issue = unite([tiny.stretches, find_launch_rows(spans)])
    edges = np.unique(np.concatenate([low, low + clock.input_ps[rows], high])) if is_inline(spans) else None
    synced, own, dispatch = _split(spans, idle, issue, edges)
    inside = partial(covered_ps, low_ps=low, high_ps=high)
    kept = clock.compile_ps[rows] < COMPILE_LEAST_PS
    is_first = np.diff(spans.window, prepend=-1) != 0
    kept &= ~is_first | np.append(is_first[1:], True)  # a window's only step is all there is of it
    if view.once(read_idle_account) is not None or (view.is_fully_captured and is_first.sum() == 1):
        kept[:] = True  # nothing is left to be estimated
    starts = [spans.waits.start_ps, spans.start_ps[spans.is_launch], tiny.start_ps]
    counts = [np.searchsorted(np.sort(s), high) - np.searchsorted(np.sort(s), low) for s in starts]
    overlap = intersect(spans.waits, busy)
    times = [inside(part) for part in (synced, overlap, own, dispatch, tiny.stretches, issue, subtract(issue, busy))]
    times[4] = np.maximum(times[4] - tiny.needed_ps(low, high), 0)
    return np.column_stack([rows, spans.window, kept.astype(np.int64), *times, *counts])


def is_inline(spans: WindowSpans) -> bool:
    """Whether most of what the training thread launches it executes itself."""
    return 2 * int((spans.is_launch & spans.is_work).sum()) > int(spans.is_launch.sum())


def _split(
    spans: WindowSpans, idle: IntervalSet, issue: IntervalSet, edges: Int64s | None
) -> tuple[IntervalSet, IntervalSet, IntervalSet]:
    """Idle that follows a sync, idle in the loop's own code, idle while dispatching.

    Args:
        spans: of a session's windows.
        idle: to split.
        issue: when launches follow each other.
        edges: where the training thread executes the work itself, when steps and their inputs begin and end.
    """
    if not len(idle.start_ps):
        return EMPTY, EMPTY, EMPTY
    is_synced = _ends_wait(idle, spans.waits)
    is_late = is_synced & ~_is_launched(spans, idle)
    idle, is_synced = _picked(idle, ~is_late), is_synced[~is_late]
    begin, end = idle.start_ps, idle.end_ps
    waits, launches = spans.waits, np.sort(spans.start_ps[spans.is_launch])
    many = np.searchsorted(launches, end) - np.searchsorted(launches, begin) > MANY_LAUNCHES
    silent = subtract(idle, unite([spans.merged(spans.is_own), waits]))
    lasts = silent.end_ps - silent.start_ps
    long = lasts >= OWN_PIECE_PS
    if edges is not None:
        at_edge = np.searchsorted(edges, silent.start_ps) < np.searchsorted(edges, silent.end_ps, side="right")
        long &= at_edge | (lasts >= OWN_INSIDE_PS)
    pieces = IntervalSet(silent.start_ps[long], silent.end_ps[long])
    is_own = covered_ps(pieces, begin, end) > 0
    synced = _picked(idle, is_synced & ~many)
    synced = unite([synced, intersect(_picked(idle, is_synced & many), pieces)])
    own = unite([_picked(idle, is_own & ~many & ~is_synced), intersect(_picked(idle, many & ~is_synced), pieces)])
    rest = subtract(idle, unite([synced, own, issue, waits]))
    return subtract(synced, issue), subtract(own, unite([synced, issue])), rest


def _ends_wait(idle: IntervalSet, waits: IntervalSet) -> Bools:
    """In which idle stretches a wait for the device ended that had begun before them."""
    begin, end = idle.start_ps, idle.end_ps
    at = np.searchsorted(begin, waits.end_ps + _SLACK_PS, side="right") - 1
    ended = (at >= 0) & (waits.end_ps <= end[at]) & (waits.start_ps <= begin[at] + _SLACK_PS)
    found = np.zeros(len(begin), bool)
    found[at[ended]] = True
    return found


def _is_launched(spans: WindowSpans, idle: IntervalSet) -> Bools:
    """After which idle stretches work began that was launched since they began; all where no launch or work is seen."""
    launches, work = spans.merged(spans.is_launch), spans.merged(spans.is_busy)
    next_work = np.searchsorted(work.start_ps, idle.end_ps)
    if not len(launches.start_ps) or not len(work.start_ps):
        return np.ones(len(next_work), bool)
    began = work.start_ps[np.minimum(next_work, len(work.start_ps) - 1)] + _SLACK_PS
    last = np.searchsorted(launches.start_ps, began, side="right") - 1
    since = (last >= 0) & (launches.end_ps[last] > idle.start_ps - _SLACK_PS)
    return np.asarray(since | (next_work == len(work.start_ps)), np.bool_)


def _picked(stretches: IntervalSet, which: Bools) -> IntervalSet:
    return IntervalSet(stretches.start_ps[which], stretches.end_ps[which])


def _excused(view: FindingsView, rows: Int64s) -> Sequence[IntervalSet]:
    """When other rules account for the time: waiting for input, saves, evaluations, long pauses of the collector."""
    session = next(one for one in view.clock.sessions if one.first_row <= rows[0] < one.end_row)
    known = (view.checkpoint_stretches, view.once(read_evaluations).named)
    held = [covered_time(session.own(stretches)) for stretches in known]
    return [_input_waits(view, rows), *held, long_pause_times(view, session)]


def _input_waits(view: FindingsView, rows: Int64s) -> IntervalSet:
    return union(start_ps := view.clock.start_ps[rows], start_ps + view.clock.input_ps[rows])
