"""Rows of tiny executions on the device, or of launches on the host: time that goes into starting work."""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import EMPTY, IntervalSet, subtract, union
from phasepoint.core.units import PS_PER_US
from phasepoint.findings.window_spans import WindowSpans

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


def find_tiny_work(spans: WindowSpans) -> TinyWork:
    """Tiny executions that stand in rows of at least `LEAST_ROW`, each at most `NEAR_PS` after the one before."""
    dur, parent = spans.end_ps - spans.start_ps, spans.parent
    is_tiny = spans.is_work & (dur <= TINY_PS)
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
