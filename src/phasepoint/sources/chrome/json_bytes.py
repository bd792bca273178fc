"""JSON read byte by byte in compiled code: values are stepped over, numbers and texts are read where they stand.

Functions work on addresses, for a call with an array costs as much as reading a short text. The bytes must be followed
by `PADDING` more that may be read.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from phasepoint.core.compiled import compiled

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0911, PLR1714, D103

PADDING = 16
"""Bytes behind a block that are read, and mean nothing."""

MAX_TEXTS = 1 << 15  # a quarter of TEXT_SLOTS: an open-addressed table must not fill up
TEXT_SLOTS = 1 << 17
"""Distinct texts of one call at most, and places of their hash table."""

NO_NUMBER = np.iinfo(np.int64).min
"""A number that is not there."""

PLAIN, ODD, NO_TIME = 0, 1, 2
"""How a time stands there: a plain decimal; a number of another shape; no number."""


@intrinsic
def byte_at(typing_context, address, offset):
    """The byte at an address."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(*arguments), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def word_at(typing_context, address, offset):
    """Eight bytes at an address, aligned or not."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(*arguments), ir.IntType(64).as_pointer())
        load = builder.load(pointer)
        load.align = 1
        return load

    return types.int64(types.int64, types.int64), generate


@intrinsic
def put_word(typing_context, address, offset, value):
    """Store a word at an aligned address."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(arguments[0], arguments[1]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def first_bit(typing_context, value):
    """Zeros below the lowest bit that is set."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def shift_right(typing_context, value, bits):
    """A logical shift: the sign does not stay."""

    def generate(context, builder, signature, arguments):
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), generate


_ONES = np.int64(0x0101010101010101)
_HIGHS = np.int64(-0x7F7F7F7F7F7F7F80)
_QUOTES = np.int64(0x2222222222222222)
_SLASHES = np.int64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.int64(0x2020202020202020)
GOLDEN = np.int64(-0x61C8864680B583EB)
"""2^64 / golden ratio (Knuth, TAOCP 3, 6.4)."""


@compiled()
def skip_space(base, pos, end):
    while pos < end and byte_at(base, pos) <= 0x20:
        pos += 1
    return pos


@compiled()
def skip_string(base, pos, end):
    """Position of the closing quote of a string that begins before `pos`; -1 if it does not end, -2 if it cannot be."""
    while True:
        word = word_at(base, pos)
        quote, slash = word ^ _QUOTES, word ^ _SLASHES
        # Mycroft's test for zero bytes: the lowest bit marked is right; those above it may be wrong by a borrow.
        marks = ((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _SPACES) & ~word)
        marks &= _HIGHS
        if marks == 0:
            pos += 8
            if pos >= end:
                return np.int64(-1)
            continue
        pos += first_bit(marks) >> 3
        if pos >= end:
            return np.int64(-1)
        byte = byte_at(base, pos)
        if byte == 0x22:
            return pos
        if byte != 0x5C:
            return np.int64(-2)
        pos += 2


@compiled()
def skip_nested(base, pos, end):
    """Position behind the array or object that begins at `pos`; -1 and -2 as in `skip_string`."""
    depth = 0
    while pos < end:
        byte = byte_at(base, pos)
        if byte == 0x22:
            pos = skip_string(base, pos + 1, end)
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


@compiled()
def skip_plain(base, pos, end):
    """Position behind a number or a word: true, false, null, NaN, Infinity."""
    start = pos
    numeric = True
    while pos < end:
        byte = byte_at(base, pos)
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
    word = word_at(base, start)
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


@compiled()
def skip_value(base, pos, end):
    """`(start, end of the text, position behind)`: of a string without its quotes; behind is -1 or -2 as above."""
    byte = byte_at(base, pos)
    if byte == 0x22:
        stop = skip_string(base, pos + 1, end)
        return pos + 1, stop, stop if stop < 0 else stop + 1
    stop = skip_nested(base, pos, end) if byte | 0x20 == 0x7B else skip_plain(base, pos, end)
    return pos, stop, stop


@compiled()
def read_whole(base, pos, end):
    """An integer written in full; `NO_NUMBER` for anything else."""
    negative = pos < end and byte_at(base, pos) == 0x2D
    if negative:
        pos += 1
    if pos >= end or end - pos > 19:
        return NO_NUMBER
    value = np.int64(0)
    while pos < end:
        digit = byte_at(base, pos) - 0x30
        if digit < 0 or digit > 9 or value > 922337203685477579:
            return NO_NUMBER
        value = value * 10 + digit
        pos += 1
    return -value if negative else value


@compiled()
def read_time(base, pos, end, origin_us):
    """`(ps from the origin, how)` of decimal microseconds: plain; a number of another shape; no number."""
    start = pos
    negative = pos < end and byte_at(base, pos) == 0x2D
    if negative:
        pos += 1
    whole = np.int64(0)
    first = pos
    while pos < end:
        digit = byte_at(base, pos) - 0x30
        if digit < 0 or digit > 9:
            break
        whole = whole * 10 + digit
        pos += 1
    if pos == first or pos - first > 17:
        return np.int64(0), NO_TIME if pos == start else ODD
    fraction, scale = np.int64(0), np.int64(1_000_000)
    if pos < end and byte_at(base, pos) == 0x2E:
        pos += 1
        while pos < end and scale > 1:
            digit = byte_at(base, pos) - 0x30
            if digit < 0 or digit > 9:
                break
            scale //= 10
            fraction += digit * scale
            pos += 1
        while pos < end and byte_at(base, pos) == 0x30:
            pos += 1
    if pos < end:
        return np.int64(0), ODD
    if negative:
        whole, fraction = -whole, -fraction
    whole -= origin_us
    if abs(whole) >= 4_611_686_018_427:  # 2^62 ps
        return np.int64(0), ODD
    return whole * 1_000_000 + fraction, PLAIN


@compiled()
def hash_text(base, pos, end):
    mixed = (end - pos) * GOLDEN
    while end - pos >= 8:
        mixed = (mixed ^ word_at(base, pos)) * GOLDEN
        mixed ^= shift_right(mixed, np.int64(29))
        pos += 8
    if pos < end:
        mixed = (mixed ^ (word_at(base, pos) & ((np.int64(1) << ((end - pos) * 8)) - 1))) * GOLDEN
        mixed ^= shift_right(mixed, np.int64(29))
    return mixed ^ shift_right(mixed, np.int64(32))


@compiled()
def same_text(base, left, right, size):
    while size >= 8:
        if word_at(base, left) != word_at(base, right):
            return False
        left, right, size = left + 8, right + 8, size - 8
    return size == 0 or (word_at(base, left) ^ word_at(base, right)) & ((np.int64(1) << (size * 8)) - 1) == 0


@compiled()
def number_text(base, pos, end, table, texts):
    """Number of a text in the block's table; a new one is entered. `texts`: count, then start and length of each.

    The caller sees to it that there is room.
    """
    size = end - pos
    mixed = hash_text(base, pos, end)
    place = mixed & (TEXT_SLOTS - 1)
    while True:
        entry = word_at(table, place * 8)
        if entry < 0:
            break
        # The upper half of the hash stands beside the number, so that few texts are compared in vain.
        if (entry ^ mixed) & 0x7FFFFFFF00000000 == 0:
            number = entry & 0xFFFFFFFF
            if word_at(texts, 16 + number * 16) == size and same_text(base, word_at(texts, 8 + number * 16), pos, size):
                return number
        place = (place + 1) & (TEXT_SLOTS - 1)
    number = word_at(texts, np.int64(0))
    put_word(texts, np.int64(0), number + 1)
    put_word(texts, 8 + number * 16, pos)
    put_word(texts, 16 + number * 16, size)
    put_word(table, place * 8, (mixed & 0x7FFFFFFF00000000) | number)
    return number


_POWERS = 10.0 ** np.arange(23)  # the powers of ten that a float64 holds exactly
_SPLIT = 134217729.0
"""2^27 + 1: halves a float for an exact product. Source: Dekker, Numerische Mathematik 18 (1971)."""


@compiled()
def divide(mantissa, power):
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


@compiled()
def read_float(base, pos, end):
    """`(value, whether it could be read)`: a decimal of up to 18 digits, with or without an exponent."""
    negative = pos < end and byte_at(base, pos) == 0x2D
    if negative:
        pos += 1
    mantissa, digits, scale, point, any_digit = np.int64(0), 0, np.int64(0), False, False
    while pos < end:
        byte = byte_at(base, pos)
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
            exponent = read_whole(base, pos + 2 if byte_at(base, pos + 1) == 0x2B else pos + 1, end)
            if exponent < -400 or exponent > 400:  # NO_NUMBER among them, whose abs is itself
                return 0.0, False
            scale -= exponent
            break
        else:
            return 0.0, False
        pos += 1
    if not any_digit or abs(scale) > 22 or (scale < 0 and mantissa > 9007199254740992):
        return 0.0, mantissa == 0 and any_digit
    value = divide(mantissa, _POWERS[scale]) if scale >= 0 else np.float64(mantissa) * _POWERS[-scale]
    return -value if negative else value, True
