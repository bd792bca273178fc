"""The strip: a run's phases over time, cut into as many equal cells as there is room for."""

from collections.abc import Sequence

from phasepoint.phases.summary_types import StripSegment


def strip_cells(strip: Sequence[StripSegment], cells: int) -> list[int | None]:
    """Phase id per cell, each the one that takes most of the cell's time; `[cells]`, or empty for an empty strip.

    Integer arithmetic throughout: cell `i` is from `i·total/cells` to `(i+1)·total/cells`.
    """
    if not strip or cells <= 0:
        return []
    begin, end = strip[0].start_ps, strip[-1].start_ps + strip[-1].dur_ps
    total = end - begin
    if total <= 0:
        return [strip[0].phase] * cells
    found: list[int | None] = []
    first = 0
    for cell in range(cells):
        low, high = begin + cell * total // cells, begin + (cell + 1) * total // cells
        while first + 1 < len(strip) and strip[first].start_ps + strip[first].dur_ps <= low:
            first += 1
        found.append(_dominant(strip, first, low, high))
    return found


def _dominant(strip: Sequence[StripSegment], first: int, low: int, high: int) -> int | None:
    """The phase with the most time between two instants; the earlier one of equals."""
    times: dict[int | None, int] = {}
    for index in range(first, len(strip)):
        segment = strip[index]
        if segment.start_ps >= high and times:
            break
        overlap = min(high, segment.start_ps + segment.dur_ps) - max(low, segment.start_ps)
        times[segment.phase] = times.get(segment.phase, 0) + max(overlap, 0)
    return max(times, key=lambda phase: times[phase])
