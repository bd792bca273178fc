"""How much of a JAX capture is compiled programs, without decoding it: they cost once, events cost by their number.

Its own file: the flusher asks it of each capture, where the reader of XPlane would cost more than the capture did.
Field numbers: tsl/profiler/protobuf/xplane.proto.
"""

_PLANES, _NAME = 1, 2  # of an XSpace; of an XPlane
_LENGTH_DELIMITED = 2  # kind of field in protobuf's encoding
_PROGRAMS = b"/host:metadata"
"""Name of the plane that holds them."""


def program_bytes(space: bytes) -> int:
    """Bytes of a serialised XSpace's plane of programs; 0 where it has none, or is no XSpace.

    Example:
        >>> program_bytes(b"\\x0a\\x14" + b"\\x08\\x01" + b"\\x12\\x0e/host:metadata" + b"\\x1a\\x00")
        20
    """
    at, total = 0, 0
    try:
        while at < len(space):
            field, at, end = _field(space, at)
            if field == _PLANES and _name(space[at : min(end, at + 64)]) == _PROGRAMS:
                total += end - at
            at = end
    except (IndexError, ValueError):
        return 0
    return total


def _name(plane: bytes) -> bytes:
    """A plane's name: its second field, after a number at most."""
    at = 0
    while plane[at] & 7 == 0:
        _, at = _varint(plane, at + 1)
    field, at, end = _field(plane, at)
    return plane[at:end] if field == _NAME else b""


def _field(data: bytes, at: int) -> tuple[int, int, int]:
    """Number of a field, and where its content begins and ends.

    Raises:
        ValueError: it is not one of a given length.
        IndexError: the data end before it does.
    """
    key, at = _varint(data, at)
    if key & 7 != _LENGTH_DELIMITED:
        raise ValueError(key)
    length, at = _varint(data, at)
    return key >> 3, at, at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
