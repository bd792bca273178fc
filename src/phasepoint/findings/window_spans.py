"""The spans of the captured windows as arrays: what the device executed, what the job's own thread called."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.intervals import IntervalSet, union
from phasepoint.findings.finding import Int64s, Unavailable
from phasepoint.findings.view import FindingsView

Bools = NDArray[np.bool_]

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
_LAUNCHES = ("PjitFunction(", "LaunchKernel", "GraphLaunch", "aten::", "ExecuteReplicated")


@dataclass(frozen=True, eq=False)
class WindowSpans:
    """One window.

    Attributes:
        rows: `[n]` rows of the clock whose steps it saw, in order; the first one follows an emptied device.
        start_ps: `[n_spans]`.
        end_ps: `[n_spans]`.
        name: `[n_spans]` code of the name.
        parent: `[n_spans]` index of the span around it, -1 at the top.
        is_work: `[n_spans]` executions on the device.
        is_busy: `[n_spans]` these, and programs in execution.
        is_own: `[n_spans]` calls on the thread that trains, steps and layers left out.
        is_launch: `[n_spans]` those of them that give the device work, outermost ones.
        waits: when the training thread waited for the device.
    """

    rows: Int64s
    start_ps: Int64s
    end_ps: Int64s
    name: Int64s
    parent: Int64s
    is_work: Bools
    is_busy: Bools
    is_own: Bools
    is_launch: Bools
    waits: IntervalSet

    def merged(self, mask: Bools) -> IntervalSet:
        """The time that some of the spans cover."""
        return union(self.start_ps[mask], self.end_ps[mask])


def read_window_spans(view: FindingsView) -> list[WindowSpans]:
    """Every window whose spans were kept and that saw whole steps.

    Raises:
        Unavailable: there is none.
    """
    spans, captured, clock = view.table("spans"), view.captured, view.clock
    keys = _column(spans, "host"), _column(spans, "attempt"), _column(spans, "window")
    names, kinds = _encoded(spans, "name")[1], _encoded(spans, "level")[1]
    found = []
    order = np.lexsort(keys[::-1])
    ids = np.column_stack(keys)[order]
    cuts = np.flatnonzero((ids[1:] != ids[:-1]).any(axis=1)) + 1 if len(ids) else np.empty(0, np.int64)
    read = partial(_read_window, names=names, kinds=kinds)
    for mine in np.split(order, cuts) if len(order) else []:
        host, attempt, window = (int(key[mine[0]]) for key in keys)
        of_window = captured.row[captured.window == window]
        rows = of_window[(clock.host[of_window] == host) & (clock.attempt[of_window] == attempt)]
        if len(rows):
            found.append(read(spans.take(pa.array(np.sort(mine))), rows))
    if not found:
        raise Unavailable(
            "no window with its events was kept: record with capture windows (record(…, budget=0.01)) and convert them "
            "(phasepoint convert RUN)"
        )
    return found


def _read_window(spans: pa.Table, rows: Int64s, *, names: list[str], kinds: list[str]) -> WindowSpans:
    start, dur = _column(spans, "start_ps"), _column(spans, "dur_ps")
    name, level = _encoded(spans, "name")[0], _encoded(spans, "level")[0]
    on_device = ~_is(_encoded(spans, "device"), ("host",)) & ~_is(_encoded(spans, "category"), ("host",))
    is_work = on_device & np.isin(level, _codes(kinds, ("op", "kernel")))
    is_busy = is_work | np.isin(name, _holding(names, (_EXECUTES,)))
    track = _encoded(spans, "track")[0]
    parent = _parents(spans)
    is_own = (track == _own_track(track, name, is_work, names)) & np.isin(level, _codes(kinds, ("op", "runtime")))
    is_launch = is_own & np.isin(name, _holding(names, _LAUNCHES))
    is_launch &= ~is_launch[parent] | (parent < 0)
    waits = _waits(start, start + dur, is_own, name, names)
    return WindowSpans(rows, start, start + dur, name, parent, is_work, is_busy, is_own, is_launch, waits)


def _own_track(track: Int64s, name: Int64s, is_work: Bools, names: list[str]) -> int:
    """The thread on which the steps were marked; else the one that launched most."""
    marked = track[np.isin(name, _holding(names, (_STEP_NAME,)))]
    if not len(marked):
        marked = track[np.isin(name, _holding(names, _LAUNCHES))]
    return int(np.bincount(marked).argmax()) if len(marked) else -1


def _waits(start: Int64s, end: Int64s, is_own: Bools, name: Int64s, names: list[str]) -> IntervalSet:
    """Fetches, and the time between two neighbouring awaits: `block_until_ready` has no event around it."""
    fetch = is_own & np.isin(name, _holding(names, _FETCHES))
    own = np.flatnonzero(is_own)
    own = own[np.argsort(start[own], kind="stable")]
    awaiting = np.isin(name[own], _holding(names, (_AWAIT,)))
    pair = np.flatnonzero(awaiting[:-1] & awaiting[1:])
    begin, done = start[own[pair]], end[own[pair + 1]]
    return union(np.concatenate([start[fetch], begin]), np.concatenate([end[fetch], np.maximum(done, begin)]))


def _parents(spans: pa.Table) -> Int64s:
    """Index of each span's parent in the same window, -1 where it has none."""
    ids, parent = _column(spans, "span"), _column(spans, "parent", missing=-1)
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids[order], parent), len(ids) - 1)]
    return np.where((parent >= 0) & (ids[at] == parent), at, -1)


def _holding(names: list[str], parts: tuple[str, ...]) -> Int64s:
    return np.array([i for i, name in enumerate(names) if any(part in name for part in parts)], np.int64)


def _codes(names: list[str], wanted: tuple[str, ...]) -> Int64s:
    return np.array([i for i, name in enumerate(names) if name in wanted], np.int64)


def _is(encoded: tuple[Int64s, list[str]], wanted: tuple[str, ...]) -> Bools:
    return np.isin(encoded[0], _codes(encoded[1], wanted))


def _encoded(table: pa.Table, name: str) -> tuple[Int64s, list[str]]:
    """Codes and texts of a dictionary column; the same codes in every part of the table."""
    column = table.column(name).unify_dictionaries()
    if not column.num_chunks:
        return np.empty(0, np.int64), []
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks])
    return codes.astype(np.int64), column.chunk(0).dictionary.to_pylist()


def _column(table: pa.Table, name: str, *, missing: int = 0) -> Int64s:
    return np.asarray(pc.fill_null(table.column(name), missing).to_numpy(), np.int64)
