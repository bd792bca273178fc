"""Raw captures: the profiler's bytes, compressed when their name ends in `.zst`."""

import os
from pathlib import Path, PurePosixPath

import pyarrow as pa

from phasepoint.core.errors import StoreError
from phasepoint.core.packing import most_unpacked, tell_too_far
from phasepoint.store.filesystem import Location, read_file, write_file

RAW_FOLDER = "raw"
COMPRESSED_SUFFIX = ".zst"
MAX_RAW_BYTES = 16 << 30
"""Bound for one decompressed capture of an untrusted run."""

SLICE_BYTES = 4 << 20
"""What is read and compressed at once of a capture that lies in a file: 5 ms of work, 8 MB of memory."""

_SIZE_MAGIC = b"\x5a\x2a\x4d\x18"
"""A skippable frame: magic numbers 0x184D2A50 to 0x184D2A5F."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_HEADER_BYTES = 18  # of a zstd frame. Source: RFC 8878, 3.1.1.1


def write_raw_file(location: Location, shard: str, relative_path: str, data: bytes | Path) -> int:
    """Write a raw capture below a shard's `raw/` and return the bytes it takes there.

    Args:
        location: the run.
        shard: the shard's name.
        relative_path: `raw/…`; compressed if it ends in `.zst`.
        data: the capture, or a file that holds it, of which no more than `SLICE_BYTES` are in memory at a time.

    Raises:
        StoreError: the path leads out of `raw/`, or the file cannot be written.
    """
    check_raw_path(location, shard, relative_path)
    if relative_path.endswith(COMPRESSED_SUFFIX):
        codec = pa.Codec("zstd", compression_level=1)
        stored = _compress_file(codec, data) if isinstance(data, Path) else codec.compress(data, asbytes=True)
    else:
        stored = data.read_bytes() if isinstance(data, Path) else data
    write_file(location, f"{shard}/{relative_path}", stored)
    return len(stored)


def read_raw_file(location: Location, shard: str, relative_path: str, *, max_bytes: int = MAX_RAW_BYTES) -> bytes:
    """A raw capture's bytes, decompressed if its name ends in `.zst`.

    Raises:
        StoreError: the path leads out of `raw/`; the capture is gone, truncated, corrupt or too large.
    """
    check_raw_path(location, shard, relative_path)
    relative = f"{shard}/{relative_path}"
    name = location.show(relative)
    try:
        stored = read_file(location, relative)
    except FileNotFoundError:
        raise StoreError(
            f"{name}: no such capture; it was dropped after conversion or not copied with the run. "
            "What was converted from it is in the tables"
        ) from None
    if relative_path.endswith(COMPRESSED_SUFFIX):
        return _decompress(name, stored, max_bytes)
    if stored.size > max_bytes:
        raise _too_large(name, max_bytes)
    return bytes(stored.to_pybytes())


def check_raw_path(location: Location, shard: str, relative_path: str) -> None:
    """Refuse a path that leads out of the shard's `raw/`: it stands in a table, and a run is untrusted.

    Raises:
        StoreError: it does.
    """
    path = PurePosixPath(relative_path)
    plain = (
        len(path.parts) >= 2
        and path.parts[0] == RAW_FOLDER
        and ".." not in path.parts
        and str(path) == relative_path
        and "\\" not in relative_path
        and "\0" not in relative_path
    )
    if plain and location.is_local:
        root = os.path.realpath(location.root)  # Path.resolve fails where links lead in a circle
        plain = Path(os.path.realpath(location.path(f"{shard}/{relative_path}"))).is_relative_to(root)
    if not plain:
        raise StoreError(
            f"{location.show(shard)}: the path {relative_path!r} of a raw capture leads out of {RAW_FOLDER}/; "
            "the run was not written by Phasepoint or was changed since, do not trust it"
        )


def _compress_file(codec: pa.Codec, path: Path) -> bytes:
    """A file as zstd frames of `SLICE_BYTES` each, behind a skippable one that says how large the whole is.

    Other tools skip that frame. Source: RFC 8878, section 3.1.2.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        frames = [_SIZE_MAGIC, (8).to_bytes(4, "little"), size.to_bytes(8, "little")]
        while slice_ := file.read(SLICE_BYTES):
            frames.append(codec.compress(slice_, asbytes=True))
    return b"".join(frames)


def _decompress(name: str, stored: pa.Buffer, max_bytes: int) -> bytes:
    """zstd frames, whose header says how large their content is: a bound before anything is decompressed."""
    size = _content_bytes(stored.slice(0, min(stored.size, _MAX_HEADER_BYTES)).to_pybytes())
    if size is None:
        raise _corrupt(name, "it does not begin with a zstd frame of known size")
    if size > max_bytes:
        raise _too_large(name, max_bytes)
    if size > most_unpacked(stored.size):
        raise StoreError(tell_too_far(name, stored.size))
    try:
        return bytes(pa.decompress(stored, decompressed_size=size, codec="zstd", asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(name, str(error)) from error


def _content_bytes(header: bytes) -> int | None:
    """Frame_Content_Size of a zstd frame, None if it is not there. Source: RFC 8878, section 3.1.1.1."""
    if header[:4] == _SIZE_MAGIC and header[4:8] == (8).to_bytes(4, "little") and len(header) >= 16:
        return int.from_bytes(header[8:16], "little")
    if header[:4] != _ZSTD_MAGIC or len(header) < 5:
        return None
    descriptor = header[4]
    single_segment = bool(descriptor & 0x20)
    field_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    field = header[start : start + field_bytes]
    if not field_bytes or len(field) < field_bytes:
        return None
    return int.from_bytes(field, "little") + (256 if field_bytes == 2 else 0)


def _corrupt(name: str, reason: str) -> StoreError:
    return StoreError(
        f"{name}: the capture is truncated or corrupt ({reason}); expected a zstd frame. "
        "Its window cannot be converted; the other windows can"
    )


def _too_large(name: str, max_bytes: int) -> StoreError:
    return StoreError(f"{name}: the capture is larger than the {max_bytes} bytes that are read; record shorter windows")
