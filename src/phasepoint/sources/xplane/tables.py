"""Events with their steps and kinds → rows of `spans`, `ops`, `breakdowns` and `stages`.

Which event encloses which, and the busy time that a step's breakdown is made of.

What became of an XPlane's events, and what its planes say of devices and of single operations.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Bytes, Int64s
from phasepoint.core.dense import pair_room, sum_by_pair
from phasepoint.core.intervals import subtract, union
from phasepoint.core.nesting import Nesting, nest_spans
from phasepoint.core.tables import CATEGORIES, STAGES, table_from_columns
from phasepoint.sources.events.names import collectives_of_kernels
from phasepoint.sources.events.stages import (
    HOST_CODE,
    MARK_CODE,
    N_STAGES,
    StagedTime,
    give_to_forward,
    stage_of_copy,
    stages_table,
)
from phasepoint.sources.events.tables import Account, Kind, text_column
from phasepoint.sources.xplane.decode import Scratch
from phasepoint.sources.xplane.events import HAS_CORRELATION, HAS_RUN
from phasepoint.sources.xplane.gather import Described, Events, Resolved, XPlaneKind
from phasepoint.sources.xplane.lines import is_host, is_wait, line_levels, why_left_out
from phasepoint.sources.xplane.planes import Plane
from phasepoint.sources.xplane.wire import read_text

_DEVICE_NAMES = ("device_type_string", "gpu_device_name", "device_vendor")
_COSTS = {"flops": "flop", "model_flops": "flop", "bytes_accessed": "bytes"}
"""Stats of operations that are costs, and their units."""

_DOUBLE, _UNSIGNED, _SIGNED = 2, 3, 4


def account_for(events: Events, planes: Sequence[Plane]) -> list[Account]:
    """What became of the events of every plane; they add up to `events.found`.

    Args:
        events: the events.
        planes: their planes.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    track = 0
    for plane, (ignored, dropped) in zip(planes, events.apart, strict=True):
        left_out = 0
        for i, (line, level) in enumerate(zip(plane.lines, line_levels(plane), strict=True)):
            kept = int(events.first[track + i + 1] - events.first[track + i])
            counts["kept", _what(plane, line.name), ""] += kept
            if level is None:
                counts["skipped", _what(plane, line.name), why_left_out(plane, line.name)] += line.events
                left_out += line.events
        track += len(plane.lines)
        # The last event of a damaged line is counted as dropped, whatever its line is.
        counts["skipped", "bookkeeping", "says who launched what, and when it completed"] += max(ignored - left_out, 0)
        counts["skipped", f"plane {plane.name}", "could not be read or placed"] += dropped + min(ignored - left_out, 0)
    return [Account(*key, rows) for key, rows in sorted(counts.items()) if rows]


def _what(plane: Plane, line: str) -> str:
    if is_host(plane):
        return "host thread"
    if plane.device() is None:
        return f"plane {plane.name}"
    return "stream" if line.startswith("Stream") else f"line {line}"


def describe_devices(data: Bytes, planes: Sequence[Plane]) -> tuple[str, ...]:
    """`gpu:0 NVIDIA H100`, … of the planes of devices that hold events."""
    found = []
    for plane in planes:
        device = plane.device()
        if device is not None and any(line.events for line in plane.lines):
            names = (_text_of(data, plane, name) for name in _DEVICE_NAMES)
            found.append(f"{device} {next((name for name in names if name), '')}".rstrip())
    return tuple(found)


def _text_of(data: Bytes, plane: Plane, stat: str) -> str:
    rows = np.flatnonzero(np.isin(plane.stats.stat, plane.stat_ids(stat)) & np.isin(plane.stats.kind, (5, 7)))
    if not len(rows):
        return ""
    value, length = int(plane.stats.value[rows[0]]), int(plane.stats.length[rows[0]])
    inline = read_text(data, (value, value + length))
    return plane.stat_name.get(value, "") if plane.stats.kind[rows[0]] == 7 else inline


def tables_of_spans(described: Described, launches: Mapping[str, Any], planes: Sequence[Plane]) -> dict[str, pa.Table]:
    """Rows of `launches`, `collectives` and `metrics`, where there are any.

    Args:
        described: the events.
        launches: columns of `launches`.
        planes: the planes.
    """
    kinds = [Kind(one.name, one.device, one.level, "", True) for one in described.events.kinds]
    found = {
        "launches": launches,
        "collectives": collectives_of_kernels(kinds, described.events.kind),
        "metrics": _costs(planes),
    }
    rows = {name: columns for name, columns in found.items() if columns and len(next(iter(columns.values())))}
    return {
        name: table_from_columns(
            name, {"window": np.full(len(next(iter(columns.values()))), described.window, np.int64), **columns}
        )
        for name, columns in rows.items()
    }


def _costs(planes: Sequence[Plane]) -> Mapping[str, Any]:
    """Flop and bytes of one execution of an operation, which the profiler gives once for all of them (TPU)."""
    found: list[tuple[str, float, str]] = []
    for plane in planes:
        names = {key: name for name in _COSTS for key in plane.stat_ids(name)}
        stats = plane.meta_stats
        if plane.device() is None or not names:
            continue
        wanted = np.isin(stats.stat, list(names)) & np.isin(stats.kind, (_DOUBLE, _UNSIGNED, _SIGNED))
        for i in np.flatnonzero(wanted):
            bits = stats.value[i]
            value = float(bits.view(np.float64)) if stats.kind[i] == _DOUBLE else float(bits)
            owner = int(stats.owner[i])
            op = plane.meta_display[owner] or plane.meta_name[owner].partition(" = ")[0].removeprefix("%")
            found.append((names[int(stats.stat[i])], value, f"{plane.device()} {op}"))
    names_of = list(_COSTS)
    codes = np.array([names_of.index(name) for name, _, _ in found], np.int64)
    return {
        "name": text_column(codes, names_of),
        "unit": text_column(codes, list(_COSTS.values())),
        "value": np.array([value for _, value, _ in found], np.float64),
        "of": [of for _, _, of in found],
    }


_BUSY = CATEGORIES[:3]
"""Categories in which a device works."""

Segments = tuple[NDArray[np.int32], Int64s, Int64s]
"""Labels, starts and ends of stretches of time."""


def nest_events(described: Described, scratch: Scratch) -> tuple[NDArray[np.int32], Nesting, Segments]:
    """Each event's track, how the events nest, and labelled busy time: on the tracks, and asynchronously after.

    Args:
        described: the events.
        scratch: memory for what is put together here, the stretches among it.
    """
    events, n = described.events, len(described.events.kind)
    label = _segment_labels(described)
    track = np.empty(n, np.int32)
    for i, (begin, end) in enumerate(pairwise(events.first.tolist())):
        track[begin:end] = i
    end_ps = np.add(events.start_ps, events.dur_ps, out=scratch.take(n, np.int64))
    runs_nothing = np.array([kind.level not in ("op", "kernel") for kind in events.kinds], np.bool_)
    row, tail_ps = described.tails.T
    size = 2 * n + len(row)
    room = scratch.take(size, np.int32), scratch.take(size, np.int64), scratch.take(size, np.int64)
    nesting = nest_spans(
        track,
        events.start_ps,
        end_ps,
        subordinate=_of_kind(runs_nothing, events.kind, scratch),
        label=_of_kind(label, events.kind, scratch),
        room=room,
    )
    begin, order = len(nesting.segment_span), np.argsort(described.tail_start_ps, kind="stable")
    start_ps = described.tail_start_ps[order]
    tails = label[events.kind[row[order]]], start_ps, start_ps + tail_ps[order]
    stop = begin + len(row)
    for array, values in zip(room, tails, strict=True):
        array[begin:stop] = values
    return track, nesting, (room[0][:stop], room[1][:stop], room[2][:stop])


def _of_kind(values: NDArray[Any], kind: NDArray[np.int32], scratch: Scratch) -> NDArray[Any]:
    into = scratch.take(len(kind), values.dtype)
    return values.take(kind, out=into, mode="clip") if len(kind) else into


def working_devices(kinds: Sequence[XPlaneKind]) -> list[str]:
    """The devices on which ops or kernels ran, sorted: labels follow a device's place."""
    return sorted({k.device for k in kinds if k.level in ("op", "kernel")} - {"host"})


def _segment_labels(described: Described) -> NDArray[np.int16]:
    """`[n_kinds]` what a kind's own time is, -1 for none.

    For each device `HOST_CODE` codes of category and stage (its ops and kernels), then the host's work; marks and waits
    are no work.
    """
    kinds = described.events.kinds
    devices = working_devices(kinds)
    labels = np.full(len(kinds), -1, np.int16)
    for i, (kind, one, direction) in enumerate(zip(kinds, described.category, described.direction, strict=True)):
        if kind.level in ("op", "kernel") and kind.device != "host" and one in _BUSY:
            copies = stage_of_copy(kind.name) if one == "data_movement" else N_STAGES - 1
            stage = STAGES.index(direction) if direction in STAGES and copies == N_STAGES - 1 else copies
            labels[i] = HOST_CODE * devices.index(kind.device) + N_STAGES * _BUSY.index(one) + stage
        elif (kind.device == "host" and kind.level != "model" and not is_wait(kind.name)) or kind.tf_op:
            labels[i] = HOST_CODE * len(devices)
    return labels


_CHUNK_ROWS = 1 << 16  # a choice: half a MB of int64, which all chunks of a constant column share


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


def breakdowns_tables(described: Described, segments: Segments, calls: Int64s) -> tuple[pa.Table, pa.Table]:
    """Rows of `breakdowns`: each step's wall time, split by priority, for every device that worked in the capture; and
    of `stages`, the same time by what it served.

    Args:
        described: the events.
        segments: stretches of time, each with its label, from `nest_events`.
        calls: `[n, 2]` call of a compiled function, and an event of what it launched.
    """
    bounds, (label, start_ps, end_ps) = described.bounds, segments
    devices = working_devices(described.events.kinds)
    marks, *times = _staged_calls(described, calls)
    start_ps, end_ps = (np.concatenate(pair) for pair in zip((start_ps, end_ps), times, strict=True))
    staged = np.zeros((len(devices), len(bounds.step), len(CATEGORIES), N_STAGES), np.int64)
    for i in range(len(devices)):
        code = label - np.int16(i * HOST_CODE)
        code[(code < 0) | (code >= HOST_CODE)] = -1
        code[label == len(devices) * HOST_CODE] = MARK_CODE - 1
        work = np.append(code, marks), start_ps, end_ps
        if len(described.tails):
            work = _tails_alone(work, slice(len(code) - len(described.tails), len(code)))
        time = StagedTime(bounds.start_ps, bounds.end_ps)
        time.add(work)
        staged[i] = time.wall_ps
    if any(one for one in described.direction) or described.is_named:
        give_to_forward(staged)
    wall_ps = staged.sum(axis=3).transpose(1, 0, 2)
    device = np.arange(len(devices), dtype=np.int32)[:, None]
    category = np.arange(len(CATEGORIES), dtype=np.int32)
    breakdowns = table_from_columns(
        "breakdowns",
        {
            "window": np.full(wall_ps.size, described.window, np.int64),
            "step": np.broadcast_to(bounds.step[:, None, None], wall_ps.shape).ravel(),
            "device": _dictionary(np.broadcast_to(device, wall_ps.shape).ravel(), devices),
            "category": _dictionary(np.broadcast_to(category, wall_ps.shape).ravel(), CATEGORIES),
            "wall_ps": wall_ps.ravel(),
        },
    )
    return breakdowns, stages_table(devices, staged, bounds.step, described.window)


def _tails_alone(segments: Segments, tails: slice) -> Segments:
    """The segments with what of the asynchronous tails passes without other compute or communication, at their end.

    The end of an asynchronous op is told late: when the work after it runs already, or has had the cores that it needs.
    """
    code, start_ps, end_ps = segments
    is_first = (code >= 0) & (code < _BUSY.index("data_movement") * N_STAGES)
    is_first[tails] = False
    works = union(start_ps, end_ps, where=is_first)
    late, times = code[tails], (start_ps[tails], end_ps[tails])
    codes = np.unique(late[late >= 0])
    alone = [subtract(union(*times, where=late == one), works) for one in codes.tolist()]
    rest = [np.delete(column, tails) for column in segments]
    found = np.repeat(codes, [len(one.start_ps) for one in alone])
    starts, ends = ([getattr(one, name) for one in alone] for name in ("start_ps", "end_ps"))
    return np.append(rest[0], found), np.concatenate([rest[1], *starts]), np.concatenate([rest[2], *ends])


def _staged_calls(described: Described, calls: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Calls of compiled functions as marks of the stage that all have of which the programs are that they launch."""
    events = described.events
    programs: defaultdict[int | None, set[str | None]] = defaultdict(set)
    for kind, direction, category in zip(events.kinds, described.direction, described.category, strict=True):
        if kind.level in ("op", "kernel") and category in _BUSY and kind.program is not None:
            programs[kind.program].add(direction)
    of_call: defaultdict[int, set[str | None]] = defaultdict(set)
    for call, launched in calls.tolist():
        of_call[call] |= programs[events.kinds[events.kind[launched]].program]  # what has no program adds nothing
    stage = {call: STAGES.index(one) for call, (one, *more) in of_call.items() if one in STAGES and not more}
    rows, codes = (np.fromiter(values, np.int64, len(stage)) for values in (stage, stage.values()))
    return MARK_CODE + codes, events.start_ps[rows], events.start_ps[rows] + events.dur_ps[rows]


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


def _rank_groups(kinds: Sequence[XPlaneKind]) -> NDArray[np.int32]:
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


def _program_column(kind: NDArray[np.int32], kinds: Sequence[XPlaneKind], into: Int64s) -> pa.Array:
    known = np.array([k.program is not None for k in kinds], np.bool_)
    program = np.array([k.program or 0 for k in kinds], np.int64)
    return _nullable(_take(program, kind, into), known[kind])


def _step_column(resolved: Resolved, step: NDArray[np.int32], into: Int64s) -> pa.Array:
    return _nullable(_take(np.append(resolved.bounds.step, 0), step, into), step >= 0)
