"""Protocol-buffer wire format, decoded in place by compiled loops. Every read is bounded; nothing here trusts a length.

Source: protobuf.dev, "Encoding" (varints, tags, wire types 0, 1, 2 and 5). Groups (3, 4) are not used by any schema
read here and end the message like any other byte that cannot be a tag.
"""

from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from phasepoint.core.arrays import Bytes, Int64s
from phasepoint.core.compiled import compiled
from phasepoint.core.errors import SourceError

INTACT, TRUNCATED, GARBLED = 0, 1, 2
"""How a message ended: whole; in the middle of a field; at bytes that are no field."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types."""

LEAST_FIELD_BYTES, FREE_FIELDS = 16, 100_000
"""Planes, lines and metadata take tens of bytes each, a decoded field takes 40. So many are read in any case."""

# Functions below are compiled: they take and return plain integers and arrays, and so carry no annotations.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0911


@dataclass(frozen=True)
class Fields:
    """The fields of one message, in their order.

    Attributes:
        number: `[n]` field numbers.
        wire: `[n]` wire types.
        value: `[n]` the varint or fixed value (as int64), or the offset of the payload of a length-delimited field.
        length: `[n]` bytes of the payload, 0 for numbers.
        state: how the message ended: INTACT, TRUNCATED or GARBLED.
        stop: offset of the first byte that was not read.
    """

    number: Int64s
    wire: Int64s
    value: Int64s
    length: Int64s
    state: int
    stop: int

    def last(self, number: int, default: int = 0) -> int:
        """The value of a number field, as protobuf has it: the last one given, else `default`."""
        found = np.flatnonzero((self.number == number) & (self.wire != LENGTH))
        return int(self.value[found[-1]]) if len(found) else default

    def spans(self, number: int) -> list[tuple[int, int]]:
        """`(start, end)` offsets of each payload of a length-delimited field."""
        found = np.flatnonzero((self.number == number) & (self.wire == LENGTH))
        return [(int(self.value[i]), int(self.value[i] + self.length[i])) for i in found]

    def whole_spans(self, number: int) -> list[tuple[int, int]]:
        """As `spans`, without a last one that may have been cut off."""
        spans = self.spans(number)
        return spans[:-1] if self.state != INTACT and spans and spans[-1][1] == self.stop else spans


def as_bytes(data: bytes | bytearray | memoryview) -> Bytes:
    """The data as an array without a copy; read-only, so that one compiled version serves every input."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def read_fields(data: Bytes, start: int, end: int) -> Fields:
    """Read one message's fields; a payload cut off by `end` is kept, shortened, and marks the message TRUNCATED.

    Raises:
        SourceError: it has more fields than its size makes likely.
    """
    count = _count_fields(data, start, end)
    if count > FREE_FIELDS + (end - start) // LEAST_FIELD_BYTES:
        raise SourceError(
            f"{count} fields in the {end - start} bytes from byte {start} on, more than any profiler writes: a damaged "
            "file, or one made to fill the memory"
        )
    number, wire, value, length, state, stop = _fill_fields(data, start, end, count)
    return Fields(number, wire, value, length, int(state), int(stop))


def read_text(data: Bytes, span: tuple[int, int]) -> str:
    """UTF-8 text of a payload; bytes that are not UTF-8 become U+FFFD, so that a name is always text."""
    return bytes(data[span[0] : span[1]]).decode("utf-8", "replace")


@compiled(inline="always")
def read_varint(data, pos, end):
    """`(value, next position)`; a next position of -1 is a truncated varint, -2 one of more than ten bytes."""
    value = shift = np.int64(0)
    while pos < end and shift < 70:
        byte = np.int64(data[pos])
        pos += 1
        value |= (byte & 0x7F) << shift  # the tenth byte's bits beyond 64 fall off, as protobuf has it
        if byte < 0x80:
            return value, pos
        shift += 7
    return np.int64(0), -2 if shift >= 70 else -1


@intrinsic
def _byte_at(typing_context, address, offset):
    """The byte at an address: what `data[i]` is, without the count of references that a call with an array costs."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(builder.add(*arguments), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@compiled()
def read_varint_at(address, pos, end):
    """As `read_varint`, of the bytes at an address; the caller keeps them alive, `end` bounds what is read."""
    value = shift = np.int64(0)
    while pos < end and shift < 70:
        byte = _byte_at(address, pos)
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    return np.int64(0), -2 if shift >= 70 else -1


@compiled()
def read_field(data, pos, end):
    """One field: `(number, wire, value, length, next position, state)`.

    `value` is the number, or the payload's offset. A payload that reaches beyond `end` is shortened to it and the state
    is TRUNCATED; where nothing could be read the number is 0.
    """
    tag, after = read_varint(data, pos, end)
    number, wire = tag >> 3, tag & 7
    if after < 0 or number <= 0 or number > 0x1FFFFFFF:
        return 0, 0, np.int64(0), np.int64(0), pos, TRUNCATED if after == -1 else GARBLED
    if wire == VARINT:
        value, stop = read_varint(data, after, end)
        if stop < 0:
            return 0, 0, np.int64(0), np.int64(0), pos, TRUNCATED if stop == -1 else GARBLED
        return number, wire, value, np.int64(0), stop, INTACT
    if wire == LENGTH:
        length, start = read_varint(data, after, end)
        if start < 0 or length < 0:
            return 0, 0, np.int64(0), np.int64(0), pos, TRUNCATED if start == -1 else GARBLED
        if length > end - start:
            return number, wire, np.int64(start), np.int64(end - start), end, TRUNCATED
        return number, wire, np.int64(start), length, start + length, INTACT
    if wire not in (FIXED64, FIXED32):
        return 0, 0, np.int64(0), np.int64(0), pos, GARBLED
    width = 8 if wire == FIXED64 else 4
    if after + width > end:
        return 0, 0, np.int64(0), np.int64(0), pos, TRUNCATED
    fixed = np.uint64(0)
    for k in range(width):
        fixed |= np.uint64(data[after + k]) << np.uint64(8 * k)
    return number, wire, np.int64(fixed), np.int64(0), after + width, INTACT


@compiled()
def _count_fields(data, start, end):
    count = 0
    pos = start
    while pos < end:
        number, _, _, _, pos, state = read_field(data, pos, end)
        if number > 0:
            count += 1
        if state != INTACT:
            break
    return count


@compiled()
def _fill_fields(data, start, end, count):
    number = np.empty(count, np.int64)
    wire = np.empty(count, np.int64)
    value = np.empty(count, np.int64)
    length = np.empty(count, np.int64)
    pos, state, i = start, INTACT, 0
    while pos < end and state == INTACT:
        found, kind, content, size, pos, state = read_field(data, pos, end)
        if found > 0:
            number[i], wire[i], value[i], length[i] = found, kind, content, size
            i += 1
    return number, wire, value, length, state, pos
