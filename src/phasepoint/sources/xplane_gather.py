"""All planes' events in one set of arrays, with what they are told once per kind of event instead of once per event."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.sources.dense import number_keys
from phasepoint.sources.wire import Bytes, Int64s
from phasepoint.sources.xplane_events import (
    HAS_CORRELATION,
    HAS_DEVICE_ID,
    HAS_DEVICE_TIME,
    HAS_OP,
    HAS_PRODUCER,
    HAS_PROGRAM,
    HAS_STEP,
    PlaneEvents,
    decode_events,
)
from phasepoint.sources.xplane_lines import STEPS_LINE, classify_names, is_host, line_levels
from phasepoint.sources.xplane_planes import Plane

_LEVELS = ("model", "layer", "op", "kernel", "runtime")
_UNIX_NS = 10**17
"""Time stamps beyond this (1973 in Unix ns, three years after a profile's start) are absolute."""


@dataclass(frozen=True)
class Kind:
    """What all events of one kind share.

    Attributes:
        name: name as the profiler gave it.
        op: name under which it is aggregated: the HLO instruction where it is known, else `name`.
        device: `cpu:0`, `gpu:0`, `tpu:0`, or `host`.
        level: model, op, kernel or runtime.
        program: program id, None where there is none.
        is_mark: whether it marks a step on the host.
        hlo_category: the profiler's own word for the op's category, "" where it has none.
        op_name: the framework's name of the operation, "" where it is not given.
    """

    name: str
    op: str
    device: str
    level: str
    program: int | None
    is_mark: bool
    hlo_category: str
    op_name: str


@dataclass(frozen=True)
class Events:
    """Every event that becomes a span. Arrays are `[n_events]`, by track and in the profiler's order.

    Attributes:
        kind: index into `kinds`.
        track: index into `tracks`.
        start_ps: start, from the profile's start.
        dur_ps: duration on its track.
        run: run id, valid with HAS_RUN.
        correlation: launch id, valid with HAS_CORRELATION.
        flags: what is known, as in `PlaneEvents`.
        kinds: the kinds.
        tracks: name of each track.
        track_plane: index of each track's plane.
        tail_event: `[n_tails]` events that went on asynchronously after they left their track.
        tail_ps: `[n_tails]` for how long.
        mark_event: `[n_marks]` events that mark steps with a number.
        mark_step: `[n_marks]` their numbers.
        flow: `[n_flows, 4]` kind, track, time in ps, task id: who handed which task to which thread.
        found: events in the capture.
        ignored: bookkeeping events and events of lines that repeat others.
        dropped: events that could not be read or placed.
        problems: what was wrong, in words.
    """

    kind: NDArray[np.int32]
    track: NDArray[np.int32]
    start_ps: Int64s
    dur_ps: Int64s
    run: Int64s
    correlation: Int64s
    flags: NDArray[np.int16]
    kinds: list[Kind]
    tracks: list[str]
    track_plane: Int64s
    tail_event: Int64s
    tail_ps: Int64s
    mark_event: Int64s
    mark_step: Int64s
    flow: Int64s
    found: int
    ignored: int
    dropped: int
    problems: list[str]


@dataclass(frozen=True)
class _Part:
    """One plane's events with what is only known inside the plane already resolved."""

    events: PlaneEvents
    kind: NDArray[np.int32]
    kinds: list[Kind]
    start_ps: Int64s
    tail_event: Int64s
    tail_ps: Int64s
    mark_event: Int64s


def gather_events(data: Bytes, planes: Sequence[Plane], profile_start_ns: int | None) -> Events:
    """Decode the events of all planes.

    Args:
        data: the whole XSpace.
        planes: its planes.
        profile_start_ns: start of the profile, Unix ns; needed only where the lines' time stamps are absolute.
    """
    base_ns = _absolute_base_ns(planes, profile_start_ns)
    parts = [_read_part(data, plane, base_ns) for plane in planes]
    first_track = np.cumsum([0] + [len(plane.lines) for plane in planes])
    first_kind = np.cumsum([0] + [len(part.kinds) for part in parts])
    first_event = np.cumsum([0] + [len(part.kind) for part in parts])
    flows = [_shift_flow(part.events.flow, int(first_track[i])) for i, part in enumerate(parts)]
    ignored = sum(part.events.ignored for part in parts)
    dropped = sum(part.events.dropped for part in parts)
    mark = [part.mark_event for part in parts]
    return Events(
        kind=_join([part.kind + np.int32(first_kind[i]) for i, part in enumerate(parts)], np.int32),
        track=_join([part.events.line + np.int32(first_track[i]) for i, part in enumerate(parts)], np.int32),
        start_ps=_join([part.start_ps for part in parts], np.int64),
        dur_ps=_join([part.events.dur_ps for part in parts], np.int64),
        run=_join([part.events.run for part in parts], np.int64),
        correlation=_join([part.events.correlation for part in parts], np.int64),
        flags=_join([part.events.flags for part in parts], np.int16),
        kinds=[kind for part in parts for kind in part.kinds],
        tracks=[_track_name(plane, i) for plane in planes for i in range(len(plane.lines))],
        track_plane=np.repeat(np.arange(len(planes)), [len(plane.lines) for plane in planes]),
        tail_event=_join([part.tail_event + first_event[i] for i, part in enumerate(parts)], np.int64),
        tail_ps=_join([part.tail_ps for part in parts], np.int64),
        mark_event=_join([mark[i] + first_event[i] for i in range(len(parts))], np.int64),
        mark_step=_join([part.events.program[mark[i]] for i, part in enumerate(parts)], np.int64),
        flow=np.concatenate(flows),
        found=int(first_event[-1]) + ignored + dropped,
        ignored=ignored,
        dropped=dropped,
        problems=[text for plane, part in zip(planes, parts, strict=True) for text in _damage(plane, part.events)],
    )


def _join(arrays: list[NDArray], dtype: type) -> NDArray:  # type: ignore[type-arg]
    """Concatenate; a trace has mostly one plane with events, whose array need not be copied."""
    full = [array for array in arrays if len(array)]
    return full[0] if len(full) == 1 else np.concatenate(full or [np.empty(0, dtype)])


def _absolute_base_ns(planes: Sequence[Plane], profile_start_ns: int | None) -> int:
    stamps = [line.timestamp_ns for plane in planes for line in plane.lines if line.timestamp_ns > _UNIX_NS]
    if not stamps:
        return 0
    return profile_start_ns if profile_start_ns is not None else min(stamps)


def _track_name(plane: Plane, line: int) -> str:
    """Lines of devices repeat their names from device to device, lines of the host carry a thread id already."""
    name = plane.lines[line].name or f"line {line}"
    device = plane.device()
    return f"{device} {name}" if device else name


def _shift_flow(flow: Int64s, first_track: int) -> Int64s:
    flow = flow.copy()
    flow[:, 1] += first_track
    return flow


def _damage(plane: Plane, events: PlaneEvents) -> list[str]:
    return [
        f"plane {plane.name!r}, line {plane.lines[line].name!r} is damaged at byte {offset}; its later events are lost"
        for line, offset in events.damaged
    ]


def _read_part(data: Bytes, plane: Plane, base_ns: int) -> _Part:
    levels = line_levels(plane)
    events = decode_events(
        data,
        plane,
        base_ns=base_ns,
        meta_class=classify_names(plane.meta_name, host=is_host(plane)),
        line_kept=np.array([level is not None for level in levels], np.bool_),
    )
    kind, kinds = _number_kinds(data, plane, events, levels)
    tail_event, tail_ps = _asynchronous_tails(events)
    return _Part(
        events=events,
        kind=kind,
        kinds=kinds,
        start_ps=_device_times(events),
        tail_event=tail_event,
        tail_ps=tail_ps,
        mark_event=np.flatnonzero(events.flags & HAS_STEP) if is_host(plane) else np.empty(0, np.int64),
    )


def _device_times(events: PlaneEvents) -> Int64s:
    """Starts; where the device gave its own clock, that clock moved onto the profile's by one constant.

    Differences between device times stay exact that way, and so does nesting.
    """
    timed = np.flatnonzero(events.flags & HAS_DEVICE_TIME)
    if not len(timed):
        return events.start_ps
    shift = np.sort(events.start_ps[timed] - events.producer[timed])[len(timed) // 2]
    start_ps = events.start_ps.copy()
    start_ps[timed] = events.producer[timed] + shift
    return start_ps


def _asynchronous_tails(events: PlaneEvents) -> tuple[Int64s, Int64s]:
    """Events whose completion was announced after they left their track, and how long after."""
    if not len(events.end):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(events.end[:, 0], kind="stable")
    task, time_ps = events.end[order, 0], events.end[order, 1]
    candidates = np.flatnonzero((events.flags & (HAS_OP | HAS_PRODUCER)) == (HAS_OP | HAS_PRODUCER))
    place = np.searchsorted(task, events.producer[candidates], side="right") - 1
    found = (place >= 0) & (task[place] == events.producer[candidates])
    candidates, place = candidates[found], place[found]
    tail_ps = time_ps[place] - events.start_ps[candidates] - events.dur_ps[candidates]
    late = tail_ps > 0
    return candidates[late], tail_ps[late]


def _number_kinds(
    data: Bytes, plane: Plane, events: PlaneEvents, levels: Sequence[str | None]
) -> tuple[NDArray[np.int32], list[Kind]]:
    """Number the kinds of a plane's events and describe each."""
    flags = events.flags
    op = np.where(events.op_bytes > 0, -1 - _intern(data, events), events.op) if events.op_bytes.any() else events.op
    is_mark = (flags & HAS_STEP) != 0
    is_op = (flags & HAS_OP) != 0
    if is_host(plane):
        is_op &= (flags & (HAS_CORRELATION | HAS_DEVICE_ID)) == 0
    level = np.array([_LEVELS.index(level) if level else 0 for level in levels], np.int64)
    program = np.where((flags & HAS_PROGRAM) != 0, events.program, 0)
    detail = np.where(is_op, events.ordinal.astype(np.int64) << 5, 0) | is_op | (is_mark * 2) | ((program != 0) * 4)
    detail = detail * 8 + (level[events.line] if len(level) else 0)
    detail += (flags & HAS_OP).astype(np.int64) << 40
    numbers, first = number_keys(events.meta, op, program, detail)
    texts = _MetaTexts(data, plane)
    kinds = [_describe(data, plane, events, int(i), texts, level, bool(is_op[i])) for i in first]
    return numbers, kinds


def _intern(data: Bytes, events: PlaneEvents) -> Int64s:
    """Number the distinct inline texts that name ops; only old or foreign traces spell them out in every event."""
    numbers = np.zeros(len(events.op), np.int64)
    seen: dict[bytes, int] = {}
    for i in np.flatnonzero(events.op_bytes):
        offset = -int(events.op[i])
        text = bytes(data[offset : offset + int(events.op_bytes[i])])
        numbers[i] = seen.setdefault(text, len(seen))
    return numbers


class _MetaTexts:
    """Stats that stand in a plane's event metadata instead of in every event (TPU), by metadata index."""

    def __init__(self, data: Bytes, plane: Plane) -> None:
        self.program = self._numbers(plane, "program_id")
        self.hlo_category = self._texts(data, plane, "hlo_category")
        self.op_name = self._texts(data, plane, "tf_op")

    @staticmethod
    def _numbers(plane: Plane, name: str) -> dict[int, int]:
        stats = plane.meta_stats
        found = np.isin(stats.stat, plane.stat_ids(name)) & np.isin(stats.kind, (3, 4))
        return {int(stats.owner[i]): int(stats.value[i]) for i in np.flatnonzero(found)}

    @staticmethod
    def _texts(data: Bytes, plane: Plane, name: str) -> dict[int, str]:
        stats = plane.meta_stats
        texts = {}
        for i in np.flatnonzero(np.isin(stats.stat, plane.stat_ids(name)) & np.isin(stats.kind, (5, 7))):
            value, length = int(stats.value[i]), int(stats.length[i])
            inline = bytes(data[value : value + length]).decode("utf-8", "replace")
            texts[int(stats.owner[i])] = plane.stat_name.get(value, "") if stats.kind[i] == 7 else inline
        return texts


def _describe(
    data: Bytes, plane: Plane, events: PlaneEvents, i: int, texts: _MetaTexts, level: Int64s, is_op: bool
) -> Kind:
    meta, flags = int(events.meta[i]), int(events.flags[i])
    name = plane.meta_name[meta]
    device = plane.device()
    line_level = _LEVELS[level[events.line[i]]]
    program = int(events.program[i]) if flags & HAS_PROGRAM else texts.program.get(meta)
    op = _op_text(data, plane, events, i) if flags & HAS_OP else ""
    if device is None:
        is_mark = bool(flags & HAS_STEP)
        place = f"cpu:{int(events.ordinal[i])}" if is_op else "host"
        host_level = "op" if is_op else ("model" if is_mark else "runtime")
        return Kind(name, op if is_op else name, place, host_level, program if is_op else None, is_mark, "", "")
    if line_level == "op":
        short = plane.meta_display[meta] or name.partition(" = ")[0].removeprefix("%")
        op, name = op or short, short
    if line_level == "model" and plane.lines[int(events.line[i])].name == STEPS_LINE:
        program = None
    category, op_name = texts.hlo_category.get(meta, ""), texts.op_name.get(meta, "")
    return Kind(name, op or name, device, line_level, program, False, category, op_name)


def _op_text(data: Bytes, plane: Plane, events: PlaneEvents, i: int) -> str:
    if events.op_bytes[i] > 0:
        offset = -int(events.op[i])
        return bytes(data[offset : offset + int(events.op_bytes[i])]).decode("utf-8", "replace")
    return plane.stat_name.get(int(events.op[i]), "")
