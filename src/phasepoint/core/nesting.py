"""Nesting of the spans of one track: parents, self time, and the spans that do not nest.

One sweep over spans sorted by start. At every instant the span that started last, of those still running, is charged;
so the self times of a track's spans add up to the time in which the track was busy, exactly, nested well or not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.compiled import compiled


@dataclass(frozen=True)
class Nesting:
    """What the sweep found, in the order of its input.

    Attributes:
        parent: `[n_spans]` index of the innermost span that encloses it on its track, -1 at the top.
        self_ps: `[n_spans]` duration less what is charged to spans that started later on the track, ps.
        segment_span: `[n_segments]` index of the span charged with the segment; its label where spans have labels.
        segment_start_ps: `[n_segments]` start of the segment, ps; segments of one track do not overlap.
        segment_end_ps: `[n_segments]` its end, ps.
        misnested: spans that outlive the span in which they started.
    """

    parent: Int64s
    self_ps: Int64s
    segment_span: NDArray[np.int32]
    segment_start_ps: Int64s
    segment_end_ps: Int64s
    misnested: int


SegmentRoom = tuple[NDArray[np.int32], Int64s, Int64s]
"""Memory for segments: twice as many as there are spans."""


def nest_spans(
    track: Int64s | NDArray[np.int32],
    start_ps: Int64s,
    end_ps: Int64s,
    *,
    subordinate: NDArray[np.bool_] | None = None,
    label: NDArray[np.int16] | None = None,
    room: SegmentRoom | None = None,
) -> Nesting:
    """Find each span's parent and self time on its track. O(n log n), and linear where the input is sorted.

    Equal spans nest in the order of the input: the later one stands inside the earlier. A span of no length at the
    instant where another ends stands outside it.

    Args:
        track: `[n_spans]` number of the track, any integers.
        start_ps: `[n_spans]` starts, ps.
        end_ps: `[n_spans]` ends, ps; none before its start.
        subordinate: `[n_spans]` spans whose time, inside a span that is not subordinate, is that span's own.
        label: `[n_spans]` what segments carry instead of their span; those of labels below 0 are left out.
        room: memory for the segments, which the result keeps; allocated here if None.

    Raises:
        ValueError: lengths differ, or a span ends before it starts.
    """
    if not len(track) == len(start_ps) == len(end_ps):
        raise ValueError(f"{len(track)} tracks, {len(start_ps)} starts and {len(end_ps)} ends")
    track = np.ascontiguousarray(track, None if track.dtype == np.int32 else np.int64)
    start_ps = np.ascontiguousarray(start_ps, np.int64)
    end_ps = np.ascontiguousarray(end_ps, np.int64)
    state = _order_state(track, start_ps, end_ps)
    if state == _REVERSED_SPAN:
        raise ValueError("a span ends before it starts")
    order = np.lexsort((-end_ps, start_ps, track)) if state == _UNSORTED else np.arange(0)
    if subordinate is None:
        subordinate = np.zeros(len(track), np.bool_)
    n = len(track)
    parent, self_ps = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    segments = room or (np.empty(2 * n, np.int32), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64))
    size, misnested = _sweep(order, track, start_ps, end_ps, subordinate, label, parent, self_ps, segments)
    span, begin, end = segments
    return Nesting(parent, self_ps, span[:size], begin[:size], end[:size], int(misnested))


def depths(parent: Int64s) -> Int64s:
    """`[n]` how many stand above each; -1 for who is its own ancestor, or stands under such a one. O(n log depth).

    Args:
        parent: `[n]` index of the parent, below 0 for none.

    Example:
        >>> depths(np.array([-1, 0, 1, 4, 3])).tolist()
        [0, 1, 2, -1, -1]
    """
    n = len(parent)
    above = np.append(np.where(parent < 0, n, parent), n)  # n stands above all
    steps = np.append(np.ones(n, np.int64), 0)
    for _ in range(n.bit_length()):  # each round looks twice as far
        if (above == n).all():
            break
        steps = steps + steps[above]
        above = above[above]
    return np.where(above == n, steps - 1, -1)[:n]


_SORTED, _UNSORTED, _REVERSED_SPAN = 0, 1, 2


@compiled()
def _order_state(track, start_ps, end_ps):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Whether spans stand by track, start, longest first; or one of them ends before it starts."""
    state = _SORTED
    for i in range(len(track)):
        if end_ps[i] < start_ps[i]:
            return _REVERSED_SPAN
        if i == 0 or state == _UNSORTED or track[i] > track[i - 1]:
            continue
        if (
            track[i] < track[i - 1]
            or start_ps[i] < start_ps[i - 1]
            or (start_ps[i] == start_ps[i - 1] and end_ps[i] > end_ps[i - 1])
        ):
            state = _UNSORTED
    return state


@compiled()
def _sweep(order, track, start_ps, end_ps, subordinate, label, parent, self_ps, segments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
    """The sweep. The stack holds running spans, innermost last, whose ends never grow towards the top.

    `payer` is who is charged while a span is the innermost: itself, or the span that it is subordinate to.
    """
    n = len(track)
    segment_span, segment_start, segment_end = segments
    stack = np.empty(n, np.int32)
    payer = np.empty(n, np.int32)
    depth = n_segments = misnested = 0
    now = np.int64(0)
    for k in range(n + 1):
        i = -1 if k == n else (order[k] if len(order) else k)
        last = depth > 0 and (i < 0 or track[i] != track[stack[0]])
        while depth > 0:  # close what ends before span i starts; everything at the end of a track
            top = stack[depth - 1]
            ends = last or end_ps[top] <= start_ps[i]
            until = end_ps[top] if ends else start_ps[i]
            if until > now:
                charged = payer[depth - 1]
                if label is None:  # decided when this is compiled
                    segment_span[n_segments], segment_start[n_segments], segment_end[n_segments] = charged, now, until
                    n_segments += 1
                elif label[charged] >= 0:
                    segment_span[n_segments] = label[charged]
                    segment_start[n_segments], segment_end[n_segments] = now, until
                    n_segments += 1
                self_ps[charged] += until - now
                now = until
            if not ends:
                break
            depth -= 1
        if i < 0:
            break
        now = max(now, start_ps[i]) if depth else start_ps[i]
        if depth > 0 and end_ps[stack[depth - 1]] < end_ps[i]:
            misnested += 1
            while depth > 0 and end_ps[stack[depth - 1]] < end_ps[i]:
                depth -= 1
        if depth > 0:
            parent[i] = stack[depth - 1]
        under_other = subordinate[i] and depth > 0 and not subordinate[payer[depth - 1]]
        payer[depth] = payer[depth - 1] if under_other else i
        stack[depth] = i
        depth += 1
    return n_segments, misnested
