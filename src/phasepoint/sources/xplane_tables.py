"""Events with their steps and kinds → rows of `spans`, `ops` and `breakdowns`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.intervals import IntervalSet, partition, union
from phasepoint.core.tables import CATEGORIES, table_from_columns
from phasepoint.sources.dense import pair_room, sum_by_pair
from phasepoint.sources.scratch import Scratch
from phasepoint.sources.xplane_described import Described, Resolved
from phasepoint.sources.xplane_events import HAS_CORRELATION, HAS_RUN
from phasepoint.sources.xplane_gather import Kind
from phasepoint.sources.xplane_nesting import Segments, working_devices

_CHUNK_ROWS = 1 << 16


def spans_table(resolved: Resolved, scratch: Scratch) -> pa.Table:
    """Rows of `spans`, one an event.

    An op that went on asynchronously has its whole duration, on a track of its own, and the parent that launched it.

    Args:
        resolved: the events.
        scratch: memory for the columns, which the table keeps.
    """
    events, n = resolved.events, len(resolved.events.kind)
    kinds = events.kinds
    linked = (events.flags & (HAS_CORRELATION | HAS_RUN)) != 0
    step, program = (scratch.take(n, np.int64) for _ in range(2))
    of_kind = {
        "level": [k.level for k in kinds],
        "category": resolved.category,
        "name": [k.name for k in kinds],
        "device": [k.device for k in kinds],
        "layer": resolved.layer,
        "direction": resolved.direction,
        "op": [k.op if k.op != k.name else None for k in kinds],
    }
    by_kind = {
        column: _by_kind(events.kind, texts, scratch.take(n, np.int32))
        for column, texts in of_kind.items()
        if not texts or any(text is not None for text in texts)
    }
    return table_from_columns(
        "spans",
        {
            **by_kind,
            "window": _constant(resolved.window, n),
            "span": np.arange(n, dtype=np.int64),
            "parent": _nullable(resolved.parent, resolved.parent >= 0),
            "start_ps": events.start_ps + resolved.offset_ps if resolved.offset_ps else events.start_ps,
            "dur_ps": resolved.total_ps,
            "self_ps": resolved.self_ps,
            "track": _dictionary(resolved.track, [*events.tracks, *(f"{name} (async)" for name in events.tracks)]),
            "step": _step_column(resolved, resolved.step, step),
            "program": _program_column(events.kind, kinds, program),
            "correlation": _nullable(events.link, linked[events.kind]),
            **({} if resolved.launch is None else {"launch": _nullable(resolved.launch, resolved.launch >= 0)}),
            **({} if resolved.bytes is None else {"bytes": resolved.bytes}),
        },
    )


def ops_table(resolved: Resolved, scratch: Scratch) -> pa.Table:
    """Rows of `ops`: events of one step, device, program and op added up; marks of steps and programs have no row.

    Args:
        resolved: the events.
        scratch: memory for the columns, which the table keeps: a thread's own allocations are slow.
    """
    groups, values = _rank_groups(resolved.events.kinds), (resolved.total_ps, resolved.self_ps)
    room = pair_room(len(resolved.step), scratch.take)
    sums = sum_by_pair(resolved.step, resolved.events.kind, groups, values, room=room)
    kinds, n = resolved.events.kinds, len(sums.sample)
    numbers, indices = ([scratch.take(n, kind) for _ in range(k)] for kind, k in ((np.int64, 2), (np.int32, 6)))
    kind = np.take(resolved.events.kind, sums.sample, out=indices[5], mode="clip")
    return table_from_columns(
        "ops",
        {
            "window": _constant(resolved.window, n),
            "step": _step_column(resolved, resolved.step[sums.sample], numbers[0]),
            "device": _by_kind(kind, [k.device for k in kinds], indices[0]),
            "program": _program_column(kind, kinds, numbers[1]),
            "op": _by_kind(kind, [k.op for k in kinds], indices[1]),
            "level": _by_kind(kind, [k.level for k in kinds], indices[2]),
            "category": _by_kind(kind, resolved.category, indices[3]),
            "layer": _by_kind(kind, resolved.layer, indices[4]),
            "count": sums.count,
            "total_ps": sums.first_sum,
            "self_ps": sums.second_sum,
        },
    )


def breakdowns_table(described: Described, segments: Segments) -> pa.Table:
    """Rows of `breakdowns`: each step's wall time, split by priority, for every device that worked in the capture.

    Args:
        described: the events.
        segments: stretches of time, each with its label, from `nest_events`.
    """
    bounds = described.bounds
    sets = _busy_sets(described, segments)
    devices = working_devices(described.events.kinds)
    layers = [[*sets[3 * i : 3 * i + 3], sets[-1]] for i in range(len(devices))]
    parts = [partition(of_device, bounds.start_ps, bounds.end_ps) for of_device in layers]
    wall_ps = np.stack(parts, axis=1) if parts else np.empty((len(bounds.step), 0, len(CATEGORIES)), np.int64)
    device = np.arange(len(devices), dtype=np.int32)[:, None]
    category = np.arange(len(CATEGORIES), dtype=np.int32)
    return table_from_columns(
        "breakdowns",
        {
            "window": np.full(wall_ps.size, described.window, np.int64),
            "step": np.broadcast_to(bounds.step[:, None, None], wall_ps.shape).ravel(),
            "device": _dictionary(np.broadcast_to(device, wall_ps.shape).ravel(), devices),
            "category": _dictionary(np.broadcast_to(category, wall_ps.shape).ravel(), CATEGORIES),
            "wall_ps": wall_ps.ravel(),
        },
    )


def steps_table(described: Described) -> pa.Table:
    """Rows of `steps` with the bounds that were used."""
    bounds = described.bounds
    return table_from_columns(
        "steps",
        {
            "step": bounds.step,
            "start_ps": bounds.start_ps + described.offset_ps,
            "dur_ps": bounds.end_ps - bounds.start_ps,
        },
    )


def _constant(value: int, n: int) -> pa.ChunkedArray:
    """A column of one value, in chunks that share their memory."""
    chunk = pa.array(np.full(min(n, _CHUNK_ROWS), value, np.int64))
    sizes = [_CHUNK_ROWS] * (n // _CHUNK_ROWS) + [n % _CHUNK_ROWS]
    return pa.chunked_array([chunk.slice(0, size) for size in sizes], pa.int64())


def _nullable(values: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    """A column that is null where nothing is known, around the values' own memory."""
    bits = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)])


def _dictionary(index: NDArray[np.int32], texts: Sequence[str], known: NDArray[np.bool_] | None = None) -> Any:
    """A dictionary column; the indices are known to be in bounds."""
    indices = pa.array(index) if known is None else _nullable(index, known)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()), safe=False)


def _rank_groups(kinds: Sequence[Kind]) -> NDArray[np.int32]:
    """`[n_kinds]` place of each kind's device, program, op and level among all, sorted; -1 for marks."""
    keys = [(k.device, k.program is not None, k.program or 0, k.op, k.level) for k in kinds]
    rank = {key: i for i, key in enumerate(sorted(set(keys)))}
    return np.array([-1 if k.level == "model" else rank[key] for k, key in zip(kinds, keys, strict=True)], np.int32)


def _by_kind(kind: NDArray[np.int32], texts: Sequence[str | None], into: NDArray[np.int32]) -> pa.DictionaryArray:
    """A dictionary column whose value depends on the kind alone; its indices are written `into` memory it keeps."""
    distinct = {text: i for i, text in enumerate(dict.fromkeys(t for t in texts if t is not None))}
    index = np.array([distinct[text] if text is not None else -1 for text in texts], np.int32)
    values = _take(index, kind, into)
    return _dictionary(values, list(distinct), values >= 0 if None in texts else None)


def _take(values: NDArray[Any], index: NDArray[np.int32], into: NDArray[Any]) -> NDArray[Any]:
    """`values[index]` without new memory; -1 takes the last."""
    return values.take(index, out=into, mode="wrap") if len(values) else into


def _program_column(kind: NDArray[np.int32], kinds: Sequence[Kind], into: Int64s) -> pa.Array:
    known = np.array([k.program is not None for k in kinds], np.bool_)
    program = np.array([k.program or 0 for k in kinds], np.int64)
    return _nullable(_take(program, kind, into), known[kind])


def _step_column(resolved: Resolved, step: NDArray[np.int32], into: Int64s) -> pa.Array:
    return _nullable(_take(np.append(resolved.bounds.step, 0), step, into), step >= 0)


def _busy_sets(described: Described, segments: Segments) -> list[IntervalSet]:
    """The time of each label: three for each device, then the host's."""
    label, start_ps, end_ps = segments
    sets, chosen = [], np.empty(len(label), np.bool_)
    for i in range(3 * len(working_devices(described.events.kinds)) + 1):
        sets.append(union(start_ps, end_ps, where=np.equal(label, i, out=chosen)))
    return sets
