"""Events of a capture, whatever its format is → rows of its tables.

A reader of a format makes `TraceEvents`; parents, self times, steps, ops, breakdowns and accounts are made here. On a
machine without an accelerator the framework's operators are the device's work (`cpu:0`); with one, they are the host's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import number_keys, sum_by
from phasepoint.core.nesting import Nesting, nest_spans
from phasepoint.core.tables import CATEGORIES, STAGES, TABLES, table_from_columns
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.stages import (
    StagedTime,
    codes_of_kinds,
    give_to_forward,
    staged,
    stages_of_events,
    stages_table,
)
from phasepoint.sources.events.step_bounds import StepBounds

NO_ID = -1  # in the place of an event, a launch or a correlation id

ROW_TABLES = ("launches", "metrics", "collectives", "allocations", "counters")
"""Tables that a reader fills with rows of its own."""

LEVEL_AND_CATEGORY = {"level": "level", "category": "category"}
"""Columns that are named as their attributes of `Kind`."""


class Kind(NamedTuple):
    """What all events of one kind share.

    Attributes:
        name: name as the profiler gave it.
        device: `cpu:0`, `gpu:0`, or `host`.
        level: model, layer, op, kernel or runtime.
        category: compute, communication, data_movement or host.
        works: whether its time is work; a step's mark and a wait are none.
    """

    name: str
    device: str
    level: str
    category: str
    works: bool


class Account(NamedTuple):
    """What became of some of a file's events; each event is counted in one account.

    Attributes:
        fate: `kept` (became a span), `merged` (into a row of another table, or into another span), `skipped`.
        what: the events' kind as the format calls it.
        reason: where they went, or why they were left out; empty for spans.
        events: how many.
    """

    fate: str
    what: str
    reason: str
    events: int


@dataclass(frozen=True, kw_only=True)
class TraceEvents:
    """Every event that becomes a span, by start, of equal starts the longest first. Arrays are `[n_events]`.

    Attributes:
        kind: index into `kinds`.
        track: index into `tracks`.
        start_ps: start, from the epoch.
        end_ps: end, from the epoch; none before its start.
        correlation: id shared by a launch and its execution, `NO_ID` where there is none.
        launch: index of the host's event that launched it, `NO_ID` where there is none.
        parent: index of the event that encloses it by the format's own ids; `NO_ID` where time on the track decides.
        kinds: the kinds.
        tracks: name of each track: a thread, or a stream of a device.
        found: events in the file; the accounts add up to it.
        ignored: events that are no stretch of work: merged into other rows, or skipped by design.
        dropped: events that could not be read or placed.
        orphan: executions on a device without a launch in the file.
        accounts: what became of the file's events.
        columns: more columns of `spans`, by name: layer, direction, shape, bytes, program.
        tables: rows of `ROW_TABLES` by table, as columns; `span` is an index of an event, `window` is filled in here.
    """

    kind: Int64s
    track: Int64s
    start_ps: Int64s
    end_ps: Int64s
    correlation: Int64s
    launch: Int64s
    parent: Int64s
    kinds: list[Kind]
    tracks: list[str]
    found: int
    ignored: int
    dropped: int
    orphan: NDArray[np.bool_]
    accounts: Sequence[Account] = ()
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def start_order(start_ps: Int64s, end_ps: Int64s) -> Int64s:
    """`[n]` the order in which `TraceEvents` wants events: by start, the longest first; equal ones stay as they are."""
    return np.lexsort((-end_ps, start_ps)).astype(np.int64)


def capture_of_events(
    events: TraceEvents, bounds: StepBounds, request: CaptureRequest, *, problem: str | None = None, cost_ps: int = 0
) -> Capture:
    """Turn events into the tables of one window.

    Args:
        events: the events, sorted as `start_order` has it.
        bounds: the steps.
        request: what the window is, and whether rows of single spans are wanted.
        problem: what was wrong with the file, None where nothing was.
        cost_ps: CPU time of reading, for the conversion's row.

    Returns:
        Tables as declared; `programs` and `instructions` are empty.

    Raises:
        ValueError: the events are not sorted.
    """
    if np.any(events.start_ps[1:] < events.start_ps[:-1]):
        raise ValueError("events are not sorted by their start")
    window = request.window
    nesting = nest_spans(events.track, events.start_ps, events.end_ps)
    step = step_of_events(events, bounds)
    spans = _spans(events, nesting, bounds, step, window) if request.keep_spans else TABLES["spans"].empty
    devices = devices_of(events.kinds)
    wall_ps = _staged_walls(events, nesting, bounds, devices)
    return Capture(
        spans=spans,
        ops=_ops(events, nesting, bounds, step, window),
        breakdowns=breakdowns_table(devices, wall_ps.sum(axis=3), bounds.step, window),
        stages=stages_table(devices, wall_ps, bounds.step, window),
        programs=TABLES["programs"].empty,
        instructions=TABLES["instructions"].empty,
        conversion=_conversion(events, nesting, window, problem=problem, cost_ps=cost_ps),
        steps=steps_table(bounds),
        is_whole=bounds.is_whole,
        accounts=accounts_table(events.accounts, window),
        **{name: _rows(name, events, request) for name in ROW_TABLES},
    )


def step_of_events(events: TraceEvents, bounds: StepBounds) -> Int64s:
    """Index of each event's step: the one in which it began; for work of a device that in which it was launched.

    Work whose launch is not in the capture was launched before it, so in no captured step; where no step is marked, the
    whole capture is one, with all its work.
    """
    cause_ps = np.where(events.launch == NO_ID, events.start_ps, events.start_ps[events.launch])
    return np.where(events.orphan & (not bounds.is_whole), -1, bounds.index_at(cause_ps))


def steps_table(bounds: StepBounds) -> pa.Table:
    """The steps as rows of `steps`."""
    return table_from_columns(
        "steps", {"step": bounds.step, "start_ps": bounds.start_ps, "dur_ps": bounds.end_ps - bounds.start_ps}
    )


def accounts_table(accounts: Sequence[Account], window: int) -> pa.Table:
    """Accounts as rows of `accounts`."""
    columns = {name: [getattr(one, name) for one in accounts] for name in Account._fields}
    return table_from_columns("accounts", {"window": [window] * len(accounts), **columns})


def _conversion(events: TraceEvents, nesting: Nesting, window: int, *, problem: str | None, cost_ps: int) -> pa.Table:
    return table_from_columns(
        "conversions",
        {
            "window": [window],
            "events": [events.found],
            "spans": [len(events.kind)],
            "ignored_events": [events.ignored],
            "dropped_events": [events.dropped],
            "misnested_events": [nesting.misnested],
            "orphan_events": [int(events.orphan.sum())],
            "convert_cost_ps": [cost_ps],
            "problem": [problem],
        },
    )


def _rows(name: str, events: TraceEvents, request: CaptureRequest) -> pa.Table:
    columns = events.tables.get(name)
    of_spans = any(column.name == "span" and not column.nullable for column in TABLES[name].columns)
    if not columns or (of_spans and not request.keep_spans):
        return TABLES[name].empty
    n_rows = max(len(values) for values in columns.values())
    numbered = {"window": np.full(n_rows, request.window, np.int64)} if name != "counters" else {}
    return table_from_columns(name, {**numbered, **columns})


def _spans(events: TraceEvents, nesting: Nesting, bounds: StepBounds, step: Int64s, window: int) -> pa.Table:
    n_spans = len(events.kind)
    parent = np.where(events.parent == NO_ID, nesting.parent, events.parent)
    return table_from_columns(
        "spans",
        {
            "window": np.full(n_spans, window, np.int64),
            "span": np.arange(n_spans, dtype=np.int64),
            "parent": nullable(parent, parent < 0),
            **kind_columns(events.kinds, events.kind, {"name": "name", "device": "device", **LEVEL_AND_CATEGORY}),
            "start_ps": events.start_ps,
            "dur_ps": events.end_ps - events.start_ps,
            "self_ps": nesting.self_ps,
            "track": text_column(events.track, events.tracks),
            "step": step_numbers(bounds, step),
            "correlation": nullable(events.correlation, events.correlation == NO_ID),
            "launch": nullable(events.launch, events.launch == NO_ID),
            **events.columns,
        },
    )


def _ops(events: TraceEvents, nesting: Nesting, bounds: StepBounds, step: Int64s, window: int) -> pa.Table:
    """Sums per step and op; marks of steps have no row."""
    marks = np.array([kind.level == "model" for kind in events.kinds], np.bool_)
    rows = np.flatnonzero(~marks[events.kind]) if len(marks) else np.empty(0, np.int64)
    layer = _codes(events.columns.get("layer"), len(events.kind))
    numbers, first = number_keys(step[rows], events.kind[rows], layer[rows])
    sample = rows[first]
    layers = {"layer": events.columns["layer"].take(pa.array(sample))} if "layer" in events.columns else {}
    return table_from_columns(
        "ops",
        {
            "window": np.full(len(first), window, np.int64),
            "step": step_numbers(bounds, step[sample]),
            **kind_columns(events.kinds, events.kind[sample], {"device": "device", "op": "name", **LEVEL_AND_CATEGORY}),
            **layers,
            "count": np.bincount(numbers, minlength=len(first)).astype(np.int64),
            "total_ps": sum_by(numbers, len(first), (events.end_ps - events.start_ps)[rows]),
            "self_ps": sum_by(numbers, len(first), nesting.self_ps[rows]),
        },
    )


def _codes(texts: pa.Array | None, n_rows: int) -> Int64s:
    """A number for each distinct text, -1 for null."""
    if texts is None:
        return np.full(n_rows, -1, np.int64)
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    return np.asarray(coded.indices.fill_null(-1), np.int64)


def _texts(texts: pa.Array) -> list[str]:
    """The texts by the numbers of `_codes`."""
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    return list(coded.dictionary.to_pylist())


def devices_of(kinds: Sequence[Kind]) -> list[str]:
    """The devices on which anything ran; the CPU where nothing but the host is known."""
    return sorted({kind.device for kind in kinds} - {"host"}) or ["cpu:0"]


def _staged_walls(events: TraceEvents, nesting: Nesting, bounds: StepBounds, devices: Sequence[str]) -> Int64s:
    """`[n_devices, n_steps, n_categories, N_STAGES]` every instant to one category and stage."""
    number = {stage: i for i, stage in enumerate(STAGES)}
    names = events.columns.get("direction")
    own = _codes(names, len(events.kind))
    if names is not None:
        own = np.array([*(number.get(text, -1) for text in _texts(names)), -1], np.int64)[own]
    parent = np.where(events.parent == NO_ID, nesting.parent, events.parent)
    stage = stages_of_events(own, parent, events.launch)[nesting.segment_span]
    kind, stretches = events.kind[nesting.segment_span], (nesting.segment_start_ps, nesting.segment_end_ps)
    walls = []
    for device in devices:
        time = StagedTime(bounds.start_ps, bounds.end_ps)
        time.add((staged(codes_of_kinds(events.kinds, device)[kind], stage), *stretches))
        walls.append(time.wall_ps)
    wall_ps = np.stack(walls)
    if (own >= 0).any():
        give_to_forward(wall_ps)
    return wall_ps


def breakdowns_table(devices: Sequence[str], walls: Int64s, step: Int64s, window: int) -> pa.Table:
    """Rows of `breakdowns` from the steps' time by device and category, `[n_devices, n_steps, n_categories]` ps."""
    n_devices, n_steps, n_categories = walls.shape
    n_rows = n_devices * n_steps * n_categories
    by_device, by_category = np.repeat(np.arange(n_devices), n_steps * n_categories), np.arange(n_rows) % n_categories
    return table_from_columns(
        "breakdowns",
        {
            "window": np.full(n_rows, window, np.int64),
            "step": np.tile(np.repeat(step, n_categories), n_devices).astype(np.int64),
            "device": text_column(by_device, devices),
            "category": text_column(by_category, CATEGORIES),
            "wall_ps": walls.reshape(-1),
        },
    )


def kind_columns(kinds: Sequence[Kind], kind: NDArray[Any], names: Mapping[str, str]) -> dict[str, pa.Array]:
    """Columns by name from attributes of the events' kinds.

    Args:
        kinds: the kinds.
        kind: `[n]` index into `kinds`.
        names: attribute of the kinds for each column.
    """
    return {column: text_column(kind, [getattr(one, name) for one in kinds]) for column, name in names.items()}


def text_column(indices: NDArray[Any], values: Sequence[str | None]) -> pa.Array:
    """Texts by index as a dictionary array of those that occur, each once; null where the text is None or the index -1.

    Args:
        indices: `[n]` index into `values`.
        values: the texts.
    """
    used = np.zeros(len(values) + 1, np.bool_)  # the last place is where an index of -1 ends up
    used[indices] = True
    codes = np.full(len(values) + 1, -1, np.int32)
    distinct: dict[str, int] = {}
    for i in np.flatnonzero(used[:-1]).tolist():
        value = values[i]
        if value is not None:
            codes[i] = distinct.setdefault(value, len(distinct))
    found = codes[indices]
    mask = found < 0 if (codes[used] < 0).any() else None
    return pa.DictionaryArray.from_arrays(pa.array(found, pa.int32(), mask=mask), pa.array(list(distinct), pa.string()))


def step_numbers(bounds: StepBounds, step: NDArray[Any]) -> pa.Array:
    """Numbers of the steps by index, null where it is below 0."""
    numbers = bounds.step[step] if len(bounds.step) else step
    return nullable(numbers, step < 0)


def nullable(values: Int64s, missing: NDArray[np.bool_]) -> pa.Array:
    """Integers, null where they are missing."""
    return pa.array(values, pa.int64(), mask=missing)
