"""The compiled scanner of Chrome's trace format: bytes of a block → one row of integers for each event.

It reads JSON as it stands, in one pass and without building values: times become picoseconds from a whole
microsecond, texts become numbers of a table of the block's distinct texts. What is no JSON stops it at the event; a
forgiving reader has that one (`kineto_repair`).
"""

import numpy as np

from phasepoint.core.compiled import compiled
from phasepoint.sources.chrome.json_bytes import (
    GOLDEN,
    MAX_TEXTS,
    NO_NUMBER,
    ODD,
    PLAIN,
    byte_at,
    number_text,
    read_float,
    read_time,
    read_whole,
    shift_right,
    skip_space,
    skip_string,
    skip_value,
    word_at,
)

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0911, PLR0912, PLR0915, PLR0917

END, TAIL, BAD, FULL = 0, 1, 2, 3
"""How a call ended: at the array's `]`; in the middle of an event (or behind the last); at an event that is no JSON;
with no room left. The position is the next event's, or in it all that was not read."""

COLUMNS = ("start_ps", "dur_ps", "state", "phase", "cat", "name", "pid", "tid", "id", "correlation", "device", "stream")
START, DUR, STATE, PHASE, CAT, NAME, PID, TID, ID, CORRELATION, DEVICE, STREAM = range(12)
N_COLUMNS = len(COLUMNS)

KNOWS_START, KNOWS_DUR, SLOW_START, SLOW_DUR = 1, 2, 4, 8
"""Bits of the state: there is a time; there is text in its place that only exact arithmetic can read, found at the
offset in its column (length above 40 bits)."""

NONE = -1
"""A text or a number that is not there."""

FLOAT_SLOT, NUMBER_SLOT, MAIN_SLOT = 40, 64, 128
ARG_KEY, ARG_FLOAT, ARG_FLOAT_TEXT = 60, 61, 62
"""Slots of arguments whose names are not known before: the name (text), then the value (bits of a float, or text)."""

SLOTS = {
    "name": 1,
    "Input Dims": 2,
    "Input dims": 2,
    "Input type": 3,
    "Input types": 3,
    "grid": 4,
    "block": 5,
    "Concrete Inputs": 6,
    "Collective name": 7,
    "Process Group Name": 8,
    "Process Group Ranks": 9,
    "dtype": 10,
    "graph id": 11,
    "graph node id": 12,
    "Module Hierarchy": 13,
    "Process Group ID": 14,
    "est. achieved occupancy %": 40,
    "memory bandwidth (GB/s)": 41,
    "bytes": 65,
    "size": 65,
    "Python id": 66,
    "Python parent id": 67,
    "Python module id": 68,
    "Sequence number": 69,
    "Fwd thread id": 70,
    "registers per thread": 71,
    "shared memory": 72,
    "Group size": 73,
    "In msg nelems": 74,
    "Out msg nelems": 75,
    "Seq": 76,
    "seq": 76,
    "Bytes": 77,
    "Total Allocated": 78,
    "Total Reserved": 79,
    "Device Type": 80,
    "Device Id": 81,
    "Addr": 82,
    "correlation": 128 + CORRELATION,
    "device": 128 + DEVICE,
    "stream": 128 + STREAM,
}
"""Arguments that are read: below 40 as text, below 64 as floats, below 128 as integers, above as columns.
Source of the names: pytorch/kineto, `libkineto/src/output_json.cpp`; torch `profiler_kineto.cpp` and
`ParamCommsUtils.hpp` (November 2026)."""


def slot_table() -> np.ndarray:
    """`[512, 4]` open-addressed table of the known arguments: first and last eight bytes, length, slot."""
    table = np.zeros((512, 4), np.int64)
    for name, slot in SLOTS.items():
        text = name.encode()
        halves = text[:8], text[-8:] if len(text) >= 8 else text
        first, last = (np.uint64(int.from_bytes(half, "little")).astype(np.int64) for half in halves)
        place = int(_place_of(first, last, len(text)))
        while table[place, 2]:
            place = (place + 1) & 511
        table[place] = first, last, len(text), slot
    return table


@compiled()
def _place_of(first, last, size):
    mixed = (first ^ (last * np.int64(3) + size)) * GOLDEN
    return shift_right(mixed ^ shift_right(mixed, np.int64(29)), np.int64(13)) & np.int64(511)


@compiled()
def _slot_of(slots, base, pos, end):
    size = end - pos
    first = word_at(base, pos)
    if size >= 8:
        last = word_at(base, end - 8)
    else:
        first &= (np.int64(1) << (size * 8)) - 1
        last = first
    place = _place_of(first, last, size)
    while True:
        known = word_at(slots, place * 32 + 16)
        if known == 0:
            return np.int64(-1)
        if known == size and word_at(slots, place * 32) == first and word_at(slots, place * 32 + 8) == last:
            return word_at(slots, place * 32 + 24)
        place = (place + 1) & 511


@compiled()
def scan_events(base, pos, end, origin_us, slots, table, texts, events, extras):
    """Read events from `pos` on; the array's `[` is behind already.

    Args:
        base: address of the block.
        pos: where to begin.
        end: where the block ends.
        origin_us: whole microseconds from which times count.
        slots: address of `slot_table()`.
        table: address of the `TEXT_SLOTS` words of the texts' hash table, all -1 at first.
        texts: address of `1 + 2 * MAX_TEXTS` words: how many texts, then offset and length of each.
        events: `[n_room, N_COLUMNS]` rows to fill.
        extras: `[m_room, 2]` arguments to fill: row × 256 + slot, value; in the order of rows.

    Returns:
        state (END, TAIL, BAD, FULL), position, events, extras.
    """
    # Longer than the house likes: one loop over bytes whose state is all local; in parts it is several times as slow.
    n = m = 0
    room, room_extras = len(events), len(extras) - 256
    while True:
        while pos < end and (byte_at(base, pos) <= 0x20 or byte_at(base, pos) == 0x2C):
            pos += 1
        if pos >= end:
            return TAIL, pos, n, m
        begin, kept = pos, m
        byte = byte_at(base, pos)
        if byte == 0x5D:
            return END, pos + 1, n, m
        if byte != 0x7B:
            return BAD, begin, n, m
        if n >= room or m >= room_extras or word_at(texts, np.int64(0)) > MAX_TEXTS - 512:
            return FULL, begin, n, m
        phase = cat = name = pid = tid = ident = ident_end = np.int64(NONE)
        correlation = device = stream = np.int64(NO_NUMBER)
        start = dur = state = np.int64(0)
        args = np.int64(-1)
        is_range = False
        pos = skip_space(base, pos + 1, end)
        while True:
            if pos >= end:
                return TAIL, begin, n, kept
            byte = byte_at(base, pos)
            if byte == 0x7D:
                pos += 1
                break
            if byte != 0x22:
                return BAD, begin, n, kept
            key = pos + 1
            key_end = skip_string(base, key, end)
            if key_end < 0:
                return (TAIL if key_end == -1 else BAD), begin, n, kept
            pos = skip_space(base, key_end + 1, end)
            if pos >= end:
                return TAIL, begin, n, kept
            if byte_at(base, pos) != 0x3A:
                return BAD, begin, n, kept
            pos = skip_space(base, pos + 1, end)
            if pos >= end:
                return TAIL, begin, n, kept
            size = key_end - key
            word = word_at(base, key) & ((np.int64(1) << (min(size, 7) * 8)) - 1)
            if size == 4 and word == 0x73677261 and byte_at(base, pos) == 0x7B:  # args
                args = pos
                m = kept  # of two of a name the last counts
                pos = skip_space(base, pos + 1, end)
                while True:
                    if pos >= end:
                        return TAIL, begin, n, kept
                    byte = byte_at(base, pos)
                    if byte == 0x7D:
                        pos += 1
                        break
                    if byte != 0x22:
                        return BAD, begin, n, kept
                    key = pos + 1
                    key_end = skip_string(base, key, end)
                    if key_end < 0:
                        return (TAIL if key_end == -1 else BAD), begin, n, kept
                    pos = skip_space(base, key_end + 1, end)
                    if pos >= end:
                        return TAIL, begin, n, kept
                    if byte_at(base, pos) != 0x3A:
                        return BAD, begin, n, kept
                    pos = skip_space(base, pos + 1, end)
                    if pos >= end:
                        return TAIL, begin, n, kept
                    slot = _slot_of(slots, base, key, key_end)
                    value, value_end, pos = skip_value(base, pos, end)
                    if pos < 0:
                        return (TAIL if pos == -1 else BAD), begin, n, kept
                    if slot >= MAIN_SLOT:
                        number = read_whole(base, value, value_end)
                        if slot == MAIN_SLOT + CORRELATION:
                            correlation = number
                        elif slot == MAIN_SLOT + DEVICE:
                            device = number
                        else:
                            stream = number
                    elif slot >= NUMBER_SLOT:
                        number = read_whole(base, value, value_end)
                        if number != NO_NUMBER and m - kept < 200:
                            extras[m, 0], extras[m, 1] = n * 256 + slot, number
                            m += 1
                    elif slot >= FLOAT_SLOT:
                        ratio, exact = read_float(base, value, value_end)
                        if exact and m - kept < 200:
                            extras[m, 0], extras[m, 1] = n * 256 + slot, np.float64(ratio).view(np.int64)
                            m += 1
                    elif slot >= 0 and m - kept < 200:
                        extras[m, 0] = n * 256 + slot
                        extras[m, 1] = number_text(base, value, value_end, table, texts)
                        m += 1
                    pos = skip_space(base, pos, end)
                    if pos >= end:
                        return TAIL, begin, n, kept
                    byte = byte_at(base, pos)
                    if byte == 0x2C:
                        pos = skip_space(base, pos + 1, end)
                    elif byte != 0x7D:
                        return BAD, begin, n, kept
            else:
                value, value_end, pos = skip_value(base, pos, end)
                if pos < 0:
                    return (TAIL if pos == -1 else BAD), begin, n, kept
                if size == 2:
                    if word == 0x6870:  # ph
                        phase = byte_at(base, value) if value_end - value == 1 else np.int64(0)
                    elif word == 0x7374:  # ts
                        start, how = read_time(base, value, value_end, origin_us)
                        state &= ~(KNOWS_START | SLOW_START)
                        if how == PLAIN:
                            state |= KNOWS_START
                        elif how == ODD:
                            start = value | (value_end - value) << 40
                            state |= SLOW_START
                    elif word == 0x6469:  # id
                        ident, ident_end = value, value_end
                elif size == 3:
                    if word == 0x727564:  # dur
                        dur, how = read_time(base, value, value_end, np.int64(0))
                        state &= ~(KNOWS_DUR | SLOW_DUR)
                        if how == PLAIN:
                            state |= KNOWS_DUR
                        elif how == ODD:
                            dur = value | (value_end - value) << 40
                            state |= SLOW_DUR
                    elif word == 0x746163:  # cat
                        cat = number_text(base, value, value_end, table, texts)
                        is_range = (
                            value_end - value == 19
                            and word_at(base, value) == 0x6F72705F61647563
                            and word_at(base, value_end - 8) == 0x65676E61725F7265
                        )
                    elif word == 0x646970:  # pid
                        pid = number_text(base, value, value_end, table, texts)
                    elif word == 0x646974:  # tid
                        tid = number_text(base, value, value_end, table, texts)
                elif size == 4 and word == 0x656D616E:  # name
                    name = number_text(base, value, value_end, table, texts)
            pos = skip_space(base, pos, end)
            if pos >= end:
                return TAIL, begin, n, kept
            byte = byte_at(base, pos)
            if byte == 0x2C:
                pos = skip_space(base, pos + 1, end)
            elif byte != 0x7D:
                return BAD, begin, n, kept
        if args >= 0 and (is_range or phase == 0x43):  # all arguments are values of counters
            m = kept
            at = skip_space(base, args + 1, end)
            while byte_at(base, at) == 0x22 and m - kept < 200:
                key = at + 1
                key_end = skip_string(base, key, end)
                at = skip_space(base, skip_space(base, key_end + 1, end) + 1, end)
                value, value_end, at = skip_value(base, at, end)
                number, exact = read_float(base, value, value_end)
                extras[m, 0], extras[m, 1] = n * 256 + ARG_KEY, number_text(base, key, key_end, table, texts)
                if exact:
                    extras[m + 1, 0] = n * 256 + ARG_FLOAT
                    extras[m + 1, 1] = np.float64(number).view(np.int64)
                else:
                    extras[m + 1, 0] = n * 256 + ARG_FLOAT_TEXT
                    extras[m + 1, 1] = number_text(base, value, value_end, table, texts)
                m += 2
                at = skip_space(base, at, end)
                if byte_at(base, at) == 0x2C:
                    at = skip_space(base, at + 1, end)
        # Arrows have ids too, one each: only those of asynchronous events are entered (b, e, n, S, F, T, p).
        if ident >= 0 and phase in (0x62, 0x65, 0x6E, 0x53, 0x46, 0x54, 0x70):
            ident = number_text(base, ident, ident_end, table, texts)
        else:
            ident = np.int64(NONE)
        events[n, START], events[n, DUR], events[n, STATE], events[n, PHASE] = start, dur, state, phase
        events[n, CAT], events[n, NAME], events[n, PID], events[n, TID] = cat, name, pid, tid
        events[n, ID], events[n, CORRELATION], events[n, DEVICE], events[n, STREAM] = ident, correlation, device, stream
        n += 1
