"""Packed data of unknown origin: unpacked no further than its packed size makes likely.

1.5 MB of gzip can hold 1.5 GB, of which a reader makes twice as much. So how large a file is says how much of memory
reading it takes: what unpacks to more than `MOST_RATIO` times its size, beyond `FREE_BYTES`, is refused.
"""

import zlib

from phasepoint.core.errors import SourceError
from phasepoint.core.units import format_bytes

MOST_RATIO = 40
"""More than the traces that shrink most: of 19 real ones as JSON the median shrinks 16 times by gzip -9, rocprofv3's 25
times, Jaeger's spans 33 times. A reader takes some ten bytes of memory for each of JSON."""

FREE_BYTES = 32 << 20
"""What unpacks to no more than this is read in any case: a few kilobytes shrink further."""

_GZIP = b"\x1f\x8b"

_PIECE_BYTES = 1 << 14
"""Packed bytes that are handed over at once: what stands behind a member is copied, and a file may have a million."""


class PackedTooFar(SourceError):
    """Data unpack to more than `most_unpacked` allows. Exit code 7."""

    def __init__(self, name: str, packed_bytes: int, most_ratio: int = MOST_RATIO) -> None:
        super().__init__(tell_too_far(name, packed_bytes, most_ratio))


def tell_too_far(name: str, packed_bytes: int, most_ratio: int = MOST_RATIO) -> str:
    """What is wrong with data that unpack to more than they may, and what to do."""
    most = format_bytes(most_unpacked(packed_bytes, most_ratio))
    return (
        f"{name}: {format_bytes(packed_bytes)} unpack to more than {most}, {most_ratio} times as much and more than "
        "any trace does: a damaged file, or one made to fill the memory; if you trust it, unpack it first"
    )


def most_unpacked(packed_bytes: int, most_ratio: int = MOST_RATIO) -> int:
    """Bytes that so many packed ones may unpack to."""
    return FREE_BYTES + most_ratio * packed_bytes


def is_packed(head: bytes) -> bool:
    """Whether a file that begins so is packed with gzip."""
    return head.startswith(_GZIP)


def unpack_gzip(
    data: bytes, name: str = "packed data", *, stop_at: int | None = None, most_ratio: int = MOST_RATIO
) -> tuple[bytes, str | None]:
    """Content of gzip's members, and what was wrong with them, None where nothing was.

    Args:
        data: packed; truncated or damaged data give what comes before.
        name: what messages call them.
        stop_at: give the first so many bytes, whatever comes behind them; None for all.
        most_ratio: how many times their size they may unpack to.

    Raises:
        PackedTooFar: they unpack to more than `most_unpacked` allows.

    Example:
        >>> import gzip
        >>> unpack_gzip(gzip.compress(b"trace"))
        (b'trace', None)
    """
    most = most_unpacked(len(data), most_ratio) if stop_at is None else stop_at
    pieces: list[bytes] = []
    size = 0
    machine = zlib.decompressobj(wbits=31)
    try:
        for end in range(_PIECE_BYTES, len(data) + _PIECE_BYTES, _PIECE_BYTES):
            rest = data[end - _PIECE_BYTES : end]
            while rest:
                if machine.eof:
                    if not is_packed(rest + data[end : end + 1]):
                        return b"".join(pieces), None
                    machine = zlib.decompressobj(wbits=31)
                piece = machine.decompress(rest, most - size + 1)
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    if stop_at is not None:
                        return b"".join(pieces)[:stop_at], None
                    raise PackedTooFar(name, len(data), most_ratio)
                rest = machine.unused_data
    except zlib.error as error:
        return b"".join(pieces), str(error)
    return b"".join(pieces), None if machine.eof else "the gzip data is cut off"


def unpack_zstd(data: bytes, name: str = "packed data") -> bytes:
    """Content of frames of Zstandard.

    Args:
        data: packed.
        name: what messages call them.

    Raises:
        PackedTooFar: they unpack to more than `most_unpacked` allows.
        OSError: they are damaged.
    """
    import pyarrow as pa  # formats are listed in help, which loads no library

    most = most_unpacked(len(data))
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            plain: bytes = stream.read(most + 1)
    except pa.ArrowInvalid as error:
        raise OSError(str(error)) from error
    if len(plain) > most:
        raise PackedTooFar(name, len(data))
    return plain
