"""Stretches of tiny executions on the device, one right after another: time that goes into starting them."""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.intervals import IntervalSet, subtract, union
from phasepoint.core.units import PS_PER_US
from phasepoint.findings.finding import Int64s
from phasepoint.findings.window_spans import Bools, WindowSpans

TINY_PS = 20 * PS_PER_US
"""Starting an execution costs some 1–10 µs (a thunk or an ATen op on a CPU, a kernel on a GPU); what lasts no longer
than a few of these costs is mostly cost."""
NEAR_PS = 50 * PS_PER_US
"""Executions further apart than that do not wait for each other's launch: the host does something else."""
LEAST_ROW = 16
"""Fewer in a row are the small change of any step: a bias, a counter, a norm."""


@dataclass(frozen=True, eq=False)
class TinyWork:
    """Tiny executions of a window that stand in stretches.

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
        needed = np.zeros(len(low_ps), np.int64)
        for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            sorts, count = np.unique(self.name[a:b], return_inverse=True)
            if len(sorts):
                total = np.bincount(count, self.dur_ps[a:b])
                needed[i] = int((total / np.bincount(count)).sum())
        return needed


def find_tiny_work(spans: WindowSpans) -> TinyWork:
    """Tiny executions that stand in rows of at least `LEAST_ROW`, each at most `NEAR_PS` after the one before."""
    dur, parent = spans.end_ps - spans.start_ps, spans.parent
    is_tiny = spans.is_work & (dur <= TINY_PS)
    inside_tiny = is_tiny[parent] & (parent >= 0)  # of a tiny op and the ops inside it the outer one counts
    mine = np.flatnonzero(is_tiny & ~inside_tiny)
    mine = mine[np.argsort(spans.start_ps[mine], kind="stable")]
    start, reach = spans.start_ps[mine], np.maximum.accumulate(spans.end_ps[mine])
    near = np.concatenate(([False], start[1:] - reach[:-1] <= NEAR_PS)) if len(mine) else np.empty(0, bool)
    row = np.cumsum(~near) - 1
    count = np.bincount(row) if len(mine) else np.empty(0, np.int64)
    kept = count[row] >= LEAST_ROW
    first = np.flatnonzero(~near)
    last = np.append(first[1:], len(mine)) - 1 if len(mine) else first
    long = count >= LEAST_ROW
    large = spans.merged(spans.is_work & (dur > TINY_PS) & ~_around(parent, is_tiny))
    stretches = subtract(union(start[first[long]], reach[last[long]]), large)
    chosen = mine[kept]
    return TinyWork(stretches, spans.start_ps[chosen], dur[chosen], spans.name[chosen])


def _around(parent: Int64s, inner: Bools) -> Bools:
    """Spans that enclose one of `inner`, at any depth."""
    around = np.zeros(len(parent), bool)
    level = np.unique(parent[inner & (parent >= 0)])
    while len(level):
        around[level] = True
        above = np.unique(parent[level])
        level = above[(above >= 0) & ~around[above]]
    return around
