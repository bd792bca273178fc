"""Raw captures: the profiler's bytes, compressed when their name ends in `.zst`."""

from pathlib import Path, PurePosixPath

import pyarrow as pa

from phasepoint.core.errors import StoreError
from phasepoint.store.filesystem import Location, read_file, write_file

RAW_FOLDER = "raw"
COMPRESSED_SUFFIX = ".zst"
MAX_RAW_BYTES = 16 << 30
"""Bound for one decompressed capture of an untrusted run."""

_CHUNK_BYTES = 16 << 20


def write_raw_file(location: Location, shard: str, relative_path: str, data: bytes) -> int:
    """Write a raw capture below a shard's `raw/` and return the bytes it takes there.

    Raises:
        StoreError: the path leads out of `raw/`, or the file cannot be written.
    """
    check_raw_path(location, shard, relative_path)
    stored = data
    if relative_path.endswith(COMPRESSED_SUFFIX):
        stored = pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
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
        root = Path(location.root).resolve()
        plain = Path(location.path(f"{shard}/{relative_path}")).resolve().is_relative_to(root)
    if not plain:
        raise StoreError(
            f"{location.show(shard)}: the path {relative_path!r} of a raw capture leads out of {RAW_FOLDER}/; "
            "the run was not written by Phasepoint or was changed since, do not trust it"
        )


def _decompress(name: str, stored: pa.Buffer, max_bytes: int) -> bytes:
    """Streamed, so that a few kilobytes that claim to be terabytes end at the bound."""
    chunks: list[bytes] = []
    size = 0
    if stored.size == 0:  # which the stream would take for an empty capture
        raise _corrupt(name, "it is empty")
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(name, max_bytes)
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(name, str(error)) from error
    return b"".join(chunks)


def _corrupt(name: str, reason: str) -> StoreError:
    return StoreError(
        f"{name}: the capture is truncated or corrupt ({reason}); expected a zstd frame. "
        "Its window cannot be converted; the other windows can"
    )


def _too_large(name: str, max_bytes: int) -> StoreError:
    return StoreError(f"{name}: the capture is larger than the {max_bytes} bytes that are read; record shorter windows")
