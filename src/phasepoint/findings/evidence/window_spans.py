"""The spans of captured windows as arrays: what the device executed, what the job's own thread called.

From these: rows of tiny executions on the device and of launches on the host, whose time goes into starting work.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_column, renumber
from phasepoint.core.intervals import EMPTY, IntervalSet, subtract, union, unite
from phasepoint.core.units import PS_PER_US, format_counted
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import read_numbers
from phasepoint.summary.enough import advise_capture

_STEP_NAME = "phasepoint.step"
_FETCHES = (
    *("np.asarray(jax.Array)", "block_until_ready", "ToLiteral"),
    *("aten::item", "aten::_local_scalar_dense"),
    *("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize"),
)
"""Parts of the names under which the host waits for the device: JAX (CPU and GPU), PyTorch, CUDA and HIP."""
_AWAIT = "PjRtBuffer::Await"
"""JAX's `block_until_ready` shows as two such events on one thread, one when it begins and one when it is done."""
_EXECUTES = "ThunkExecutor::Execute"
"""XLA's CPU runtime inside a program: a stop between two of its ops is not the training thread's doing."""
COLLECTIVES = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:", "hccl:")
"""Parts of the names under which PyTorch marks a collective on whichever thread carries it out."""
_LAUNCHES = ("PjitFunction(", "LaunchKernel", "GraphLaunch", "aten::", "ExecuteReplicated")


@dataclass(frozen=True, eq=False)
class WindowSpans:
    """The windows of one session, which lie apart in time.

    Attributes:
        rows: `[n]` rows of the clock whose steps they saw, in order.
        window: `[n]` number of the window that saw it, rising; its first step follows an emptied device.
        start_ps: `[n_spans]`.
        end_ps: `[n_spans]`.
        name: `[n_spans]` code of the name.
        parent: `[n_spans]` index of the span around it, -1 at the top.
        is_work: `[n_spans]` executions on the device.
        is_busy: `[n_spans]` these, and programs in execution.
        is_own: `[n_spans]` calls on the thread that trains, steps and layers left out.
        is_launch: `[n_spans]` those of them that give the device work, outermost ones.
        is_collective: `[n_spans]` collectives, on any thread.
        waits: when the training thread waited for the device.
    """

    rows: Int64s
    window: Int64s
    start_ps: Int64s
    end_ps: Int64s
    name: Int64s
    parent: Int64s
    is_work: Bools
    is_busy: Bools
    is_own: Bools
    is_launch: Bools
    is_collective: Bools
    waits: IntervalSet

    def merged(self, mask: Bools) -> IntervalSet:
        """The time that some of the spans cover."""
        return union(self.start_ps[mask], self.end_ps[mask])


def read_window_spans(view: FindingsView) -> tuple[list[WindowSpans], list[str]]:
    """The windows whose spans were kept and that saw whole steps, by session; and the texts of the names' codes.

    Raises:
        Unavailable: there is none.
    """
    spans, captured = view.table("spans"), view.captured
    host, attempt, window = (read_numbers(spans, name) for name in ("host", "attempt", "window"))
    columns, found, numbered = _Columns.read(spans), [], 0
    for session in view.clock.sessions:
        inside = (captured.row >= session.first_row) & (captured.row < session.end_row)
        rows, seen = captured.row[inside], captured.window[inside]
        mine = np.flatnonzero((host == session.host) & (attempt == session.attempt) & np.isin(window, seen))
        if not len(mine):
            continue
        kept = np.isin(seen, window[mine])
        number = np.unique(seen[kept], return_inverse=True)[1].ravel()
        of_span = renumber(window[mine])[1]
        found.append(_read_session(columns, mine, of_span, rows[kept], numbered + number))
        numbered += int(number.max()) + 1
    if not found:
        raise Unavailable(
            f"no window with its events was kept: {advise_capture(view.analysis.run, view.clock)}; captures that "
            "wait are converted by phasepoint convert RUN"
        )
    return found, columns.names


_GIVES_WORK = r"^(cuda|cu|hip|mtia)\w*(Launch|Memcpy)|record_stream|pin_memory"
"""Calls and ops that there are only where a device other than the processor works: CUDA, HIP, MTIA; PyTorch's."""


def unseen_device(view: FindingsView) -> str | None:
    """What a fully captured run lacks whose host gave work to a device that is not in it; None where nothing lacks."""
    if not view.is_fully_captured:
        return None
    spans = view.table("spans")
    device = spans.column("device").cast(pa.string())
    if not pc.all(pc.or_(pc.equal(device, "host"), pc.starts_with(device, "cpu:"))).as_py():
        return None
    names = spans.column("name").cast(pa.string())
    calls = pc.value_counts(names.filter(pc.match_substring_regex(names, _GIVES_WORK)).combine_chunks())
    if not len(calls):
        return None
    name, count = max(((one["values"], one["counts"]) for one in calls.to_pylist()), key=lambda one: (one[1], one[0]))
    return f"the job gave work to a device ({format_counted(count, 'call')} of {name}), and none of it is in the trace"


def need_device(view: FindingsView) -> None:
    """Raises `Unavailable` where the device is not in the trace: what the host did meanwhile says nothing of it."""
    if lacks := view.once(unseen_device):
        raise Unavailable(f"{lacks}: {RECORD_DEVICE}")


RECORD_DEVICE = (
    "record the device's activities too (torch.profiler with ProfilerActivity.CUDA); hardware counters may replace them"
)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns of the spans table, and what its rows are by their names."""

    start_ps: Int64s
    end_ps: Int64s
    name: Int64s
    names: list[str]
    track: Int64s
    span: Int64s
    parent: Int64s
    is_call: Bools
    is_work: Bools
    is_step: Bools
    is_launching: Bools
    is_executing: Bools
    is_fetch: Bools
    is_await: Bools
    is_collective: Bools

    @classmethod
    def read(cls, spans: pa.Table) -> "_Columns":
        start, (name, names) = read_numbers(spans, "start_ps"), encode_column(spans.column("name"))
        on_device = ~_is(spans, "device", "host") & ~_is(spans, "category", "host")
        parts = ((_STEP_NAME,), _LAUNCHES, (_EXECUTES,), _FETCHES, (_AWAIT,), COLLECTIVES)
        return cls(
            start,
            start + read_numbers(spans, "dur_ps"),
            name,
            names,
            encode_column(spans.column("track"))[0],
            read_numbers(spans, "span"),
            read_numbers(spans, "parent", missing=-1),
            _is(spans, "level", "op", "runtime"),
            on_device & _is(spans, "level", "op", "kernel"),
            *(np.isin(name, [i for i, text in enumerate(names) if any(part in text for part in one)]) for one in parts),
        )


def _read_session(columns: _Columns, mine: Int64s, of_span: Int64s, rows: Int64s, window: Int64s) -> WindowSpans:
    """The spans `mine` `[n_spans]`, in windows `of_span` numbered from 0."""
    start, end, is_work = columns.start_ps[mine], columns.end_ps[mine], columns.is_work[mine]
    launching = columns.is_launching[mine]
    is_own = _own_tracks(of_span, columns.track[mine], columns.is_step[mine], launching) & columns.is_call[mine]
    parent = _parents(of_span, columns.span[mine], columns.parent[mine])
    is_launch = is_own & launching
    is_launch &= ~is_launch[parent] | (parent < 0)
    is_busy = is_work | columns.is_executing[mine]
    fetch = is_own & columns.is_fetch[mine]
    between = _between_awaits(mine[is_own], of_span[is_own], columns)
    waits = unite([union(start[fetch], end[fetch]), between])
    name, collective = columns.name[mine], columns.is_collective[mine]
    return WindowSpans(rows, window, start, end, name, parent, is_work, is_busy, is_own, is_launch, collective, waits)


def _own_tracks(window: Int64s, track: Int64s, marked: Bools, launching: Bools) -> Bools:
    """Spans on the thread of their window on which the steps were marked; else on the one that launched most."""
    n_windows, n_tracks = int(window.max()) + 1, int(track.max()) + 1
    place = window * n_tracks + track
    by_mark, by_launch = (
        np.bincount(place[which], minlength=n_windows * n_tracks).reshape(n_windows, n_tracks)
        for which in (marked, launching)
    )
    count = np.where(by_mark.any(axis=1, keepdims=True), by_mark, by_launch)
    most = np.where(count.any(axis=1), count.argmax(axis=1), -1)
    return np.asarray(track == most[window], np.bool_)


def _between_awaits(own: Int64s, window: Int64s, columns: _Columns) -> IntervalSet:
    """The time between two neighbouring awaits of a window: `block_until_ready` has no event around it."""
    order = np.lexsort((columns.start_ps[own], window))
    own, window = own[order], window[order]
    awaiting = columns.is_await[own]
    pair = np.flatnonzero(awaiting[:-1] & awaiting[1:] & (window[:-1] == window[1:]))
    begin, done = columns.start_ps[own[pair]], columns.end_ps[own[pair + 1]]
    return union(begin, np.maximum(done, begin))


def _parents(window: Int64s, span: Int64s, parent: Int64s) -> Int64s:
    """Index of each span's parent in the same window, -1 where it has none."""
    width = max(int(span.max(initial=0)), int(parent.max(initial=0))) + 1
    ids, wanted = window * width + span, window * width + parent
    if (ids[1:] >= ids[:-1]).all():  # as the table is sorted
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    else:
        order = np.argsort(ids, kind="stable")
        at = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return np.where((parent >= 0) & (ids[at] == wanted), at, -1)


def _is(table: pa.Table, column: str, *wanted: str) -> Bools:
    codes, texts = encode_column(table.column(column))
    return np.isin(codes, [i for i, text in enumerate(texts) if text in wanted])


TINY_PS = 20 * PS_PER_US
"""Starting an execution costs some 1–10 µs (a thunk or an ATen op on a CPU, a kernel on a GPU); what lasts no longer
than a few of these costs is mostly cost."""
NEAR_PS = 50 * PS_PER_US
"""Executions further apart than that do not wait for each other's launch: the host does something else."""
LAUNCH_PS = 200 * PS_PER_US
"""A launch that lasts longer is held up by something: a queue that is full, a lock, the work itself."""
LEAST_ROW = 16
"""Fewer in a row are the small change of any step: a bias, a counter, a norm."""


@dataclass(frozen=True, eq=False)
class TinyWork:
    """Tiny executions of a session's windows that stand in stretches.

    Attributes:
        stretches: from the first one's start to the last one's end; longer work on other tracks taken out.
        start_ps: `[n]` of the executions, rising.
        dur_ps: `[n]`.
        name: `[n]` code of the name.
    """

    stretches: IntervalSet
    start_ps: Int64s
    dur_ps: Int64s
    name: Int64s

    def needed_ps(self, low_ps: Int64s, high_ps: Int64s) -> Int64s:
        """`[n_steps]` one execution of each sort: what the same work takes where it is done at once."""
        first, last = np.searchsorted(self.start_ps, low_ps), np.searchsorted(self.start_ps, high_ps)
        count = np.maximum(last - first, 0)
        step = np.repeat(np.arange(len(count)), count)
        work = first[step] + np.arange(len(step)) - np.repeat(np.cumsum(count) - count, count)
        n_names = int(self.name.max(initial=0)) + 1
        sorts, code = np.unique(step * n_names + self.name[work], return_inverse=True)
        mean_ps = np.bincount(code.ravel(), self.dur_ps[work]) / np.bincount(code.ravel())
        return np.bincount(sorts // n_names, mean_ps, minlength=len(count)).astype(np.int64)


def find_tiny_work(spans: WindowSpans, waiting: IntervalSet) -> TinyWork:
    """Tiny executions that stand in rows of at least `LEAST_ROW`, each at most `NEAR_PS` after the one before.

    Args:
        spans: of a session's windows.
        waiting: when the training thread waits for its input. What it executes itself meanwhile makes that input.
    """
    dur, parent = spans.end_ps - spans.start_ps, spans.parent
    begun = np.searchsorted(waiting.start_ps, spans.start_ps, side="right")
    makes_input = spans.is_own & (begun > np.searchsorted(waiting.end_ps, spans.start_ps, side="right"))
    is_tiny = spans.is_work & (dur <= TINY_PS) & ~makes_input
    inside_tiny = is_tiny[parent] & (parent >= 0)  # of a tiny op and the ops inside it the outer one counts
    mine, stretches = _rows(spans, is_tiny & ~inside_tiny)
    stretches = subtract(stretches, _large(spans, is_tiny))
    return TinyWork(stretches, spans.start_ps[mine], dur[mine], spans.name[mine])


def find_launch_rows(spans: WindowSpans) -> IntervalSet:
    """Rows of launches by the training thread, with no large work on the device meanwhile.

    Empty where this thread executes the work itself: there a launch is an execution.
    """
    dur = spans.end_ps - spans.start_ps
    inline = spans.is_launch & spans.is_work
    _, rows = _rows(spans, spans.is_launch & ~inline & (dur <= LAUNCH_PS))
    return subtract(rows, _large(spans, spans.is_work & (dur <= TINY_PS)))


def _rows(spans: WindowSpans, which: Bools) -> tuple[Int64s, IntervalSet]:
    """The spans of `which` that stand in rows, by start, and the time from each row's first start to its last end."""
    mine = np.flatnonzero(which)
    if not len(mine):
        return mine, EMPTY
    mine = mine[np.argsort(spans.start_ps[mine], kind="stable")]
    start, reach = spans.start_ps[mine], np.maximum.accumulate(spans.end_ps[mine])
    first = np.flatnonzero(np.concatenate(([True], start[1:] - reach[:-1] > NEAR_PS)))
    count = np.diff(np.append(first, len(mine)))
    long = count >= LEAST_ROW
    last = first + count - 1
    return mine[np.repeat(long, count)], union(start[first[long]], reach[last[long]])


def _large(spans: WindowSpans, is_tiny: Bools) -> IntervalSet:
    """Work that is not tiny and does not consist of tiny work."""
    return spans.merged(spans.is_work & (spans.end_ps - spans.start_ps > TINY_PS) & ~_around(spans.parent, is_tiny))


def _around(parent: Int64s, inner: Bools) -> Bools:
    """Spans that enclose one of `inner`, at any depth."""
    around = np.zeros(len(parent), bool)
    level = np.unique(parent[inner & (parent >= 0)])
    while len(level):
        around[level] = True
        above = np.unique(parent[level])
        level = above[(above >= 0) & ~around[above]]
    return around
