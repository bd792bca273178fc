"""The compiled scanner of Chrome's trace format: bytes of a block → one row of integers for each event.

It reads JSON as it stands, in one pass and without building values: times become picoseconds from a whole
microsecond, texts become numbers of a table of the block's distinct texts. What is no JSON stops it at the event; a
forgiving reader has that one (`kineto_repair`).

Functions here are compiled and work on addresses, for a call with an array costs as much as reading a short text. The
block must be followed by `PADDING` bytes that may be read.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0911, PLR0912, PLR0915, PLR0917, PLR1714

PADDING = 16
"""Bytes behind a block that are read, and mean nothing."""

MAX_TEXTS = 1 << 15
TEXT_SLOTS = 1 << 17
"""Distinct texts of one call at most, and places of their hash table."""

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

NO_NUMBER = np.iinfo(np.int64).min

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

PHASES = "XBEibensftMCPIOND"


def _halves(text: bytes) -> tuple[int, int]:
    first = int.from_bytes(text[:8], "little", signed=False)
    last = int.from_bytes(text[-8:], "little", signed=False) if len(text) >= 8 else first
    return first, last


def slot_table() -> np.ndarray:
    """`[512, 4]` open-addressed table of the known arguments: first and last eight bytes, length, slot."""
    table = np.zeros((512, 4), np.int64)
    for name, slot in SLOTS.items():
        text = name.encode()
        first, last = (np.uint64(half).astype(np.int64) for half in _halves(text))
        place = int(_place_of(first, last, len(text)))
        while table[place, 2]:
            place = (place + 1) & 511
        table[place] = first, last, len(text), slot
    return table


# Compiled.


@intrinsic
def _byte(typing_context, address, offset):
    """The byte at an address."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(*arguments), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _word(typing_context, address, offset):
    """Eight bytes at an address, aligned or not."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(*arguments), ir.IntType(64).as_pointer())
        load = builder.load(pointer)
        load.align = 1
        return load

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _put(typing_context, address, offset, value):
    """Store a word at an aligned address."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(arguments[0], arguments[1]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def _first_bit(typing_context, value):
    """Zeros below the lowest bit that is set."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def _shift_right(typing_context, value, bits):
    """A logical shift: the sign does not stay."""

    def generate(context, builder, signature, arguments):
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), generate


_ONES = np.int64(0x0101010101010101)
_HIGHS = np.int64(-0x7F7F7F7F7F7F7F80)
_QUOTES = np.int64(0x2222222222222222)
_SLASHES = np.int64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.int64(0x2020202020202020)
_GOLDEN = np.int64(-0x61C8864680B583EB)
"""2^64 / golden ratio (Knuth, TAOCP 3, 6.4)."""


@numba.njit(cache=True, nogil=True)
def _place_of(first, last, size):
    mixed = (first ^ (last * np.int64(3) + size)) * _GOLDEN
    return _shift_right(mixed ^ _shift_right(mixed, np.int64(29)), np.int64(13)) & np.int64(511)


@numba.njit(cache=True, nogil=True)
def _skip_space(base, pos, end):
    while pos < end and _byte(base, pos) <= 0x20:
        pos += 1
    return pos


@numba.njit(cache=True, nogil=True)
def _skip_string(base, pos, end):
    """Position of the closing quote of a string that begins before `pos`; -1 if it does not end, -2 if it cannot be."""
    while True:
        word = _word(base, pos)
        quote, slash = word ^ _QUOTES, word ^ _SLASHES
        # Mycroft's test for zero bytes: the lowest bit marked is right; those above it may be wrong by a borrow.
        marks = ((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _SPACES) & ~word)
        marks &= _HIGHS
        if marks == 0:
            pos += 8
            if pos >= end:
                return np.int64(-1)
            continue
        pos += _first_bit(marks) >> 3
        if pos >= end:
            return np.int64(-1)
        byte = _byte(base, pos)
        if byte == 0x22:
            return pos
        if byte != 0x5C:
            return np.int64(-2)
        pos += 2


@numba.njit(cache=True, nogil=True)
def _skip_nested(base, pos, end):
    """Position behind the array or object that begins at `pos`; -1 and -2 as in `_skip_string`."""
    depth = 0
    while pos < end:
        byte = _byte(base, pos)
        if byte == 0x22:
            pos = _skip_string(base, pos + 1, end)
            if pos < 0:
                return pos
        elif byte | 0x20 == 0x7B:
            depth += 1
        elif byte | 0x20 == 0x7D:
            depth -= 1
            if depth == 0:
                return pos + 1
        pos += 1
    return np.int64(-1)


@numba.njit(cache=True, nogil=True)
def _skip_plain(base, pos, end):
    """Position behind a number or a word: true, false, null, NaN, Infinity."""
    start = pos
    numeric = True
    while pos < end:
        byte = _byte(base, pos)
        if byte <= 0x20 or byte == 0x2C or byte == 0x7D or byte == 0x5D:
            break
        if not (0x30 <= byte <= 0x39 or byte == 0x2E or byte == 0x2D or byte == 0x2B or byte | 0x20 == 0x65):
            numeric = False
        pos += 1
    if pos >= end:
        return np.int64(-1)
    if numeric:
        return pos if pos > start else np.int64(-2)
    size = pos - start
    word = _word(base, start)
    if size == 4 and (word & 0xFFFFFFFF == 0x65757274 or word & 0xFFFFFFFF == 0x6C6C756E):  # true, null
        return pos
    if size == 5 and word & 0xFFFFFFFFFF == 0x65736C6166:  # false
        return pos
    if size == 3 and word & 0xFFFFFF == 0x4E614E:  # NaN
        return pos
    if size == 8 and word == 0x7974696E69666E49:  # Infinity
        return pos
    if size == 9 and word == 0x74696E69666E492D:  # -Infinity
        return pos
    return np.int64(-2)


@numba.njit(cache=True, nogil=True)
def _skip_value(base, pos, end):
    """`(start, end of the text, position behind)`: of a string without its quotes; behind is -1 or -2 as above."""
    byte = _byte(base, pos)
    if byte == 0x22:
        stop = _skip_string(base, pos + 1, end)
        return pos + 1, stop, stop if stop < 0 else stop + 1
    stop = _skip_nested(base, pos, end) if byte | 0x20 == 0x7B else _skip_plain(base, pos, end)
    return pos, stop, stop


@numba.njit(cache=True, nogil=True)
def _read_whole(base, pos, end):
    """An integer written in full; `NO_NUMBER` for anything else."""
    negative = pos < end and _byte(base, pos) == 0x2D
    if negative:
        pos += 1
    if pos >= end or end - pos > 19:
        return NO_NUMBER
    value = np.int64(0)
    while pos < end:
        digit = _byte(base, pos) - 0x30
        if digit < 0 or digit > 9 or value > 922337203685477579:
            return NO_NUMBER
        value = value * 10 + digit
        pos += 1
    return -value if negative else value


_PLAIN, _ODD, _NO_TIME = 0, 1, 2


@numba.njit(cache=True, nogil=True)
def _read_time(base, pos, end, origin_us):
    """`(ps from the origin, how)` of decimal microseconds: plain; a number of another shape; no number."""
    start = pos
    negative = pos < end and _byte(base, pos) == 0x2D
    if negative:
        pos += 1
    whole = np.int64(0)
    first = pos
    while pos < end:
        digit = _byte(base, pos) - 0x30
        if digit < 0 or digit > 9:
            break
        whole = whole * 10 + digit
        pos += 1
    if pos == first or pos - first > 17:
        return np.int64(0), _NO_TIME if pos == start else _ODD
    fraction, scale = np.int64(0), np.int64(1_000_000)
    if pos < end and _byte(base, pos) == 0x2E:
        pos += 1
        while pos < end and scale > 1:
            digit = _byte(base, pos) - 0x30
            if digit < 0 or digit > 9:
                break
            scale //= 10
            fraction += digit * scale
            pos += 1
        while pos < end and _byte(base, pos) == 0x30:
            pos += 1
    if pos < end:
        return np.int64(0), _ODD
    if negative:
        whole, fraction = -whole, -fraction
    whole -= origin_us
    if abs(whole) >= 4_611_686_018_427:  # 2^62 ps
        return np.int64(0), _ODD
    return whole * 1_000_000 + fraction, _PLAIN


@numba.njit(cache=True, nogil=True)
def _hash_text(base, pos, end):
    mixed = (end - pos) * _GOLDEN
    while end - pos >= 8:
        mixed = (mixed ^ _word(base, pos)) * _GOLDEN
        mixed ^= _shift_right(mixed, np.int64(29))
        pos += 8
    if pos < end:
        mixed = (mixed ^ (_word(base, pos) & ((np.int64(1) << ((end - pos) * 8)) - 1))) * _GOLDEN
        mixed ^= _shift_right(mixed, np.int64(29))
    return mixed ^ _shift_right(mixed, np.int64(32))


@numba.njit(cache=True, nogil=True)
def _same_text(base, left, right, size):
    while size >= 8:
        if _word(base, left) != _word(base, right):
            return False
        left, right, size = left + 8, right + 8, size - 8
    return size == 0 or (_word(base, left) ^ _word(base, right)) & ((np.int64(1) << (size * 8)) - 1) == 0


@numba.njit(cache=True, nogil=True)
def _number_text(base, pos, end, table, texts):
    """Number of a text in the block's table; a new one is entered. `texts`: count, then start and length of each.

    The caller sees to it that there is room.
    """
    size = end - pos
    mixed = _hash_text(base, pos, end)
    place = mixed & (TEXT_SLOTS - 1)
    while True:
        entry = _word(table, place * 8)
        if entry < 0:
            break
        # The upper half of the hash stands beside the number, so that few texts are compared in vain.
        if (entry ^ mixed) & 0x7FFFFFFF00000000 == 0:
            number = entry & 0xFFFFFFFF
            if _word(texts, 16 + number * 16) == size and _same_text(base, _word(texts, 8 + number * 16), pos, size):
                return number
        place = (place + 1) & (TEXT_SLOTS - 1)
    number = _word(texts, np.int64(0))
    _put(texts, np.int64(0), number + 1)
    _put(texts, 8 + number * 16, pos)
    _put(texts, 16 + number * 16, size)
    _put(table, place * 8, (mixed & 0x7FFFFFFF00000000) | number)
    return number


@numba.njit(cache=True, nogil=True)
def _slot_of(slots, base, pos, end):
    size = end - pos
    first = _word(base, pos)
    if size >= 8:
        last = _word(base, end - 8)
    else:
        first &= (np.int64(1) << (size * 8)) - 1
        last = first
    place = _place_of(first, last, size)
    while True:
        known = _word(slots, place * 32 + 16)
        if known == 0:
            return np.int64(-1)
        if known == size and _word(slots, place * 32) == first and _word(slots, place * 32 + 8) == last:
            return _word(slots, place * 32 + 24)
        place = (place + 1) & 511


_POWERS = 10.0 ** np.arange(23)
_SPLIT = 134217729.0
"""2^27 + 1: halves a float for an exact product. Source: Dekker, Numerische Mathematik 18 (1971)."""


@numba.njit(cache=True, nogil=True)
def _divide(mantissa, power):
    """`mantissa / power` rounded once; the mantissa may have more digits than a float."""
    high = np.float64(mantissa)
    low = np.float64(mantissa - np.int64(high))
    quotient = high / power
    spread = _SPLIT * quotient
    first = spread - (spread - quotient)
    second = quotient - first
    spread = _SPLIT * power
    third = spread - (spread - power)
    fourth = power - third
    product = quotient * power
    error = ((first * third - product) + first * fourth + second * third) + second * fourth
    return quotient + (((high - product) - error) + low) / power


@numba.njit(cache=True, nogil=True)
def _read_float(base, pos, end):
    """`(value, whether it could be read)`: a decimal of up to 18 digits, with or without an exponent."""
    negative = pos < end and _byte(base, pos) == 0x2D
    if negative:
        pos += 1
    mantissa, digits, scale, point, any_digit = np.int64(0), 0, np.int64(0), False, False
    while pos < end:
        byte = _byte(base, pos)
        if byte == 0x2E and not point:
            point = True
        elif 0x30 <= byte <= 0x39 and digits < 18:
            mantissa = mantissa * 10 + (byte - 0x30)
            any_digit = True
            if mantissa > 0:
                digits += 1
            if point:
                scale += 1
        elif byte | 0x20 == 0x65 and any_digit:
            exponent = _read_whole(base, pos + 2 if _byte(base, pos + 1) == 0x2B else pos + 1, end)
            if abs(exponent) > 400:
                return 0.0, False
            scale -= exponent
            break
        else:
            return 0.0, False
        pos += 1
    if not any_digit or abs(scale) > 22 or (scale < 0 and mantissa > 9007199254740992):
        return 0.0, mantissa == 0 and any_digit
    value = _divide(mantissa, _POWERS[scale]) if scale >= 0 else np.float64(mantissa) * _POWERS[-scale]
    return -value if negative else value, True


@numba.njit(cache=True, nogil=True)
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
        while pos < end and (_byte(base, pos) <= 0x20 or _byte(base, pos) == 0x2C):
            pos += 1
        if pos >= end:
            return TAIL, pos, n, m
        begin, kept = pos, m
        byte = _byte(base, pos)
        if byte == 0x5D:
            return END, pos + 1, n, m
        if byte != 0x7B:
            return BAD, begin, n, m
        if n >= room or m >= room_extras or _word(texts, np.int64(0)) > MAX_TEXTS - 512:
            return FULL, begin, n, m
        phase = cat = name = pid = tid = ident = ident_end = np.int64(NONE)
        correlation = device = stream = np.int64(NO_NUMBER)
        start = dur = state = np.int64(0)
        args = np.int64(-1)
        is_range = False
        pos = _skip_space(base, pos + 1, end)
        while True:
            if pos >= end:
                return TAIL, begin, n, kept
            byte = _byte(base, pos)
            if byte == 0x7D:
                pos += 1
                break
            if byte != 0x22:
                return BAD, begin, n, kept
            key = pos + 1
            key_end = _skip_string(base, key, end)
            if key_end < 0:
                return (TAIL if key_end == -1 else BAD), begin, n, kept
            pos = _skip_space(base, key_end + 1, end)
            if pos >= end:
                return TAIL, begin, n, kept
            if _byte(base, pos) != 0x3A:
                return BAD, begin, n, kept
            pos = _skip_space(base, pos + 1, end)
            if pos >= end:
                return TAIL, begin, n, kept
            size = key_end - key
            word = _word(base, key) & ((np.int64(1) << (min(size, 7) * 8)) - 1)
            if size == 4 and word == 0x73677261 and _byte(base, pos) == 0x7B:  # args
                args = pos
                m = kept  # of two of a name the last counts
                pos = _skip_space(base, pos + 1, end)
                while True:
                    if pos >= end:
                        return TAIL, begin, n, kept
                    byte = _byte(base, pos)
                    if byte == 0x7D:
                        pos += 1
                        break
                    if byte != 0x22:
                        return BAD, begin, n, kept
                    key = pos + 1
                    key_end = _skip_string(base, key, end)
                    if key_end < 0:
                        return (TAIL if key_end == -1 else BAD), begin, n, kept
                    pos = _skip_space(base, key_end + 1, end)
                    if pos >= end:
                        return TAIL, begin, n, kept
                    if _byte(base, pos) != 0x3A:
                        return BAD, begin, n, kept
                    pos = _skip_space(base, pos + 1, end)
                    if pos >= end:
                        return TAIL, begin, n, kept
                    slot = _slot_of(slots, base, key, key_end)
                    value, value_end, pos = _skip_value(base, pos, end)
                    if pos < 0:
                        return (TAIL if pos == -1 else BAD), begin, n, kept
                    if slot >= MAIN_SLOT:
                        number = _read_whole(base, value, value_end)
                        if slot == MAIN_SLOT + CORRELATION:
                            correlation = number
                        elif slot == MAIN_SLOT + DEVICE:
                            device = number
                        else:
                            stream = number
                    elif slot >= NUMBER_SLOT:
                        number = _read_whole(base, value, value_end)
                        if number != NO_NUMBER and m - kept < 200:
                            extras[m, 0], extras[m, 1] = n * 256 + slot, number
                            m += 1
                    elif slot >= FLOAT_SLOT:
                        ratio, exact = _read_float(base, value, value_end)
                        if exact and m - kept < 200:
                            extras[m, 0], extras[m, 1] = n * 256 + slot, np.float64(ratio).view(np.int64)
                            m += 1
                    elif slot >= 0 and m - kept < 200:
                        extras[m, 0] = n * 256 + slot
                        extras[m, 1] = _number_text(base, value, value_end, table, texts)
                        m += 1
                    pos = _skip_space(base, pos, end)
                    if pos >= end:
                        return TAIL, begin, n, kept
                    byte = _byte(base, pos)
                    if byte == 0x2C:
                        pos = _skip_space(base, pos + 1, end)
                    elif byte != 0x7D:
                        return BAD, begin, n, kept
            else:
                value, value_end, pos = _skip_value(base, pos, end)
                if pos < 0:
                    return (TAIL if pos == -1 else BAD), begin, n, kept
                if size == 2:
                    if word == 0x6870:  # ph
                        phase = _byte(base, value) if value_end - value == 1 else np.int64(0)
                    elif word == 0x7374:  # ts
                        start, how = _read_time(base, value, value_end, origin_us)
                        state &= ~(KNOWS_START | SLOW_START)
                        if how == _PLAIN:
                            state |= KNOWS_START
                        elif how == _ODD:
                            start = value | (value_end - value) << 40
                            state |= SLOW_START
                    elif word == 0x6469:  # id
                        ident, ident_end = value, value_end
                elif size == 3:
                    if word == 0x727564:  # dur
                        dur, how = _read_time(base, value, value_end, np.int64(0))
                        state &= ~(KNOWS_DUR | SLOW_DUR)
                        if how == _PLAIN:
                            state |= KNOWS_DUR
                        elif how == _ODD:
                            dur = value | (value_end - value) << 40
                            state |= SLOW_DUR
                    elif word == 0x746163:  # cat
                        cat = _number_text(base, value, value_end, table, texts)
                        is_range = (
                            value_end - value == 19
                            and _word(base, value) == 0x6F72705F61647563
                            and _word(base, value_end - 8) == 0x65676E61725F7265
                        )
                    elif word == 0x646970:  # pid
                        pid = _number_text(base, value, value_end, table, texts)
                    elif word == 0x646974:  # tid
                        tid = _number_text(base, value, value_end, table, texts)
                elif size == 4 and word == 0x656D616E:  # name
                    name = _number_text(base, value, value_end, table, texts)
            pos = _skip_space(base, pos, end)
            if pos >= end:
                return TAIL, begin, n, kept
            byte = _byte(base, pos)
            if byte == 0x2C:
                pos = _skip_space(base, pos + 1, end)
            elif byte != 0x7D:
                return BAD, begin, n, kept
        if args >= 0 and (is_range or phase == 0x43):  # all arguments are values of counters
            m = kept
            at = _skip_space(base, args + 1, end)
            while _byte(base, at) == 0x22 and m - kept < 200:
                key = at + 1
                key_end = _skip_string(base, key, end)
                at = _skip_space(base, _skip_space(base, key_end + 1, end) + 1, end)
                value, value_end, at = _skip_value(base, at, end)
                number, exact = _read_float(base, value, value_end)
                extras[m, 0], extras[m, 1] = n * 256 + ARG_KEY, _number_text(base, key, key_end, table, texts)
                if exact:
                    extras[m + 1, 0] = n * 256 + ARG_FLOAT
                    extras[m + 1, 1] = np.float64(number).view(np.int64)
                else:
                    extras[m + 1, 0] = n * 256 + ARG_FLOAT_TEXT
                    extras[m + 1, 1] = _number_text(base, value, value_end, table, texts)
                m += 2
                at = _skip_space(base, at, end)
                if _byte(base, at) == 0x2C:
                    at = _skip_space(base, at + 1, end)
        # Arrows have ids too, one each: only those of asynchronous events are entered (b, e, n, S, F, T, p).
        if ident >= 0 and phase in (0x62, 0x65, 0x6E, 0x53, 0x46, 0x54, 0x70):
            ident = _number_text(base, ident, ident_end, table, texts)
        else:
            ident = np.int64(NONE)
        events[n, START], events[n, DUR], events[n, STATE], events[n, PHASE] = start, dur, state, phase
        events[n, CAT], events[n, NAME], events[n, PID], events[n, TID] = cat, name, pid, tid
        events[n, ID], events[n, CORRELATION], events[n, DEVICE], events[n, STREAM] = ident, correlation, device, stream
        n += 1
