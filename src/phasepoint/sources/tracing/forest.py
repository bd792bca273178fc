"""Spans of distributed tracing (Jaeger, OpenTelemetry) → tables. Parents are those that the spans name.

Tracks for spans of distributed tracing, which say whose children they are but not where they ran.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from sys import intern
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from phasepoint.core.arrays import Int64s
from phasepoint.core.nesting import depths
from phasepoint.core.units import PS_PER_NS
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.layers import layer_paths
from phasepoint.sources.events.names import bounds_of_kinds, collectives_of_kernels, mark_steps
from phasepoint.sources.events.rows import (
    MISSING,
    EventRows,
    PlacedEvents,
    events_of_rows,
    integer_column,
    launches_of,
    spread,
)
from phasepoint.sources.events.step_bounds import StepBounds, order_bounds
from phasepoint.sources.events.tables import NO_ID, Account, Kind, capture_of_events, text_column
from phasepoint.sources.tracing.facts import LEVEL_TAG, SpanFacts, span_facts, step_tag

MOST_LANES = 100
"""So many tracks of a place are tried for a span; where all are taken it opens one more. A choice: a hundred calls at
once are a busy service, and a file of nothing but overlapping spans must not take the square of its size."""


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
        names.append(name if not chosen else intern(f"{name} ({chosen + 1})"))
    return names


def _first_that_fits(lanes: list[list[int]], preferred: int, start: int, end: int) -> int:
    """Index of a lane whose running spans all reach at least as far; the span's end is put on it."""
    for index in chain((preferred,) if preferred < len(lanes) else (), range(min(len(lanes), MOST_LANES))):
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
    looped = depths(parent) < 0
    return np.where(looped, -1, parent), int(looped.sum())


Key = tuple[str, str]
"""Trace and span."""

_OVERLAPPING_LAYERS = 8
"""The layer that a call belongs to is looked for in this many layers that began before it."""


class TracedSpan(Struct, frozen=True, gc=False):
    """One span as its format gives it. A file has a million; nothing in them refers back, so no collection need look.

    Attributes:
        key: its id; ("", "") where it has none.
        parent: its parent's id, None at the top.
        name: its name.
        start_ns: start, Unix ns; `MISSING` where not known.
        end_ns: end, Unix ns; `MISSING` where not known.
        process: the service that recorded it.
        tags: its tags.
    """

    key: Key
    parent: Key | None
    name: str
    start_ns: int
    end_ns: int
    process: str
    tags: Mapping[str, Any]


def capture_of_spans(
    spans: list[TracedSpan], apart: Sequence[Account], request: CaptureRequest, *, problem: str | None, started_ns: int
) -> Capture:
    """Place spans, and make the tables of one window.

    Args:
        spans: the spans, in any order; taken over, and empty afterwards.
        apart: what became of the file's other events.
        request: what else is known of the window.
        problem: what was wrong with the file's text, None where nothing was.
        started_ns: the thread's CPU time when reading began.
    """
    spans.sort(key=lambda one: (one.start_ns, -one.end_ns))
    leveled = any(LEVEL_TAG in one.tags for one in spans)
    facts = [span_facts(one.name, one.tags, leveled=leveled) for one in spans]
    parent, problems = _parents(spans)
    numbered = _steps(spans, facts, parent)
    rows = _rows(spans, facts, parent, numbered)
    spans.clear()
    placed = rows.finish((0, 0), request.epoch_unix_ns)
    kinds, marks = (list(rows.kinds), {}) if numbered or leveled else mark_steps(rows.kinds)
    bounds = _bounds(placed, numbered) if numbered else bounds_of_kinds(placed, marks, request.steps)
    above = _placed_parents(placed, parent, facts)
    columns = _columns(rows, placed, kinds, facts, above)
    events = events_of_rows(
        rows,
        placed,
        kinds,
        apart,
        parent=above,
        columns=columns,
        tables={
            "launches": launches_of(rows, placed),
            "collectives": collectives_of_kernels(kinds, placed.kind),
            "metrics": _metrics(placed, facts),
        },
    )
    capture = capture_of_events(
        events,
        bounds,
        request,
        problem="; ".join(text for text in (problem, *problems, *placed.notes) if text) or None,
        cost_ps=(time.thread_time_ns() - started_ns) * PS_PER_NS,
    )
    return replace(capture, start_unix_ns=placed.start_unix_ns)


def _parents(spans: Sequence[TracedSpan]) -> tuple[Int64s, list[str]]:
    """`[n_spans]` index of each span's parent, -1 for none, and what is wrong with them."""
    number = {one.key: i for i, one in enumerate(spans) if one.key[1]}
    found = [NO_ID if one.parent is None else number.get(one.parent, NO_ID) for one in spans]
    lost = sum(one.parent is not None and at == NO_ID for one, at in zip(spans, found, strict=True))
    parent, looped = unloop(np.array(found, np.int64))
    texts = [f"{lost} spans name a parent that is not in the file"] if lost else []
    return parent, [*texts, f"{looped} spans are their own ancestors"] if looped else texts


def _steps(spans: Sequence[TracedSpan], facts: Sequence[SpanFacts], parent: Int64s) -> dict[int, int]:
    """Number of the step that a span marks: by its tags; in XSP's traces what has layers as its children is a step."""
    layered = [i for i, one in enumerate(spans) if facts[i].level == "layer" and LEVEL_TAG in one.tags]
    if layered:
        holders = sorted({int(parent[i]) for i in layered if parent[i] >= 0 and facts[parent[i]].level != "layer"})
        return {holder: step for step, holder in enumerate(holders)}
    tagged = ((i, one.tags) for i, one in enumerate(spans) if one.tags)
    numbered = {i: number for i, tags in tagged if (number := step_tag(tags)) is not None}
    names = Counter(spans[i].name for i in numbered)
    if not names or names.most_common(1)[0][1] < 2:
        return {}
    chosen = names.most_common(1)[0][0]
    return {i: number for i, number in numbered.items() if spans[i].name == chosen}


def _rows(
    spans: Sequence[TracedSpan], facts: Sequence[SpanFacts], parent: Int64s, numbered: Mapping[int, int]
) -> EventRows:
    rows = EventRows()
    kind = []
    for i, one in enumerate(facts):
        marks = i in numbered
        level, works = ("model", False) if marks else (one.level, one.works)
        kind.append(rows.kind(Kind(one.name, one.device, level, one.category, works)))
    start_ns = np.array([one.start_ns for one in spans], np.int64)
    end_ns = np.array([one.end_ns for one in spans], np.int64)
    places = [
        intern(f"{fact.device} {fact.place}" if fact.level == "kernel" else f"{one.process} {fact.place}".rstrip())
        for one, fact in zip(spans, facts, strict=True)
    ]
    tracks = [rows.track(name) for name in lay_out(places, start_ns, end_ns, parent)]
    details = {"bytes": [one.bytes for one in facts], "shared_bytes": [one.shared_bytes for one in facts]}
    for axis, letter in enumerate("xyz"):
        details[f"grid_{letter}"] = [one.grid[axis] for one in facts]
        details[f"block_{letter}"] = [one.block[axis] for one in facts]
    rows.add(
        "span",
        (start_ns, end_ns),
        np.array(kind, np.int64),
        np.array(tracks, np.int64),
        correlation=np.array([one.correlation for one in facts], np.int64),
        details={name: np.array(values, np.int64) for name, values in details.items()},
    )
    return rows


def _bounds(placed: PlacedEvents, numbered: Mapping[int, int]) -> StepBounds:
    """Bounds of the steps that spans mark, given the number of each such row."""
    marks = [(int(placed.place[row]), number) for row, number in numbered.items() if placed.place[row] >= 0]
    at = np.array([event for event, _ in marks], np.int64)
    return order_bounds(np.array([number for _, number in marks], np.int64), placed.start_ps[at], placed.end_ps[at])


def _placed_parents(placed: PlacedEvents, parent: Int64s, facts: Sequence[SpanFacts]) -> Int64s:
    """`[n_events]` parents. XSP puts every call under the prediction; the layer in which it began is its parent."""
    rows = np.flatnonzero(placed.place >= 0)
    above = np.full(len(placed.kind), NO_ID, np.int64)
    given = parent[rows]
    above[placed.place[rows]] = np.where(given >= 0, placed.place[given], NO_ID)
    layers = _events(placed, [one.level == "layer" and bool(one.label) for one in facts])
    calls = _events(placed, [one.level == "runtime" and one.correlation != MISSING for one in facts])
    at = np.searchsorted(placed.start_ps[layers], placed.start_ps[calls], side="right") - 1
    open_ = np.ones(len(calls), np.bool_)
    for _ in range(_OVERLAPPING_LAYERS):
        inside = np.flatnonzero(open_ & (at >= 0))
        inside = inside[placed.end_ps[layers[at[inside]]] > placed.start_ps[calls[inside]]]
        above[calls[inside]] = layers[at[inside]]
        open_[inside] = False
        at = at - 1
    return above


def _events(placed: PlacedEvents, wanted: Sequence[bool]) -> Int64s:
    """Events of some rows, in order."""
    at = placed.place[np.array(wanted, np.bool_)] if len(wanted) else placed.place
    return np.sort(at[at >= 0])


def _columns(
    rows: EventRows, placed: PlacedEvents, kinds: list[Kind], facts: Sequence[SpanFacts], above: Int64s
) -> dict[str, pa.Array]:
    columns = {
        "bytes": integer_column(spread(rows, placed, "bytes")),
        "shape": text_column(*_texts(placed, [one.shape for one in facts])),
    }
    layer = layer_paths(placed, kinds, above, labels=_texts(placed, [one.label or one.name for one in facts]))
    return columns if layer is None else columns | {"layer": layer}


def _texts(placed: PlacedEvents, of_row: Sequence[str]) -> tuple[Int64s, list[str]]:
    """`[n_events]` number of each event's text, -1 for "", and the texts."""
    texts = list(dict.fromkeys(text for text in of_row if text))
    number = {text: i for i, text in enumerate(texts)}
    codes = np.full(len(placed.kind), NO_ID, np.int64)
    for row, text in enumerate(of_row):
        if placed.place[row] >= 0:
            codes[placed.place[row]] = number.get(text, NO_ID)
    return codes, texts


def _metrics(placed: PlacedEvents, facts: Sequence[SpanFacts]) -> Mapping[str, Any]:
    found = [
        (int(placed.place[row]), name, value)
        for row, one in enumerate(facts)
        if placed.place[row] >= 0
        for name, value in one.metrics.items()
    ]
    found.sort(key=lambda row: row[0])
    return {
        "span": np.array([span for span, _, _ in found], np.int64),
        "name": [name for _, name, _ in found],
        "unit": [""] * len(found),
        "value": np.array([value for _, _, value in found], np.float64),
    }
