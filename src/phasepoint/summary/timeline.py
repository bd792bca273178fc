"""One host's time as series small enough to draw: a strip of its phases, step times, waits, memory, what happened when.

Everything stands on the time of the strip: picoseconds from the epoch of the host's first attempt. However long the
run, a timeline has a few thousand values.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import quantile_ps
from phasepoint.core.units import PS_PER_MS
from phasepoint.phases.clock.accounting import OUTSIDE
from phasepoint.phases.clock.steps import RunClock, SessionClock, read_clock
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.machine_lane import MachineLane, build_machine_lane
from phasepoint.summary.types import RunSummary, StripSegment

MAX_STRETCHES = 2_000
"""Stretches kept: about one per pixel of a wide screen."""

_NO_PHASE = -1  # outside the steps


@dataclass(frozen=True, eq=False)
class _Stretches:
    """Stretches as arrays `[n]`, in order, tiling the time; phase -1 is outside the steps."""

    start_ps: Int64s
    end_ps: Int64s
    phase: Int64s
    first_step: Int64s
    last_step: Int64s


def build_strip(clock: RunClock, labels: Int64s, names: Mapping[int, str], host: int) -> tuple[StripSegment, ...]:
    """One host's sessions in order, each stretch with its phase; stretches tile the time from the first epoch on.

    Gaps between two steps shorter than 1/2,000 of the time are drawn as part of the stretch before them. Where there
    are more than 2,000 stretches, neighbours are drawn together under the phase that took most of their time.
    """
    sessions = clock.of_host(host)
    end_ps = max((s.offset_ps + s.wall_ps for s in sessions), default=0)
    if not end_ps:
        return ()
    parts = (vars(_step_runs(clock, labels, session, end_ps // MAX_STRETCHES)).values() for session in sessions)
    steps = _Stretches(*map(np.concatenate, zip(*parts, strict=True)))
    return _draw(_fill(steps, end_ps), names)


def _step_runs(clock: RunClock, labels: Int64s, session: SessionClock, least_gap_ps: int) -> _Stretches:
    """Maximal runs of one phase with no noticeable gap in them."""
    rows = session.rows
    start = np.maximum.accumulate(clock.start_ps[rows] + session.offset_ps) if session.end_row else np.empty(0, int)
    end = np.maximum.accumulate(start + clock.dur_ps[rows])
    phase, step = labels[rows], clock.step[rows]
    if not len(start):
        return _Stretches(*(np.empty(0, np.int64) for _ in range(5)))
    cut = (phase[1:] != phase[:-1]) | (start[1:] - end[:-1] > least_gap_ps)
    first = np.flatnonzero(np.concatenate(([True], cut)))
    last = np.append(first[1:] - 1, len(start) - 1)
    ends = end[last]
    near = start[first[1:]] - ends[:-1] <= least_gap_ps
    ends[:-1][near] = start[first[1:]][near]
    return _Stretches(start[first], ends, phase[first], step[first], step[last])


def _fill(steps: _Stretches, end_ps: int) -> _Stretches:
    """The stretches of steps with those outside between them, tiling [0, end_ps)."""
    # A clock that went back makes stretches overlap: each then begins where the one before it ended.
    start = np.minimum(np.maximum(steps.start_ps, 0), end_ps)
    reach = np.minimum(np.maximum.accumulate(np.maximum(steps.end_ps, start)), end_ps)
    start = np.maximum(start, np.concatenate(([0], reach[:-1])))
    bounds = np.concatenate(([0], np.column_stack([start, reach]).ravel(), [end_ps]))
    n = len(start)
    phase = np.full(2 * n + 1, _NO_PHASE)
    first, last = np.full(2 * n + 1, _NO_PHASE), np.full(2 * n + 1, _NO_PHASE)
    phase[1::2], first[1::2], last[1::2] = steps.phase, steps.first_step, steps.last_step
    kept = (np.diff(bounds) > 0) | (phase != _NO_PHASE)
    return _Stretches(bounds[:-1][kept], bounds[1:][kept], phase[kept], first[kept], last[kept])


def _draw(stretches: _Stretches, names: Mapping[int, str]) -> tuple[StripSegment, ...]:
    total_ps = int(stretches.end_ps[-1])
    n = len(stretches.start_ps)
    cell = np.arange(n)
    if n > MAX_STRETCHES:
        cell = np.minimum((stretches.start_ps / total_ps * MAX_STRETCHES).astype(np.int64), MAX_STRETCHES - 1)
    begins = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(begins[1:], n)
    return tuple(_draw_one(stretches, a, b, names) for a, b in zip(begins.tolist(), ends.tolist(), strict=True))


def _draw_one(stretches: _Stretches, begin: int, end: int, names: Mapping[int, str]) -> StripSegment:
    phases = stretches.phase[begin:end]
    phase = int(phases[0])
    if end - begin > 1:
        lasted = stretches.end_ps[begin:end] - stretches.start_ps[begin:end]
        found = np.unique(phases)
        phase = int(found[np.argmax([int(lasted[phases == one].sum()) for one in found])])
    steps = stretches.first_step[begin:end][phases != _NO_PHASE]
    lasts = stretches.last_step[begin:end][phases != _NO_PHASE]
    start_ps = int(stretches.start_ps[begin])
    return StripSegment(
        start_ps=start_ps,
        dur_ps=int(stretches.end_ps[end - 1]) - start_ps,
        phase=None if phase == _NO_PHASE else phase,
        name=OUTSIDE if phase == _NO_PHASE else names[phase],
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(lasts[-1]) if len(lasts) else None,
        merged=end - begin,
    )


MAX_POINTS = 3_000
"""Steps drawn one by one; a longer run is drawn as a band with the slowest step of every bin."""

BINS = 600
"""Equal stretches of time for bands and series: about one per two pixels of a page."""

MAX_MARKS = 500
"""Marks per kind; neighbours are drawn together beyond that."""


RECORDER_PREFIX = "recorder."
"""Counters of the recorder about itself; the summary's cost is made of them."""

_COUNTER_KEY = ("name", "device", "unit")


@dataclass(frozen=True)
class StepPoint:
    """One step drawn as a point; `phase` is null where the strip has none there."""

    at_ps: int
    step: int
    dur_ps: int
    input_ps: int
    phase: int | None


@dataclass(frozen=True)
class StepBin:
    """All steps that begin in one stretch of time.

    Attributes:
        start_ps: begin of the stretch.
        end_ps: its end.
        first_step, last_step: steps that begin in it.
        n_steps: their number.
        p05_ps, median_ps, p95_ps, max_ps: their step times, each that of a real step (nearest rank).
        input_share: their wait for input as a ratio of their time; null where the clock did not see it.
    """

    start_ps: int
    end_ps: int
    first_step: int
    last_step: int
    n_steps: int
    p05_ps: int
    median_ps: int
    p95_ps: int
    max_ps: int
    input_share: float | None


@dataclass(frozen=True)
class TimelineMark:
    """Something that happened at a time; `count` > 1 where several are drawn as one; `is_gone`: of no use any more."""

    start_ps: int
    dur_ps: int
    text: str
    count: int = 1
    is_gone: bool = False


@dataclass(frozen=True)
class Series:
    """A sampled quantity, the largest sample of every bin; `at_ps` and `values` are `[n]`."""

    name: str
    unit: str
    at_ps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Timeline:
    """What one host did over time.

    Attributes:
        host: rank; null for a run without hosts.
        end_ps: length of the time axis, from 0.
        points: single steps: all of them, or the slowest of every bin.
        all_steps: whether every step is among the points.
        bins: step times by stretch of time; stretches in which no step begins are left out.
        series: memory and counters.
        windows, checkpoints, gaps, hints: what was captured, written, not seen, and named by the user.
        machine: how its machine treated it; null where nobody looked.
    """

    host: int | None
    end_ps: int
    points: tuple[StepPoint, ...]
    all_steps: bool
    bins: tuple[StepBin, ...]
    series: tuple[Series, ...]
    windows: tuple[TimelineMark, ...]
    checkpoints: tuple[TimelineMark, ...]
    gaps: tuple[TimelineMark, ...]
    hints: tuple[TimelineMark, ...]
    machine: MachineLane | None = None


Telling = Callable[[Mapping[str, object]], str | tuple[str, bool]]
"""A row of a table to what is said of it; of `checkpoints` also whether the checkpoint is gone."""


def build_timeline(
    run: Run, summary: RunSummary, analysis: Analysis | None = None, *, tell_checkpoint: Telling | None = None
) -> Timeline:
    """The timeline of a summary's reference host.

    Args:
        run: the run.
        summary: of the run.
        analysis: of the run, whose tables and clock are then not read again.
        tell_checkpoint: what to say of a checkpoint, where more is known than its row.
    """
    end_ps = summary.strip[-1].start_ps + summary.strip[-1].dur_ps if summary.strip else 0
    host = summary.reference_host
    if host is None or end_ps <= 0:
        return Timeline(host, 0, (), True, (), (), (), (), (), ())
    known = analysis.tables if analysis is not None else {}
    tables = {name: known[name] if name in known else run.table(name) for name in _TABLES}
    clock = read_clock(tables["steps"], run.shards, {}) if analysis is None else analysis.clock
    offsets = {session.attempt: session.offset_ps for session in clock.of_host(host)}
    steps = _steps_in_time(clock, host)
    all_steps = len(steps.start_ps) <= MAX_POINTS
    edges = np.array([i * end_ps // BINS for i in range(BINS + 1)], np.int64)
    tellings = _MARK_TEXTS if tell_checkpoint is None else {**_MARK_TEXTS, "checkpoints": tell_checkpoint}
    marks = {name: _marks(tables[name], name, tell, (host, offsets, end_ps)) for name, tell in tellings.items()}
    return Timeline(
        host=host,
        end_ps=end_ps,
        points=_points(steps, edges, summary.strip, all_steps=all_steps),
        all_steps=all_steps,
        bins=_bins(steps, edges),
        series=(
            *_memory_series(tables["steps"], host, offsets, edges),
            *_counter_series(tables["counters"], host, offsets, edges),
        ),
        windows=marks["windows"],
        checkpoints=tuple(heapq.merge(marks["checkpoints"], marks["checkpoint_waits"], key=lambda mark: mark.start_ps)),
        gaps=marks["gaps"],
        hints=marks["hints"],
        machine=build_machine_lane(clock, tables["machine"], run.shards, host, end_ps),
    )


@dataclass(frozen=True, eq=False)
class _Steps:
    """Steps of one host in order of time, `[n]` each."""

    start_ps: Int64s
    dur_ps: Int64s
    input_ps: Int64s
    step: Int64s
    input_known: bool


def _steps_in_time(clock: RunClock, host: int) -> _Steps:
    rows = np.flatnonzero(clock.host == host)
    offset = np.zeros(clock.n_steps, np.int64)
    for session in clock.of_host(host):
        offset[session.rows] = session.offset_ps
    start = clock.start_ps[rows] + offset[rows]
    order = np.argsort(start, kind="stable")
    rows = rows[order]
    return _Steps(start[order], clock.dur_ps[rows], clock.input_ps[rows], clock.step[rows], clock.input_known)


def _bounds(at_ps: Int64s, edges: Int64s) -> Int64s:
    """First index of every bin in sorted times, and the end: `[BINS + 1]`; what lies outside joins the outer bins."""
    bounds = np.searchsorted(at_ps, edges, side="left").astype(np.int64)
    bounds[0], bounds[-1] = 0, len(at_ps)
    return bounds


def _points(steps: _Steps, edges: Int64s, strip: tuple[StripSegment, ...], *, all_steps: bool) -> tuple[StepPoint, ...]:
    if all_steps:
        chosen = np.arange(len(steps.start_ps))
    else:
        bounds = _bounds(steps.start_ps, edges)
        filled = [(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True) if b > a]
        chosen = np.array([a + int(np.argmax(steps.dur_ps[a:b])) for a, b in filled], np.int64)
    starts = np.array([segment.start_ps for segment in strip], np.int64)
    where = np.maximum(np.searchsorted(starts, steps.start_ps[chosen], side="right") - 1, 0)
    return tuple(
        StepPoint(
            int(steps.start_ps[i]), int(steps.step[i]), int(steps.dur_ps[i]), int(steps.input_ps[i]), strip[w].phase
        )
        for i, w in zip(chosen.tolist(), where.tolist(), strict=True)
    )


def _bins(steps: _Steps, edges: Int64s) -> tuple[StepBin, ...]:
    bounds = _bounds(steps.start_ps, edges)
    found = []
    for i in range(BINS):
        a, b = int(bounds[i]), int(bounds[i + 1])
        if b == a:
            continue
        p05, median, p95, longest = (quantile_ps(steps.dur_ps[a:b], q) for q in (0.05, 0.5, 0.95, 1.0))
        total_ps = int(steps.dur_ps[a:b].sum())
        share = int(steps.input_ps[a:b].sum()) / total_ps if steps.input_known and total_ps else None
        numbers = steps.step[a:b]
        low, high = int(edges[i]), int(edges[i + 1])
        found.append(StepBin(low, high, int(numbers[0]), int(numbers[-1]), b - a, p05, median, p95, longest, share))
    return tuple(found)


def _memory_series(steps: pa.Table, host: int, offsets: Mapping[int, int], edges: Int64s) -> tuple[Series, ...]:
    table = steps.select(["host", "attempt", "start_ps", "host_rss_bytes", "device_memory_bytes"])
    found = []
    for column, name in (("device_memory_bytes", "device memory"), ("host_rss_bytes", "host memory")):
        known = table.filter(pc.is_valid(table.column(column)))
        at_ps = _on_strip(known, "start_ps", host, offsets)
        values = _of_host(known, host).column(column).to_numpy().astype(np.float64)
        found.append(_largest_per_bin(name, "bytes", at_ps, values, edges))
    return tuple(series for series in found if series.at_ps)


def _counter_series(counters: pa.Table, host: int, offsets: Mapping[int, int], edges: Int64s) -> tuple[Series, ...]:
    """Counters sampled more than once, ps as ms; the recorder's account of its own cost is no course of the job's."""
    table = _of_host(counters, host)
    found = []
    for name, device, unit in sorted(set(zip(*(table.column(c).to_pylist() for c in _COUNTER_KEY), strict=True))):
        same = pc.and_(_is(table, "name", name), pc.and_(_is(table, "device", device), _is(table, "unit", unit)))
        rows = table.filter(same)
        if rows.num_rows < 2 or name.startswith(RECORDER_PREFIX):
            continue
        at_ps, values = _on_strip(rows, "time_ps", host, offsets), rows.column("value").to_numpy()
        is_time = unit == "ps"
        shown = values / PS_PER_MS if is_time else values
        found.append(_largest_per_bin(f"{name}, {device}", "ms" if is_time else unit, at_ps, shown, edges))
    return tuple(found)


def _largest_per_bin(name: str, unit: str, at_ps: Int64s, values: np.ndarray, edges: Int64s) -> Series:
    order = np.argsort(at_ps, kind="stable")
    at_ps, values = at_ps[order], values[order]
    bounds = _bounds(at_ps, edges).tolist()
    chosen = [a + int(np.argmax(values[a:b])) for a, b in pairwise(bounds) if b > a]
    return Series(name, unit, tuple(at_ps[chosen].tolist()), tuple(values[chosen].tolist()))


def _window_text(row: Mapping[str, object]) -> str:
    if row["last_step"] < row["first_step"]:  # type: ignore[operator]
        return f"window {row['window']}: a stretch inside step {row['first_step']} ({row['reason']})"
    return f"window {row['window']}: steps {row['first_step']} to {row['last_step']} ({row['reason']})"


def _checkpoint_text(row: Mapping[str, object]) -> str:
    return f"checkpoint at step {row['step']}: {row['path']} ({row['framework']})"


def _wait_text(row: Mapping[str, object]) -> str:
    return f"waited for a checkpoint at step {row['step']} ({row['framework']})"


def _gap_text(row: Mapping[str, object]) -> str:
    return f"{row['why']}: {row['unknown']}"


def _hint_text(row: Mapping[str, object]) -> str:
    return str(row["name"])


_MARK_TEXTS: Mapping[str, Telling] = {
    "windows": _window_text,
    "checkpoints": _checkpoint_text,
    "checkpoint_waits": _wait_text,
    "gaps": _gap_text,
    "hints": _hint_text,
}


_TABLES = ("steps", "counters", "machine", *_MARK_TEXTS)


def _marks(
    table: pa.Table, name: str, tell: Telling, axis: tuple[int, Mapping[int, int], int]
) -> tuple[TimelineMark, ...]:
    """The rows of a table whose time is known, as marks in order of time; the axis: host, offsets of attempts, end."""
    host, offsets, end_ps = axis
    table = _of_host(table, host)
    table = table.filter(pc.and_(pc.is_valid(table.column("start_ps")), pc.is_valid(table.column("dur_ps"))))
    marks = []
    for row in table.to_pylist():
        told = tell(row)
        text, is_gone = (told, False) if isinstance(told, str) else told
        marks.append(
            TimelineMark(row["start_ps"] + offsets.get(row["attempt"], 0), row["dur_ps"], text, is_gone=is_gone)
        )
    return _merge_marks(sorted(marks, key=lambda mark: mark.start_ps), name, end_ps)


def _merge_marks(marks: list[TimelineMark], kind: str, end_ps: int) -> tuple[TimelineMark, ...]:
    """At most `MAX_MARKS`: those that begin in one cell of the axis become one."""
    if len(marks) <= MAX_MARKS:
        return tuple(marks)
    cells: dict[int, list[TimelineMark]] = {}
    for mark in marks:
        cells.setdefault(mark.start_ps * MAX_MARKS // end_ps, []).append(mark)
    return tuple(_merge_cell(cell, kind) for cell in cells.values())


def _merge_cell(marks: list[TimelineMark], kind: str) -> TimelineMark:
    if len(marks) == 1:
        return marks[0]
    start_ps = marks[0].start_ps
    end_ps = max(mark.start_ps + mark.dur_ps for mark in marks)
    is_gone = all(mark.is_gone for mark in marks)
    text = f"{len(marks)} {kind}, the first: {marks[0].text}"
    return TimelineMark(start_ps, end_ps - start_ps, text, len(marks), is_gone)


def _of_host(table: pa.Table, host: int) -> pa.Table:
    return table.filter(pc.equal(table.column("host"), host))


def _on_strip(table: pa.Table, column: str, host: int, offsets: Mapping[int, int]) -> Int64s:
    mine = _of_host(table, host)
    offset = np.array([offsets.get(attempt, 0) for attempt in mine.column("attempt").to_pylist()], np.int64)
    return np.asarray(mine.column(column).to_numpy(), np.int64) + offset


def _is(table: pa.Table, column: str, value: str) -> pa.ChunkedArray:
    return pc.equal(table.column(column).cast(pa.string()), value)
