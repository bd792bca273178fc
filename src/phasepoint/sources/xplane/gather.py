"""All planes' events in one set of arrays, with what they are told once per kind of event instead of once per event.

What is known of a capture's events, before and after they have their steps.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Bytes, Int64s
from phasepoint.core.tables import LEVELS
from phasepoint.sources.events.step_bounds import StepBounds
from phasepoint.sources.xplane.decode import KIND_COLUMNS, PlaneEvents, Scratch, decode_events
from phasepoint.sources.xplane.events import HAS_CORRELATION, HAS_DEVICE_ID, HAS_OP, HAS_PROGRAM, HAS_STEP
from phasepoint.sources.xplane.lines import TfOp, classify_names, is_host, line_levels, read_op
from phasepoint.sources.xplane.planes import Plane
from phasepoint.sources.xplane.wire import read_text

_UNIX_NS = 10**17
"""Time stamps beyond this (1973 in Unix ns, three years after a profile's start) are absolute."""

_NUMBERED = re.compile(r"^[^#]+#(?:[^#]*,)?step_num=(\d{1,18})(?:,[^#]*)?#$")


@dataclass(frozen=True)
class XPlaneKind:
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
        tf_op: the operation of TensorFlow that it is the execution of, None for any other event.
    """

    name: str
    op: str
    device: str
    level: str
    program: int | None
    is_mark: bool
    hlo_category: str
    op_name: str
    tf_op: TfOp | None = None


@dataclass(frozen=True)
class Events:
    """Every event that becomes a span, by track and in the profiler's order.

    Attributes:
        kind: `[n_events]` index into `kinds`.
        start_ps: `[n_events]` start, from the profile's start.
        dur_ps: `[n_events]` duration on its track.
        link: `[n_events]` correlation id or run id, as the kind's flags say.
        kinds: the kinds.
        flags: `[n_kinds]` what is known of a kind's events: HAS_RUN, HAS_CORRELATION, …
        tracks: name of each track.
        first: `[n_tracks + 1]` where each track's events begin.
        tails: `[n_tails, 2]` events that went on asynchronously after they left their track: event, for how long in ps.
        marks: `[n_marks, 2]` events on the host that mark steps: event, step number.
        entries: `[n, 2]` first op of each execution on a track: event, the task in which it ran; below 0 if in none.
        records: `[n, 3]` tasks handed over: task, track, time in ps.
        found: events in the capture.
        ignored: bookkeeping events and events of lines that repeat others.
        dropped: events that could not be read or placed.
        problems: what was wrong, in words.
        apart: `[n_planes]` events of each plane that were ignored, and that were dropped.
    """

    kind: NDArray[np.int32]
    start_ps: Int64s
    dur_ps: Int64s
    link: Int64s
    kinds: list[XPlaneKind]
    flags: Int64s
    tracks: list[str]
    first: Int64s
    tails: Int64s
    marks: Int64s
    entries: Int64s
    records: Int64s
    found: int
    ignored: int
    dropped: int
    problems: list[str]
    apart: list[tuple[int, int]]

    def track_of(self, rows: Int64s) -> Int64s:
        """`[n]` index of the track of some events."""
        return np.searchsorted(self.first, rows, side="right") - 1

    def rows_of(self, wanted: Iterable[bool]) -> Int64s:
        """Events of the kinds that are wanted, `[n_kinds]`."""
        mask = np.fromiter(wanted, np.bool_, len(self.kinds))
        return np.flatnonzero(mask[self.kind]) if mask.any() else np.empty(0, np.int64)


def gather_events(data: Bytes, planes: Sequence[Plane], profile_start_ns: int | None, scratch: Scratch) -> Events:
    """Decode the events of all planes.

    Args:
        data: the whole XSpace.
        planes: its planes.
        profile_start_ns: start of the profile, Unix ns; needed only where the lines' time stamps are absolute.
        scratch: memory for what is put together here.
    """
    base_ns = _absolute_base_ns(planes, profile_start_ns)
    parts = [_read_part(data, plane, base_ns, scratch) for plane in planes]
    pairs = list(zip(planes, parts, strict=True))
    accelerated = any(len(part.kind) and plane.device() is not None for plane, part in pairs)
    track_0 = np.cumsum([0] + [len(plane.lines) for plane in planes])
    event_0 = np.cumsum([0] + [len(part.kind) for part in parts])
    kind_0 = np.cumsum([0] + [len(part.kinds) for part in parts])
    ignored, dropped = sum(part.ignored for part in parts), sum(part.dropped for part in parts)
    kind = _join([part.kind + np.int32(kind_0[i]) if i else part.kind for i, part in enumerate(parts)], np.int32)
    kinds = [one for plane, part in pairs for one in _describe_kinds(data, plane, part, accelerated=accelerated)]
    marks = _gather_pairs([part.marks if is_host(plane) else part.marks[:0] for plane, part in pairs], event_0)
    return Events(
        kind=kind,
        start_ps=_join([_device_times(part) for part in parts], np.int64),
        dur_ps=_join([part.dur_ps for part in parts], np.int64),
        link=_join([part.link for part in parts], np.int64),
        kinds=kinds,
        flags=np.concatenate([part.kinds[:, 5] for part in parts]),
        tracks=[_track_name(plane, i) for plane in planes for i in range(len(plane.lines))],
        first=np.concatenate([part.first[:-1] + event_0[i] for i, part in enumerate(parts)] + [event_0[-1:]]),
        tails=_gather_pairs([_asynchronous_tails(part) for part in parts], event_0),
        marks=np.concatenate((marks, _named_marks(kind, kinds))),
        entries=_gather_pairs([part.entries for part in parts], event_0),
        records=np.concatenate([part.records + np.array([0, track_0[i], 0]) for i, part in enumerate(parts)]),
        found=int(event_0[-1]) + ignored + dropped,
        ignored=ignored,
        dropped=dropped,
        problems=[text for pair in pairs for text in _damage(*pair)],
        apart=[(part.ignored, part.dropped) for part in parts],
    )


def _gather_pairs(parts: Sequence[Int64s], event_0: Int64s) -> Int64s:
    """Pairs of event and value, the events counted over all planes."""
    return np.concatenate([pairs + np.array([event_0[i], 0]) for i, pairs in enumerate(parts)])


def _join(arrays: list[NDArray], dtype: type) -> NDArray:  # type: ignore[type-arg]
    """Concatenate; a trace has mostly one plane with events, whose array need not be copied."""
    full = [array for array in arrays if len(array)]
    return full[0] if len(full) == 1 else np.concatenate(full or [np.empty(0, dtype)])


def _absolute_base_ns(planes: Sequence[Plane], profile_start_ns: int | None) -> int:
    """From when lines that are stamped with Unix times count; 0 where none is."""
    stamps = [line.timestamp_ns for plane in planes for line in plane.lines if line.timestamp_ns > _UNIX_NS]
    if not stamps:
        return 0
    return profile_start_ns if profile_start_ns is not None else min(stamps)


def _track_name(plane: Plane, line: int) -> str:
    """Lines of devices repeat their names from device to device, lines of the host carry a thread id already."""
    name = plane.lines[line].name or f"line {line}"
    device = plane.device()
    return f"{device} {name}" if device else name


def _damage(plane: Plane, events: PlaneEvents) -> list[str]:
    """What is wrong with a plane's lines, in words."""
    return [
        f"plane {plane.name!r}, line {plane.lines[line].name!r} is damaged at byte {offset}; its later events are lost"
        for line, offset in events.damaged
    ]


def _read_part(data: Bytes, plane: Plane, base_ns: int, scratch: Scratch) -> PlaneEvents:
    scratch.reset()
    levels = [-1 if level is None else LEVELS.index(level) for level in line_levels(plane)]
    return decode_events(
        data,
        plane,
        base_ns=base_ns,
        meta_class=classify_names(plane.meta_name, host=is_host(plane)),
        line_level=np.array(levels, np.int8),
        scratch=scratch,
    )


def _named_marks(kind: NDArray[np.int32], kinds: Sequence[XPlaneKind]) -> Int64s:
    """Events whose number of the step still stands in their name, as a TraceMe has it: `train#step_num=3,_r=1#`."""
    found = {i: int(match[1]) for i, one in enumerate(kinds) if (match := _NUMBERED.search(one.name))}
    rows = np.flatnonzero(np.isin(kind, list(found))) if found else np.empty(0, np.int64)
    return np.array([(row, found[int(kind[row])]) for row in rows], np.int64).reshape(-1, 2)


def _device_times(events: PlaneEvents) -> Int64s:
    """Starts; where the device gave its own clock, that clock moved onto the profile's by one constant.

    Differences between device times stay exact that way, and so does nesting.
    """
    if not len(events.device_times):
        return events.start_ps
    rows, device_ps = events.device_times.T
    shift = np.sort(events.start_ps[rows] - device_ps)[len(rows) // 2]
    start_ps = events.start_ps.copy()
    start_ps[rows] = device_ps + shift
    return start_ps


def _asynchronous_tails(events: PlaneEvents) -> Int64s:
    """Events whose completion was announced after they left their track, and how long after."""
    if not len(events.ends) or not len(events.open):
        return np.empty((0, 2), np.int64)
    task, time_ps = events.ends[np.argsort(events.ends[:, 0], kind="stable")].T
    rows, waiting_for = events.open.T
    place = np.searchsorted(task, waiting_for, side="right") - 1
    tail_ps = time_ps[place] - events.start_ps[rows] - events.dur_ps[rows]
    late = (place >= 0) & (task[place] == waiting_for) & (tail_ps > 0)
    return np.stack((rows[late], tail_ps[late]), axis=1)


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
            inline = read_text(data, (value, value + length))
            texts[int(stats.owner[i])] = plane.stat_name.get(value, "") if stats.kind[i] == 7 else inline
        return texts


def _describe_kinds(data: Bytes, plane: Plane, events: PlaneEvents, *, accelerated: bool) -> list[XPlaneKind]:
    """The kinds of a plane's events, by number."""
    texts = _MetaTexts(data, plane)
    rows = events.kinds.tolist()
    kinds = [_describe(data, plane, dict(zip(KIND_COLUMNS, row, strict=True)), texts) for row in rows]
    return [_as_named(kind, accelerated=accelerated) for kind in kinds] if is_host(plane) else kinds


def _as_named(kind: XPlaneKind, *, accelerated: bool) -> XPlaneKind:
    """What a host's event is by its name: a mark of a step; an execution of an operation of TensorFlow, which is the
    processor's work, or the host's where there is an accelerator; else what it was."""
    if _NUMBERED.search(kind.name):
        return replace(kind, level="model", is_mark=True)
    tf_op = read_op(kind.name) if kind.level == "runtime" else None
    if tf_op is None:
        return kind
    return replace(kind, tf_op=tf_op, level="op", device="host" if accelerated else "cpu:0")


def _describe(data: Bytes, plane: Plane, key: Mapping[str, int], texts: _MetaTexts) -> XPlaneKind:
    meta, flags, level = key["meta"], key["flags"], LEVELS[key["level"]]
    name, device = plane.meta_name[meta], plane.device()
    program = key["program"] if flags & HAS_PROGRAM else texts.program.get(meta)
    op = _op_text(data, plane, key) if flags & HAS_OP else ""
    if device is None:
        is_op = bool(flags & HAS_OP) and not flags & (HAS_CORRELATION | HAS_DEVICE_ID)
        is_mark = bool(flags & HAS_STEP)
        place = f"cpu:{key['ordinal']}" if is_op else "host"
        host_level = "op" if is_op else ("model" if is_mark else level)
        return XPlaneKind(name, op if is_op else name, place, host_level, program if is_op else None, is_mark, "", "")
    if level == "op":
        name = plane.meta_display[meta] or name.partition(" = ")[0].removeprefix("%")
    category, op_name = texts.hlo_category.get(meta, ""), texts.op_name.get(meta, "")
    return XPlaneKind(name, op or name, device, level, program, False, category, op_name)


def _op_text(data: Bytes, plane: Plane, key: Mapping[str, int]) -> str:
    """An event's `hlo_op`: in place, or as the name of a stat."""
    if key["op_bytes"] > 0:
        return read_text(data, (key["op"], key["op"] + key["op_bytes"]))
    return plane.stat_name.get(key["op"], "")


@dataclass(frozen=True)
class Described:
    """What is known of a capture's events before they have their steps.

    Attributes:
        events: the events.
        category: per kind, its category.
        layer: per kind, its module path, None where unknown.
        direction: per kind, forward, backward or optimizer, None where unknown.
        is_named: whether the framework's name of any operation is known.
        bounds: the steps.
        tails: `[n_tails, 2]` events that went on after they left their track: event, for how long in ps.
        tail_start_ps: `[n_tails]` when they left it.
        window: the window's number.
        offset_ps: the profile's start from the session's epoch.
    """

    events: Events
    category: Sequence[str]
    layer: Sequence[str | None]
    direction: Sequence[str | None]
    is_named: bool
    bounds: StepBounds
    tails: Int64s
    tail_start_ps: Int64s
    window: int
    offset_ps: int


@dataclass(frozen=True)
class Resolved(Described):
    """Everything that is known of a capture's events; their durations are now `total_ps`.

    Attributes:
        track: `[n_events]` index of the track, behind the tracks' number for events with an asynchronous tail.
        step: `[n_events]` index into `bounds`, -1 outside.
        parent: `[n_events]` index of the enclosing event on its track, -1 at the top.
        self_ps: `[n_events]` self time with the asynchronous tails.
        total_ps: `[n_events]` duration with the asynchronous tails.
        launch: `[n_events]` host event that launched it, -1 where none is known; None where no event has one.
        bytes: `[n_events]` bytes moved; None where no event says.
    """

    track: NDArray[np.int32]
    step: NDArray[np.int32]
    parent: Int64s
    self_ps: Int64s
    total_ps: Int64s
    launch: Int64s | None
    bytes: pa.Array | None
