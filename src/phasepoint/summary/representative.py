"""The step that stands for a phase, event by event: few enough spans to draw and to keep in a page."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.tables import CATEGORIES
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.types import PhaseSummary

MAX_SPANS = 3_000
"""Spans kept of one phase; the shortest are left out first, and counted."""

_COLUMNS = ["window", "span", "parent", "level", "category", "name", "start_ps", "dur_ps", "device", "track", "step"]


@dataclass(frozen=True)
class WindowTrace:
    """The spans of one phase's representative step, by track; the lists of spans are `[n]` each.

    Attributes:
        host, attempt, window, step: which step it is.
        start_ps: begin of the first span, from the session's epoch.
        dur_ps: from there to the end of the last one.
        tracks: names, device and thread or stream; devices first, the host last.
        names: names of spans.
        categories: names of categories.
        track, name, category: position in the three of every span.
        depth: spans that enclose it on its track, of those kept.
        start: begin of every span, ps from start_ps.
        dur: its duration, ps.
        left_out: spans of the step that are not kept, all of them shorter than those that are.
    """

    host: int
    attempt: int
    window: int
    step: int
    start_ps: int
    dur_ps: int
    tracks: tuple[str, ...]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    track: tuple[int, ...]
    name: tuple[int, ...]
    category: tuple[int, ...]
    depth: tuple[int, ...]
    start: tuple[int, ...]
    dur: tuple[int, ...]
    left_out: int


def read_traces(analysis: Analysis, phases: Sequence[PhaseSummary]) -> dict[int, WindowTrace]:
    """By phase id, the trace of its representative step; phases without a captured one are absent."""
    wanted = [p for p in phases if p.representative_window is not None and p.representative_step is not None]
    if not wanted:
        return {}
    spans = analysis.table("spans").select(["host", "attempt", *_COLUMNS])
    found = {}
    for phase in wanted:
        place = {
            "host": phase.representative_host,
            "attempt": phase.representative_attempt,
            "window": phase.representative_window,
            "step": phase.representative_step,
        }
        mask = np.ones(spans.num_rows, bool)
        for name, value in place.items():
            if value is not None:
                mask &= pc.fill_null(pc.equal(spans.column(name), value), False).to_numpy()
        rows = spans.filter(pa.array(mask))
        if rows.num_rows:
            found[phase.id] = _trace(rows)
    return found


def _trace(rows: pa.Table) -> WindowTrace:
    first = {name: rows.column(name)[0].as_py() for name in ("host", "attempt", "window", "step")}
    n = rows.num_rows
    if n > MAX_SPANS:
        longest = np.argsort(-np.asarray(rows.column("dur_ps")), kind="stable")[:MAX_SPANS]
        rows = rows.take(pa.array(np.sort(longest)))
    start_ps, dur_ps = (np.asarray(rows.column(name), np.int64) for name in ("start_ps", "dur_ps"))
    device, thread = (rows.column(name).to_pylist() for name in ("device", "track"))
    tracks, track = _number([f"{d} · {t}" for d, t in zip(device, thread, strict=True)], host_last=True)
    names, name = _number(rows.column("name").to_pylist())
    categories, category = _number(rows.column("category").to_pylist(), order=CATEGORIES)
    origin_ps = int(start_ps.min())
    return WindowTrace(
        **first,
        start_ps=origin_ps,
        dur_ps=int((start_ps + dur_ps).max()) - origin_ps,
        tracks=tracks,
        names=names,
        categories=categories,
        track=track,
        name=name,
        category=category,
        depth=_depths(rows, np.array(track, np.int64)),
        start=tuple((start_ps - origin_ps).tolist()),
        dur=tuple(dur_ps.tolist()),
        left_out=n - rows.num_rows,
    )


def _depths(rows: pa.Table, track: Int64s) -> tuple[int, ...]:
    """How many kept spans enclose each; a parent that was left out is shorter than no child, so none is missing."""
    position = {span: i for i, span in enumerate(rows.column("span").to_pylist())}
    parents = rows.column("parent").to_pylist()
    starts = rows.column("start_ps").to_pylist()
    depth = [0] * len(parents)
    order = sorted(range(len(parents)), key=lambda i: (starts[i], -rows["dur_ps"][i].as_py()))
    for i in order:
        above = position.get(parents[i])
        if above is not None and above != i and track[above] == track[i]:
            depth[i] = depth[above] + 1
    return tuple(depth)


def _number(
    values: Sequence[str], *, host_last: bool = False, order: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Distinct values, those of `order` first, and the position of every value among them."""
    rank = {value: i for i, value in enumerate(order)}
    distinct = sorted(set(values), key=lambda v: (host_last and v.startswith("host "), rank.get(v, len(order)), v))
    place = {value: i for i, value in enumerate(distinct)}
    return tuple(distinct), tuple(place[value] for value in values)
