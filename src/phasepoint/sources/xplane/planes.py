"""The skeleton of an XSpace: planes, lines, and the names their events refer to. Events themselves are decoded
elsewhere.

Source of the schema: openxla/xla, `xla/tsl/profiler/protobuf/xplane.proto` (November 2026); field numbers stand where
they are used. Metadata comes after the lines in a plane, so a plane is walked before any event is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bytes, Int64s
from phasepoint.core.compiled import compiled
from phasepoint.core.errors import SourceError
from phasepoint.sources.xplane.wire import INTACT, LENGTH, Fields, read_field, read_fields, read_text

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

METADATA_PLANE = "/host:metadata"
ENVIRONMENT_PLANE = "Task Environment"

_DEVICE_PLANE = re.compile(r"/device:(?!CUSTOM)([A-Za-z_]+):(\d+)(.*)", re.DOTALL)
_PROGRAM_NAME = re.compile(r"\((\d+)\)$")
_STATE_WORDS = {1: "is cut off", 2: "holds bytes that are no protobuf field"}


MOST_PLANES, MOST_LINES = 10_000, 100_000
"""A choice: a device has a plane and a thread has a line, of which a machine has hundreds; each is an object here."""


FREE_EVENTS, LEAST_EVENT_BYTES = 1_000_000, 12
"""Beyond so many, events take at least so many bytes each: two around it, two for its name, six for a start a
millisecond after the first, two for a duration. Real ones take 48 and more. What reading takes of memory is then a
stated multiple of the file's size."""


@dataclass(frozen=True)
class Stats:
    """XStats of many owners, flat. `[n_stats]` each.

    Attributes:
        owner: index of the owner.
        stat: id of the stat's metadata.
        kind: field that holds the value: 2 double, 3 uint64, 4 int64, 5 string, 6 bytes, 7 reference.
        value: the number, or the offset of the text.
        length: bytes of the text.
    """

    owner: Int64s
    stat: Int64s
    kind: Int64s
    value: Int64s
    length: Int64s


@dataclass(frozen=True)
class Line:
    """One XLine.

    Attributes:
        name: display name if it has one, else its name.
        timestamp_ns: what its events' offsets count from.
        start: offset of its first byte.
        end: offset behind its last byte.
        events: its events, whole or not.
    """

    name: str
    timestamp_ns: int
    start: int
    end: int
    events: int


@dataclass(frozen=True)
class Plane:
    """One XPlane without its events.

    Attributes:
        name: its name.
        lines: its lines, in order.
        meta_id: `[n_metadata]` ids of its event metadata.
        meta_name: `[n_metadata]` names.
        meta_display: `[n_metadata]` display names, "" where there is none.
        meta_stats: stats of the event metadata; the owner is an index into `meta_id`.
        stat_name: name of each stat metadata id (names of stats and the texts that stats refer to).
        stats: stats of the plane itself; the owner is 0.
        problem: what was wrong with its bytes, "" where nothing was.
    """

    name: str
    lines: tuple[Line, ...]
    meta_id: Int64s
    meta_name: list[str]
    meta_display: list[str]
    meta_stats: Stats
    stat_name: Mapping[int, str]
    stats: Stats
    problem: str

    def stat_ids(self, name: str) -> list[int]:
        """Ids under which the plane knows a stat."""
        return [key for key, value in self.stat_name.items() if value == name]

    def device(self) -> str | None:
        """The device whose work the plane shows (`gpu:0`, `tpu:1`), None for a host's plane."""
        match = _DEVICE_PLANE.fullmatch(self.name)
        if match is None:
            return None
        rest = re.sub(r"\W+", ":", match[3].strip().lower())
        return f"{match[1].lower()}:{match[2]}" + (f"/{rest}" if rest else "")


def read_planes(data: Bytes) -> tuple[list[Plane], list[str]]:
    """All planes of an XSpace, and what was wrong with it, in words.

    Raises:
        SourceError: the bytes are no XSpace (empty, or without one readable plane), or hold more than their size makes
            likely.
    """
    space = read_fields(data, 0, len(data))
    spans = space.spans(1)
    if not spans:
        raise SourceError(
            f"XPlane capture of {len(data)} bytes: no plane found, reading stopped at byte {space.stop}; "
            "expected a serialized XSpace. Was the capture cut off while it was written? Record the window again."
        )
    planes: list[Plane] = []
    lines = 0
    for start, end in spans:
        fields = read_fields(data, start, end)
        lines += int(np.count_nonzero((fields.number == 3) & (fields.wire == LENGTH)))
        if len(planes) == MOST_PLANES or lines > MOST_LINES:
            raise SourceError(
                f"XPlane capture of {len(data)} bytes: it holds more than {MOST_PLANES} planes or {MOST_LINES} lines, "
                "more than any profiler writes: a damaged file, or one made to fill the memory"
            )
        planes.append(_read_plane(data, fields))
    if not any(plane.name for plane in planes):
        raise SourceError(
            f"XPlane capture of {len(data)} bytes: no plane with a name among {len(planes)}; expected a serialized "
            "XSpace. The file is probably not an XPlane capture; check its path."
        )
    events = sum(line.events for plane in planes for line in plane.lines)
    if events > FREE_EVENTS and events * LEAST_EVENT_BYTES > len(data):
        raise SourceError(
            f"XPlane capture of {len(data)} bytes: its {events} events take less than {LEAST_EVENT_BYTES} bytes each, "
            "too few for a name and a time: a damaged file, or one made to fill the memory"
        )
    problems = [_state_text("the capture", space)] if space.state != INTACT else []
    problems += [f"the profiler reports: {read_text(data, span)[:200]}" for span in space.spans(2)]
    return planes, problems + [plane.problem for plane in planes if plane.problem]


def read_stats(data: Bytes, starts: Int64s, ends: Int64s, owners: Int64s) -> Stats:
    """Decode XStat messages, given where each one stands."""
    return Stats(owners, *_decode_stats(data, starts, ends))


def profile_start_unix_ns(planes: list[Plane]) -> int | None:
    """When the profile began, Unix ns, from the task environment's plane; None where it does not say."""
    for plane in planes:
        ids = plane.stat_ids("profile_start_time") if plane.name == ENVIRONMENT_PLANE else []
        found = np.flatnonzero(np.isin(plane.stats.stat, ids) & np.isin(plane.stats.kind, (3, 4)))
        if len(found) and plane.stats.value[found[0]] > 0:
            return int(plane.stats.value[found[0]])
    return None


def hlo_protos(data: Bytes, planes: list[Plane]) -> dict[int, bytes]:
    """The serialized HloProto of every program in the metadata plane, by program id.

    The id is the `program_id` stat, else the number in the name (`jit_step(8)`), else the metadata's own id.
    """
    protos: dict[int, bytes] = {}
    for plane in planes:
        if plane.name != METADATA_PLANE:
            continue
        stats = plane.meta_stats
        is_proto = np.isin(stats.stat, [*plane.stat_ids("Hlo Proto"), *plane.stat_ids("hlo_proto")])
        is_id = np.isin(stats.stat, plane.stat_ids("program_id")) & np.isin(stats.kind, (3, 4))
        program_of = {int(stats.owner[i]): int(stats.value[i]) for i in np.flatnonzero(is_id)}
        for i in np.flatnonzero(is_proto & np.isin(stats.kind, (5, 6))):
            owner = int(stats.owner[i])
            named = _PROGRAM_NAME.search(plane.meta_name[owner])
            program = program_of.get(owner, int(named[1]) if named else int(plane.meta_id[owner]))
            protos[_as_int64(program)] = bytes(data[stats.value[i] : stats.value[i] + stats.length[i]])
    return protos


def _as_int64(value: int) -> int:
    """Two's complement: (value + 2⁶³) mod 2⁶⁴ − 2⁶³."""
    return (value + 2**63) % 2**64 - 2**63


def _read_plane(data: Bytes, fields: Fields) -> Plane:
    name = "".join(read_text(data, span) for span in fields.spans(2)[-1:])
    metadata = _read_metadata(data, fields.whole_spans(4))
    meta_stats = read_stats(data, *metadata[3:])
    stat_ids, stat_names, *_ = _read_metadata(data, fields.whole_spans(5))
    own = np.array(fields.whole_spans(6), np.int64).reshape(-1, 2)
    return Plane(
        name=name,
        lines=tuple(_read_line(data, *span) for span in fields.spans(3)),
        meta_id=metadata[0],
        meta_name=metadata[1],
        meta_display=metadata[2],
        meta_stats=meta_stats,
        stat_name=dict(zip(stat_ids.tolist(), stat_names, strict=True)),
        stats=read_stats(data, own[:, 0].copy(), own[:, 1].copy(), np.zeros(len(own), np.int64)),
        problem=_state_text(f"plane {name!r}", fields) if fields.state != INTACT else "",
    )


def _read_line(data: Bytes, start: int, end: int) -> Line:
    """An XLine, by its bytes."""
    timestamp_ns, spans, events = _scan_line(data, start, end)
    name = read_text(data, (spans[0], spans[1]))
    display = read_text(data, (spans[2], spans[3]))
    return Line(display or name, int(timestamp_ns), start, end, int(events))


def _read_metadata(
    data: Bytes, entries: list[tuple[int, int]]
) -> tuple[Int64s, list[str], list[str], Int64s, Int64s, Int64s]:
    """Ids, names, display names, and where the stats stand (start, end, owner), of a map of metadata."""
    spans = np.array(entries, np.int64).reshape(-1, 2)
    starts, ends = spans[:, 0].copy(), spans[:, 1].copy()
    n_stats = _count_metadata_stats(data, starts, ends)
    ids, text, *stats = _scan_metadata(data, starts, ends, n_stats)
    names = [read_text(data, (a, b)) for a, b in text[:, :2].tolist()]
    displays = [read_text(data, (a, b)) if b > a else "" for a, b in text[:, 2:].tolist()]
    return ids, names, displays, stats[0], stats[1], stats[2]


def _state_text(what: str, fields: Fields) -> str:
    return f"{what} {_STATE_WORDS[fields.state]} at byte {fields.stop}; what follows is lost"


# Compiled loops.


@compiled()
def _scan_line(data, start, end):
    """XLine: name=2, timestamp_ns=3, display_name=11; events (4) are counted."""
    timestamp_ns = np.int64(0)
    spans = np.zeros(4, np.int64)
    pos, state, events = start, INTACT, 0
    while pos < end and state == INTACT:
        if data[pos] == 0x22 and pos + 1 < end and data[pos + 1] < 0x80 and pos + 2 + data[pos + 1] <= end:
            pos += 2 + np.int64(data[pos + 1])  # the common case: field 4, a length of one byte
            events += 1
            continue
        number, wire, value, length, pos, state = read_field(data, pos, end)
        events += number == 4 and wire == LENGTH
        if number == 3 and wire != LENGTH:
            timestamp_ns = value
        elif number == 2 and wire == LENGTH:
            spans[0], spans[1] = value, value + length
        elif number == 11 and wire == LENGTH:
            spans[2], spans[3] = value, value + length
    return timestamp_ns, spans, events


@compiled()
def _entry_value(data, start, end):
    """A map entry: key=1, value=2. Returns the key and where the value stands."""
    key = np.int64(0)
    first, last = np.int64(start), np.int64(start)
    pos, state = start, INTACT
    while pos < end and state == INTACT:
        number, wire, value, length, pos, state = read_field(data, pos, end)
        if number == 1 and wire != LENGTH:
            key = value
        elif number == 2 and wire == LENGTH:
            first, last = value, value + length
    return key, first, last


@compiled()
def _count_metadata_stats(data, starts, ends):
    count = 0
    for i in range(len(starts)):
        _, pos, end = _entry_value(data, starts[i], ends[i])
        state = INTACT
        while pos < end and state == INTACT:
            number, wire, _, _, pos, state = read_field(data, pos, end)
            count += number == 5 and wire == LENGTH
    return count


@compiled()
def _scan_metadata(data, starts, ends, n_stats):
    """XEventMetadata: name=2, display_name=4, stats=5. XStatMetadata has its name in the same place."""
    n = len(starts)
    ids = np.zeros(n, np.int64)
    text = np.zeros((n, 4), np.int64)
    stat_start = np.empty(n_stats, np.int64)
    stat_end = np.empty(n_stats, np.int64)
    stat_owner = np.empty(n_stats, np.int64)
    k = 0
    for i in range(n):
        ids[i], pos, end = _entry_value(data, starts[i], ends[i])
        state = INTACT
        while pos < end and state == INTACT:
            number, wire, value, length, pos, state = read_field(data, pos, end)
            if wire != LENGTH:
                continue
            if number == 2:
                text[i, 0], text[i, 1] = value, value + length
            elif number == 4:
                text[i, 2], text[i, 3] = value, value + length
            elif number == 5:
                stat_start[k], stat_end[k], stat_owner[k] = value, value + length, i
                k += 1
    return ids, text, stat_start, stat_end, stat_owner


@compiled()
def _decode_stats(data, starts, ends):
    """XStat: metadata_id=1 and one of double=2, uint64=3, int64=4, string=5, bytes=6, reference=7."""
    n = len(starts)
    stat = np.zeros(n, np.int64)
    kind = np.zeros(n, np.int64)
    content = np.zeros(n, np.int64)
    size = np.zeros(n, np.int64)
    for i in range(n):
        pos, end, state = starts[i], ends[i], INTACT
        while pos < end and state == INTACT:
            number, wire, value, length, pos, state = read_field(data, pos, end)
            if number == 1 and wire != LENGTH:
                stat[i] = value
            elif 2 <= number <= 7 and (wire == LENGTH) == (number in (5, 6)):
                kind[i], content[i], size[i] = number, value, length
    return stat, kind, content, size
