"""A program's HLO proto as it stands in the table `programs`: compressed, and unpacked with a bound."""

import pyarrow as pa

from phasepoint.core.errors import SourceError

MAX_HLO_BYTES = 1 << 30
"""Bound for one unpacked proto of an untrusted run."""

_LEVEL = 6
_MAGIC = b"\x28\xb5\x2f\xfd"


def pack_hlo(proto: bytes) -> bytes:
    """A serialised `HloProto` as one frame of Zstandard."""
    packed: bytes = pa.Codec("zstd", compression_level=_LEVEL).compress(proto, asbytes=True)
    return packed


def unpack_hlo(packed: bytes, *, max_bytes: int = MAX_HLO_BYTES) -> bytes:
    """The serialised `HloProto` of a frame.

    Raises:
        SourceError: it is no such frame, damaged, or larger than `max_bytes`.
    """
    if not packed.startswith(_MAGIC):
        raise SourceError(f"no frame of Zstandard in the {len(packed)} bytes of a program's HLO")
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            proto: bytes = stream.read(max_bytes + 1)
    except OSError as error:
        raise SourceError(f"a program's HLO of {len(packed)} bytes is damaged: {error}") from error
    if len(proto) > max_bytes:
        raise SourceError(f"a program's HLO unpacks to more than {max_bytes} bytes")
    return proto
