"""Events with their steps and kinds → rows of `spans`, `ops` and `breakdowns`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.intervals import IntervalSet, partition, union, unite
from phasepoint.core.nesting import Nesting
from phasepoint.core.tables import CATEGORIES, table_from_columns
from phasepoint.sources.dense import sum_by_pair
from phasepoint.sources.wire import Int64s
from phasepoint.sources.xplane_events import HAS_CORRELATION, HAS_RUN
from phasepoint.sources.xplane_gather import Events, Kind
from phasepoint.sources.xplane_lines import is_wait
from phasepoint.sources.xplane_steps import StepBounds

_BUSY = CATEGORIES[:3]
"""Categories in which a device works."""


@dataclass(frozen=True)
class Resolved:
    """Everything that is known of a capture's events.

    Attributes:
        events: the events.
        category: per kind, its category.
        layer: per kind, its module path, None where unknown.
        step: `[n_events]` index into `bounds`, -1 outside.
        bounds: the steps.
        parent: `[n_events]` index of the enclosing event on its track, -1 at the top.
        self_ps: `[n_events]` self time with the asynchronous tails.
        total_ps: `[n_events]` duration with the asynchronous tails.
        tails: `[n_tails, 2]` events that went on after they left their track: event, for how long in ps.
        window: the window's number.
        offset_ps: the profile's start from the session's epoch.
    """

    events: Events
    category: Sequence[str]
    layer: Sequence[str | None]
    step: NDArray[np.int32]
    bounds: StepBounds
    parent: Int64s
    self_ps: Int64s
    total_ps: Int64s
    tails: Int64s
    window: int
    offset_ps: int


def spans_table(resolved: Resolved) -> pa.Table:
    """Rows of `spans`, one an event.

    An op that went on asynchronously has its whole duration, on a track of its own, and the parent that launched it.
    """
    events, n = resolved.events, len(resolved.events.kind)
    kinds = events.kinds
    unlinked = (events.flags & (HAS_CORRELATION | HAS_RUN)) == 0
    return table_from_columns(
        "spans",
        {
            "window": np.full(n, resolved.window, np.int64),
            "span": np.arange(n, dtype=np.int64),
            "parent": pa.array(resolved.parent, mask=resolved.parent < 0),
            "level": _by_kind(events.kind, [k.level for k in kinds]),
            "category": _by_kind(events.kind, resolved.category),
            "name": _by_kind(events.kind, [k.name for k in kinds]),
            "start_ps": events.start_ps + resolved.offset_ps if resolved.offset_ps else events.start_ps,
            "dur_ps": resolved.total_ps,
            "self_ps": resolved.self_ps,
            "device": _by_kind(events.kind, [k.device for k in kinds]),
            "track": _track_column(resolved),
            "step": _step_column(resolved, resolved.step),
            "program": _program_column(events.kind, kinds),
            "layer": _by_kind(events.kind, resolved.layer),
            "correlation": pa.array(events.link, mask=unlinked[events.kind]),
        },
    )


def ops_table(resolved: Resolved) -> pa.Table:
    """Rows of `ops`: events of one step, device, program and op added up; marks of steps and programs have no row."""
    events, kinds = resolved.events, resolved.events.kinds
    group = _rank_groups(kinds)[events.kind] if kinds else np.empty(0, np.int32)
    sums = sum_by_pair(resolved.step, group, resolved.total_ps, resolved.self_ps)
    kind, step = events.kind[sums.sample], resolved.step[sums.sample]
    return table_from_columns(
        "ops",
        {
            "window": np.full(len(kind), resolved.window, np.int64),
            "step": _step_column(resolved, step),
            "device": _by_kind(kind, [k.device for k in kinds]),
            "program": _program_column(kind, kinds),
            "op": _by_kind(kind, [k.op for k in kinds]),
            "level": _by_kind(kind, [k.level for k in kinds]),
            "category": _by_kind(kind, resolved.category),
            "layer": _by_kind(kind, resolved.layer),
            "count": sums.count,
            "total_ps": sums.first_sum,
            "self_ps": sums.second_sum,
        },
    )


def breakdowns_table(resolved: Resolved, nesting: Nesting) -> pa.Table:
    """Rows of `breakdowns`: each step's wall time, split by priority, for every device that worked in the capture."""
    bounds = resolved.bounds
    layers = _device_layers(resolved, nesting)
    host = _host_activity(resolved, nesting)
    devices = sorted(layers)
    parts = [partition([*layers[device], host], bounds.start_ps, bounds.end_ps) for device in devices]
    wall_ps = np.stack(parts, axis=1) if parts else np.empty((len(bounds.step), 0, len(CATEGORIES)), np.int64)
    device = np.arange(len(devices), dtype=np.int32)[:, None]
    category = np.arange(len(CATEGORIES), dtype=np.int32)
    return table_from_columns(
        "breakdowns",
        {
            "window": np.full(wall_ps.size, resolved.window, np.int64),
            "step": np.broadcast_to(bounds.step[:, None, None], wall_ps.shape).ravel(),
            "device": _texts(np.broadcast_to(device, wall_ps.shape).ravel(), devices),
            "category": _texts(np.broadcast_to(category, wall_ps.shape).ravel(), CATEGORIES),
            "wall_ps": wall_ps.ravel(),
        },
    )


def steps_table(resolved: Resolved) -> pa.Table:
    """Rows of `steps` with the bounds that were used."""
    bounds = resolved.bounds
    return table_from_columns(
        "steps",
        {
            "step": bounds.step,
            "start_ps": bounds.start_ps + resolved.offset_ps,
            "dur_ps": bounds.end_ps - bounds.start_ps,
        },
    )


def _texts(index: NDArray[np.int32], texts: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(texts, pa.string()))


def _rank_groups(kinds: Sequence[Kind]) -> NDArray[np.int32]:
    """`[n_kinds]` place of each kind's device, program, op and level among all, sorted; -1 for marks."""
    keys = [(k.device, k.program is not None, k.program or 0, k.op, k.level) for k in kinds]
    rank = {key: i for i, key in enumerate(sorted(set(keys)))}
    return np.array([-1 if k.level == "model" else rank[key] for k, key in zip(kinds, keys, strict=True)], np.int32)


def _by_kind(kind: NDArray[np.int32], texts: Sequence[str | None]) -> pa.DictionaryArray:
    """A dictionary column whose value depends on the kind alone."""
    distinct = {text: i for i, text in enumerate(dict.fromkeys(t for t in texts if t is not None))}
    index = np.array([distinct[text] if text is not None else -1 for text in texts], np.int32)
    values = index[kind] if len(index) else np.empty(0, np.int32)
    mask = values < 0 if len(index) and index.min() < 0 else None
    return pa.DictionaryArray.from_arrays(pa.array(values, mask=mask), pa.array(list(distinct), pa.string()))


def _program_column(kind: NDArray[np.int32], kinds: Sequence[Kind]) -> pa.Array:
    known = np.array([k.program is not None for k in kinds], np.bool_)
    program = np.array([k.program or 0 for k in kinds], np.int64)
    return pa.array(program[kind], mask=~known[kind])


def _track_column(resolved: Resolved) -> pa.DictionaryArray:
    events = resolved.events
    names = [*events.tracks, *(f"{name} (async)" for name in events.tracks)]
    track = events.track()
    if len(resolved.tails):
        track[resolved.tails[:, 0]] += np.int32(len(events.tracks))
    return pa.DictionaryArray.from_arrays(pa.array(track), pa.array(names, pa.string()))


def _step_column(resolved: Resolved, step: NDArray[np.int32]) -> pa.Array:
    return pa.array(np.append(resolved.bounds.step, 0)[step], mask=step < 0)


def _device_layers(resolved: Resolved, nesting: Nesting) -> dict[str, list[IntervalSet]]:
    """For each device the time in which it computes, communicates and moves data, by its innermost ops and kernels."""
    events = resolved.events
    devices = sorted({k.device for k in events.kinds if k.level in ("op", "kernel")})
    codes = [_layer_code(k, c, devices) for k, c in zip(events.kinds, resolved.category, strict=True)]
    code = np.array(codes, np.int32)
    segment_code = code.astype(np.int16)[events.kind][nesting.segment_span]
    row, tail_ps = resolved.tails.T
    tail_code = code[events.kind[row]]
    ends = events.start_ps[row] + resolved.total_ps[row]
    sets = []
    for i in range(3 * len(devices)):
        on, late = segment_code == i, tail_code == i
        track_time = union(nesting.segment_start_ps[on], nesting.segment_end_ps[on])
        tails = union(ends[late] - tail_ps[late], ends[late])
        sets.append(unite((track_time, tails)))
    return {device: sets[3 * i : 3 * i + 3] for i, device in enumerate(devices)}


def _layer_code(kind: Kind, category: str, devices: Sequence[str]) -> int:
    if kind.level not in ("op", "kernel") or category not in _BUSY:
        return -1
    return 3 * devices.index(kind.device) + _BUSY.index(category)


def _host_activity(resolved: Resolved, nesting: Nesting) -> IntervalSet:
    """Time in which some thread of the host works; marks and waits are no work."""
    events = resolved.events
    works = [k.device == "host" and k.level == "runtime" and not is_wait(k.name) for k in events.kinds]
    on = np.array(works, np.bool_)[events.kind[nesting.segment_span]]
    return union(nesting.segment_start_ps[on], nesting.segment_end_ps[on])
