"""Compiled loops over the rows of a block or a slice: order, arguments, parents, self times."""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.compiled import compiled
from phasepoint.sources.chrome.scan import ARG_FLOAT, FLOAT_SLOT, NUMBER_SLOT

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0917


def order_rows(start: Int64s, dur: Int64s) -> Int64s | None:
    """`[n]` order by start, the longest first, equal ones as they stand; None where they are in order."""
    state = _order_state(start, dur)
    if state == 0:
        return None
    order = np.argsort(start, kind="stable") if state == 2 else np.arange(len(start))
    _order_ties(order, start, dur)
    return order


@compiled()
def _order_state(start, dur):
    """0 in order, 1 but for ties, 2 not."""
    state = 0
    for i in range(1, len(start)):
        if start[i] < start[i - 1]:
            return 2
        if start[i] == start[i - 1] and dur[i] > dur[i - 1]:
            state = 1
    return state


@compiled()
def _order_ties(order, start, dur):
    """SpooledRows of one start by duration, longest first, within an order by start."""
    n = len(order)
    low = 0
    while low < n:
        high = low + 1
        odd = False
        while high < n and start[order[high]] == start[order[low]]:
            odd |= dur[order[high]] > dur[order[high - 1]]
            high += 1
        if odd:
            if high - low > 64:
                part = order[low:high].copy()
                ranked = np.argsort(-dur[part], kind="mergesort")
                for k in range(high - low):
                    order[low + k] = part[ranked[k]]
            else:
                for k in range(low + 1, high):
                    row, j = order[k], k
                    while j > low and dur[order[j - 1]] < dur[row]:
                        order[j] = order[j - 1]
                        j -= 1
                    order[j] = row
        low = high


@compiled()
def spread(extras, slot, values):
    """Put the arguments of one slot into a column of the rows; of two of one row the last counts."""
    found = 0
    for k in range(len(extras)):
        if extras[k, 0] & 255 == slot:
            values[extras[k, 0] >> 8] = extras[k, 1]
            found += 1
    return found


@compiled()
def spread_at(keys, values, slot, place, column):
    """Put the arguments of one slot into a column of some rows.

    Args:
        keys: `[m]` row × 256 + slot.
        values: `[m]` their values.
        slot: which.
        place: `[n_rows]` place in the column of each row, -1 where it has none.
        column: to fill.
    """
    for k in range(len(keys)):
        if keys[k] & 255 == slot and place[keys[k] >> 8] >= 0:
            column[place[keys[k] >> 8]] = values[k]


@compiled()
def sift_extras(extras, place, text_ids, keys, values):
    """Keep arguments of rows that have a place, in their order, their texts under the file's numbers.

    Args:
        extras: `[m, 2]` row × 256 + slot, value.
        place: `[n]` new number of each row, -1 for rows that go.
        text_ids: `[n_texts]` the file's number of each of the block's texts.
        keys, values: `[m]` to fill.
    """
    size = 0
    for k in range(len(extras)):
        row, slot = extras[k, 0] >> 8, extras[k, 0] & 255
        if place[row] < 0 or 1 <= slot <= 3:  # names and shapes have columns of their own
            continue
        is_number = slot >= NUMBER_SLOT or FLOAT_SLOT <= slot < 60 or slot == ARG_FLOAT
        keys[size] = place[row] << 8 | slot
        values[size] = extras[k, 1] if is_number else text_ids[extras[k, 1]]
        size += 1
    return size


@compiled()
def group_extras(keys, values, place, n_rows, new_keys, new_values):
    """Arguments in the order of their rows' new numbers; those of one row stay as they stand."""
    begin = np.zeros(n_rows + 1, np.int64)
    for k in range(len(keys)):
        begin[place[keys[k] >> 8] + 1] += 1
    begin = np.cumsum(begin)
    for k in range(len(keys)):
        row = place[keys[k] >> 8]
        new_keys[begin[row]] = row << 8 | (keys[k] & 255)
        new_values[begin[row]] = values[k]
        begin[row] += 1


@compiled()
def sweep_slice(rows, tops, nows, stack, until_ps, segments):
    """Nest the rows of one slice of time on their tracks, as `core.nesting.nest_spans` does, and go on where the slice
    before stopped.

    Args:
        rows: track, start, end, whether it is a span (an instant has a parent and is none), then parent (row) and self
            time to fill; `[n]` each. SpooledRows still running from before come first, see `stack`.
        tops: `[n_tracks]` entry of the innermost running span of each track in `stack`, -1 where there is none.
        nows: `[n_tracks]` up to when each track's time is charged.
        stack: row, entry below and whether it runs; `[n]` each; filled for the rows from before.
        until_ps: where the slice ends.
        segments: row, start, end to fill; `[2 n + n_tracks]` each.

    Returns:
        How many segments, and how many spans outlive the one in which they started.
    """
    track, start, end, is_span, parent, self_ps = rows
    below, running, first = stack
    segment_row, segment_start, segment_end = segments
    n_segments = misnested = 0
    for i in range(first, len(track)):
        lane = track[i]
        top, now = tops[lane], nows[lane]
        while top >= 0:
            ends = end[top] <= start[i]
            until = end[top] if ends else start[i]
            if until > now:
                segment_row[n_segments], segment_start[n_segments], segment_end[n_segments] = top, now, until
                n_segments += 1
                self_ps[top] += until - now
                now = until
            if not ends:
                break
            running[top] = 0
            top = below[top]
        now = max(now, start[i]) if top >= 0 else start[i]
        if is_span[i]:
            if top >= 0 and end[top] < end[i]:
                misnested += 1
                while top >= 0 and end[top] < end[i]:
                    running[top] = 0
                    top = below[top]
            parent[i] = top
            below[i], running[i] = top, 1
            top = i
        else:
            parent[i] = top
        tops[lane], nows[lane] = top, now
    for lane in range(len(tops)):
        top, now = tops[lane], nows[lane]
        while top >= 0:
            ends = end[top] <= until_ps
            until = end[top] if ends else until_ps
            if until > now:
                segment_row[n_segments], segment_start[n_segments], segment_end[n_segments] = top, now, until
                n_segments += 1
                self_ps[top] += until - now
                now = until
            if not ends:
                break
            running[top] = 0
            top = below[top]
        tops[lane], nows[lane] = top, now
    return n_segments, misnested
