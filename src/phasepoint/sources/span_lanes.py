"""Tracks for spans of distributed tracing, which say whose children they are but not where they ran."""

from collections.abc import Sequence

import numpy as np

from phasepoint.core.arrays import Int64s


def lay_out(place: Sequence[str], start_ns: Int64s, end_ns: Int64s, parent: Int64s) -> list[str]:
    """`[n]` track of each span, so that the spans of a track nest: `trainer`, then `trainer (2)`, …

    A span stands on its parent's track if it fits there, else on the first of its place's tracks where it does.

    Args:
        place: `[n]` process and thread, or device and stream.
        start_ns: `[n]` starts; spans stand by start, the longest first.
        end_ns: `[n]` ends.
        parent: `[n]` index of the parent, below 0 for none.
    """
    ends: dict[str, list[list[int]]] = {}
    lane = np.zeros(len(place), np.int64)
    names: list[str] = []
    for i, (name, start, end, above) in enumerate(
        zip(place, start_ns.tolist(), end_ns.tolist(), parent.tolist(), strict=True)
    ):
        lanes = ends.setdefault(name, [])
        preferred = int(lane[above]) if 0 <= above < i and place[above] == name else 0
        chosen = _first_that_fits(lanes, preferred, start, end)
        lane[i] = chosen
        names.append(name if not chosen else f"{name} ({chosen + 1})")
    return names


def _first_that_fits(lanes: list[list[int]], preferred: int, start: int, end: int) -> int:
    """Index of a lane whose running spans all reach at least as far; the span's end is put on it."""
    order = (
        [preferred, *(i for i in range(len(lanes)) if i != preferred)] if preferred < len(lanes) else range(len(lanes))
    )
    for index in order:
        running = lanes[index]
        while running and running[-1] <= start:
            running.pop()
        if not running or running[-1] >= end:
            running.append(end)
            return index
    lanes.append([end])
    return len(lanes) - 1


def unloop(parent: Int64s) -> tuple[Int64s, int]:
    """Parents without loops: whoever is its own ancestor, and who hangs on such a one, has none. And how many had to
    lose theirs.

    Args:
        parent: `[n]` index of the parent, -1 for none.
    """
    known = parent < 0
    waiting = np.flatnonzero(~known)
    while len(waiting):
        reached = known[parent[waiting]]
        if not reached.any():
            break
        known[waiting[reached]] = True
        waiting = waiting[~reached]
    return np.where(known, parent, -1), len(waiting)
