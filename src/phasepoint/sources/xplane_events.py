"""Events of one plane, decoded into arrays by one compiled loop.

Bookkeeping of the profiler is recognised by the event's metadata and never becomes a row; what it says about launches and
completions is kept: a thread-pool region names the task it runs, an `end:` event says when an asynchronous op finished.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from phasepoint.sources.wire import INTACT, LENGTH, VARINT, Bytes, Int64s, read_field, read_varint
from phasepoint.sources.xplane_planes import Plane

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

KEEP, IGNORE, REGION, STOP, RECORD, END = 0, 1, 2, 3, 4, 5
"""What an event is to us, by its metadata: a span; bookkeeping; a pool thread takes up a task; it is done with it;
a thread hands a task to a pool; an op completed."""

SLOTS = {
    "hlo_op": 1,
    "program_id": 2,
    "run_id": 3,
    "device_ordinal": 4,
    "correlation_id": 5,
    "step_num": 6,
    "_p": 7,
    "_c": 8,
    "device_offset_ps": 9,
    "device_duration_ps": 10,
    "_r": 11,
    "device_id": 12,
}
"""Stats of events that are read, everything else is stepped over. Source of the names: openxla/xla,
`xla/tsl/profiler/utils/xplane_schema.cc` (November 2026)."""

HAS_OP, HAS_PROGRAM, HAS_RUN, HAS_ORDINAL, HAS_CORRELATION, HAS_STEP, HAS_PRODUCER = (1 << i for i in range(7))
HAS_DEVICE_TIME, IS_ROOT, HAS_DEVICE_ID = (1 << i for i in range(7, 10))

_LUT_SIZE = 1 << 20
"""Ids below this are looked up in an array; profilers count from 1, so only damaged bytes hold larger ones."""

LIMIT_PS = 1 << 60
"""Times beyond ± 13 days of the profile's start cannot be placed: with the session's epoch they must fit 64 bits."""


@dataclass(frozen=True)
class PlaneEvents:
    """Events of one plane. `[n_events]` each, in the order of the lines.

    Attributes:
        line: index of its line in the plane.
        meta: index of its metadata in the plane.
        start_ps: start, counted like the lines' time stamps.
        dur_ps: duration.
        op: id of the text that names its HLO op, or minus the offset of that text; valid with HAS_OP.
        op_bytes: bytes of the text where `op` is an offset.
        program: program id, valid with HAS_PROGRAM; the step number with HAS_STEP.
        run: run id of the execution, valid with HAS_RUN.
        correlation: id that links a launch with its execution, valid with HAS_CORRELATION.
        producer: id under which its completion is announced, valid with HAS_PRODUCER; the start on the device's own
            clock, ps, with HAS_DEVICE_TIME (then `dur_ps` is of that clock too).
        ordinal: device ordinal, valid with HAS_ORDINAL.
        flags: which of the above are known.
        flow: `[n_flows, 4]` kind (REGION, STOP, RECORD), line, time in ps, task id.
        end: `[n_ends, 2]` completions that were not matched on the spot: id, time in ps.
        ignored: bookkeeping events.
        dropped: events that could not be read or placed.
        damaged: lines whose bytes are damaged: `(line, offset)`.
    """

    line: NDArray[np.int32]
    meta: NDArray[np.int32]
    start_ps: Int64s
    dur_ps: Int64s
    op: Int64s
    op_bytes: NDArray[np.int32]
    program: Int64s
    run: Int64s
    correlation: Int64s
    producer: Int64s
    ordinal: NDArray[np.int32]
    flags: NDArray[np.int16]
    flow: Int64s
    end: Int64s
    ignored: int
    dropped: int
    damaged: list[tuple[int, int]]


_COLUMNS = ("line", "meta", "start_ps", "dur_ps", "op", "op_bytes", "program", "run", "correlation", "producer", "ordinal", "flags")


def decode_events(
    data: Bytes, plane: Plane, *, base_ns: int, meta_class: NDArray[np.int8], line_kept: NDArray[np.bool_]
) -> PlaneEvents:
    """Decode every event of a plane.

    Args:
        data: the whole XSpace.
        plane: the plane.
        base_ns: what the lines' time stamps count from: 0, or a Unix time in ns where they are absolute.
        meta_class: `[n_metadata]` KEEP, IGNORE, …
        line_kept: `[n_lines]` False for lines that repeat what others hold; their events are counted as ignored.
    """
    bounds = np.array([(line.start, line.end) for line in plane.lines], np.int64).reshape(-1, 2)
    base_ps = np.array([_line_base_ps(line.timestamp_ns, base_ns) for line in plane.lines], np.int64)
    meta = _id_table({int(key): i for i, key in enumerate(plane.meta_id)})
    slot = _id_table({key: SLOTS[name] for key, name in plane.stat_name.items() if name in SLOTS})
    capacity = sum(line.events for line in plane.lines)
    arguments = (data, bounds, base_ps, line_kept, (*meta, meta_class, *slot), capacity)
    columns, flow, end, counts, stops = _decode(*arguments, None)
    if counts[2]:  # written by another serializer, or damaged
        columns, flow, end, counts, stops = _decode(*arguments, True)
    return PlaneEvents(
        **dict(zip(_COLUMNS, columns, strict=True)),
        flow=flow,
        end=end,
        ignored=int(counts[0]),
        dropped=int(counts[1]),
        damaged=[(int(i), int(stops[i])) for i in np.flatnonzero(stops >= 0)],
    )


def _line_base_ps(timestamp_ns: int, base_ns: int) -> int:
    """A line's time in ps, pushed out of range (so that its events are dropped) where it does not fit."""
    base_ps = (timestamp_ns - base_ns) * 1000
    return base_ps if abs(base_ps) < LIMIT_PS else 2 * LIMIT_PS - 1


def _id_table(index_of: Mapping[int, int]) -> tuple[NDArray[np.int32], Int64s, NDArray[np.int32]]:
    """Id → index: an array for small ids, sorted pairs for the others; -1 is unknown.

    An id of one byte that is in neither is -1 without looking further."""
    small = {key: index for key, index in index_of.items() if 0 <= key < _LUT_SIZE}
    large = sorted((key, index) for key, index in index_of.items() if not 0 <= key < _LUT_SIZE)
    lut = np.full(max(max(small, default=0) + 1, 256), -1, np.int32)  # any one byte can be looked up
    lut[list(small.keys())] = list(small.values())
    keys = np.array([key for key, _ in large], np.int64)
    return lut, keys, np.array([index for _, index in large], np.int32)


# Compiled loops.


@numba.njit(cache=True, inline="always")
def _index_of(key, lut, keys, indices):
    if 0 <= key < len(lut):
        return lut[key]
    if len(keys):
        i = np.searchsorted(keys, key)
        if i < len(keys) and keys[i] == key:
            return indices[i]
    return np.int32(-1)


@numba.njit(cache=True, inline="always")
def _read_event(
    data, pos, end, meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index, slots, kinds
):
    """XEvent: metadata_id=1, offset_ps=2, duration_ps=3, stats=4, num_occurrences=5.

    Straight through the order in which every serializer writes the fields, each test in its own place: a loop over fields
    of any kind takes several times as long.

    Returns the metadata's index, offset, duration, a mask of the slots found, and whether the event was in that order.
    """
    key = offset = duration = mask = np.int64(0)
    at = pos
    if at < end and data[at] == 0x08:
        key, at = read_varint(data, at + 1, end)
    if 0 <= at < end and data[at] == 0x10:
        offset, at = read_varint(data, at + 1, end)
    if 0 <= at < end and data[at] == 0x18:
        duration, at = read_varint(data, at + 1, end)
    index = _index_of(key, meta_lut, meta_ids, meta_index)
    wanted = index < 0 or (meta_class[index] != IGNORE and meta_class[index] != STOP)
    while 0 <= at < end - 1 and data[at] == 0x22 and data[at + 1] < 0x80:
        start = at + 2
        at = start + np.int64(data[at + 1])
        if at > end:
            break
        if not wanted:
            continue
        if not (at - start > 3 and data[start] == 0x08 and data[start + 1] < 0x80):
            return index, offset, duration, mask, False
        slot = slot_lut[data[start + 1]]
        if slot < 0:
            continue
        tag = data[start + 2]
        if tag not in {0x18, 0x20, 0x38} or (slot == 1) != (tag == 0x38):  # uint64, int64, reference
            return index, offset, duration, mask, False
        slots[slot], stop = read_varint(data, start + 3, at)
        kinds[slot] = -1
        mask |= np.int64(1) << slot
        if stop != at:
            return index, offset, duration, mask, False
    return index, offset, duration, mask, at == end


@numba.njit(cache=True)
def _read_any_event(
    data, pos, end, meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index, slots, kinds
):
    """As `_read_event`, its fields in any order; the last value tells whether the event can be placed."""
    key = offset = duration = mask = np.int64(0)
    placed = True
    while pos < end:
        number, wire, value, length, pos, state = read_field(data, pos, end)
        if state != INTACT:
            return _index_of(key, meta_lut, meta_ids, meta_index), offset, duration, mask, False
        if number == 4 and wire == LENGTH:
            slot = _read_any_stat(data, value, value + length, slot_lut, slot_ids, slot_index, slots, kinds)
            mask |= np.int64(1) << slot if slot >= 0 else np.int64(0)
        elif wire == VARINT:
            if number == 1:
                key = value
            elif number == 2:
                offset, placed = value, True
            elif number == 3:
                duration = value
            elif number == 5:
                placed = False
    return _index_of(key, meta_lut, meta_ids, meta_index), offset, duration, mask, placed


@numba.njit(cache=True)
def _read_any_stat(data, pos, end, slot_lut, slot_ids, slot_index, slots, kinds):
    """One XStat, its fields in any order, into its slot; -1 where nobody asked for it or its value is of another type."""
    slot = np.int32(-1)
    content = size = np.int64(0)
    kind, state = 0, INTACT
    while pos < end:
        number, wire, value, length, pos, state = read_field(data, pos, end)
        if state != INTACT:
            return np.int32(-1)
        if number == 1 and wire == VARINT:
            slot = _index_of(value, slot_lut, slot_ids, slot_index)
        elif 2 <= number <= 7 and (wire == LENGTH) == (number in {5, 6}):
            kind, content, size = number, value, length
    is_text = kind in {5, 7}
    if slot < 0 or (slot == 1) != is_text or not (is_text or kind in {3, 4}):
        return np.int32(-1)
    slots[slot] = content
    kinds[slot] = size if kind == 5 else -1
    return slot


@numba.njit(cache=True)
def _decode(data, bounds, base_ps, line_kept, tables, capacity, careful):
    # Longer than the house likes: one loop whose arrays are all written here; split up, each part would take twenty arrays.
    meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index = tables
    line = np.empty(capacity, np.int32)
    meta = np.empty(capacity, np.int32)
    start = np.empty(capacity, np.int64)
    dur = np.empty(capacity, np.int64)
    op = np.empty(capacity, np.int64)
    op_bytes = np.empty(capacity, np.int32)
    program = np.empty(capacity, np.int64)
    run = np.empty(capacity, np.int64)
    correlation = np.empty(capacity, np.int64)
    producer = np.empty(capacity, np.int64)
    ordinal = np.empty(capacity, np.int32)
    flags = np.empty(capacity, np.int16)
    flow = np.empty((capacity, 4), np.int64)
    ended = np.empty((capacity, 2), np.int64)
    slots = np.zeros(16, np.int64)
    kinds = np.zeros(16, np.int64)
    stops = np.full(len(bounds), -1, np.int64)
    n = n_flow = n_ended = ignored = dropped = 0
    odd = False
    for i in range(len(bounds)):
        pos, end, state = bounds[i, 0], bounds[i, 1], INTACT
        while pos < end and state == INTACT:
            value = pos + 2
            if data[pos] == 0x22 and value <= end and data[pos + 1] < 0x80 and value + data[pos + 1] <= end:
                length = np.int64(data[pos + 1])
                pos = value + length
            else:
                before = pos
                number, wire, value, length, pos, state = read_field(data, pos, end)
                if state != INTACT:
                    stops[i] = before
                if number != 4 or wire != LENGTH:
                    continue
            if not line_kept[i] and state == INTACT:
                ignored += 1
                continue
            if careful is None:  # decided when this is compiled: only the reader that is used is in the loop
                index, offset, duration, mask, placed = _read_event(
                    data, value, value + length, meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index,
                    slots, kinds,
                )  # fmt: skip
            else:
                index, offset, duration, mask, placed = _read_any_event(
                    data, value, value + length, meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index,
                    slots, kinds,
                )  # fmt: skip
            time = base_ps[i] + offset
            fits = 0 <= duration < LIMIT_PS and abs(offset) < LIMIT_PS and abs(time) < LIMIT_PS
            if careful is None and not placed:
                odd = True
                break
            if state != INTACT or index < 0 or not placed or not fits:
                dropped += 1
                continue
            what = meta_class[index]
            if what != KEEP:
                ignored += 1
                if what == END and mask & 256:
                    if n == 0 or producer[n - 1] != slots[8] or line[n - 1] != i or time > start[n - 1] + dur[n - 1]:
                        ended[n_ended, 0], ended[n_ended, 1] = slots[8], time
                        n_ended += 1
                elif what != END and what != IGNORE:
                    task = slots[8] if what == REGION and mask & 256 else np.int64(-1)
                    flow[n_flow, 0], flow[n_flow, 1], flow[n_flow, 2] = what, i, time
                    flow[n_flow, 3] = slots[7] if what == RECORD and mask & 128 else task
                    n_flow += 1
                continue
            line[n], meta[n], start[n], dur[n] = i, index, time, duration
            found = 0
            op[n] = op_bytes[n] = program[n] = run[n] = correlation[n] = ordinal[n] = 0
            producer[n] = -1
            if mask & 2:
                found |= HAS_OP
                op[n] = slots[1] if kinds[1] < 0 else -slots[1]
                op_bytes[n] = max(kinds[1], 0)
            if mask & 4:
                found |= HAS_PROGRAM
                program[n] = slots[2]
            if mask & 8:
                found |= HAS_RUN
                run[n] = slots[3]
            if mask & 16:
                found |= HAS_ORDINAL
                ordinal[n] = slots[4] & 0xFFFF
            if mask & 32:
                found |= HAS_CORRELATION
                correlation[n] = slots[5]
            if mask & 64:
                found |= HAS_STEP
                program[n] = slots[6]
            if mask & 128:
                found |= HAS_PRODUCER
                producer[n] = slots[7]
            if mask & 512 and mask & 1024 and 0 <= slots[10] < LIMIT_PS and 0 <= slots[9] < LIMIT_PS:
                found |= HAS_DEVICE_TIME
                dur[n], producer[n] = slots[10], slots[9]
            if mask & 2048:
                found |= IS_ROOT
            if mask & 4096:
                found |= HAS_DEVICE_ID
            flags[n] = found
            n += 1
    columns = (
        line[:n], meta[:n], start[:n], dur[:n], op[:n], op_bytes[:n],
        program[:n], run[:n], correlation[:n], producer[:n], ordinal[:n], flags[:n],
    )  # fmt: skip
    return columns, flow[:n_flow], ended[:n_ended], np.array([ignored, dropped, odd]), stops
