"""Zarr arrays on disk, without OCDBT around them: whether every chunk is there and ends where it should.

Nothing is unpacked: a zstd frame says where each of its blocks ends, and a shard ends with an index that has a CRC.

Sources: Zarr v2 and v3 (https://zarr-specs.readthedocs.io), sharding codec v1; zstd frames, RFC 8878 3.1.1.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from phasepoint.checkpoints.facts import CheckpointPlace
from phasepoint.checkpoints.ocdbt import crc32c
from phasepoint.core.errors import SourceError

MOST_CHUNKS = 100_000
"""Chunks of one array that are looked at; an array of more is not judged."""

MOST_INDEX_BYTES = 1 << 20
_MOST_DESCRIPTION_BYTES = 1 << 20
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_INDEX_ENTRY_BYTES = 16
_CRC_BYTES = 4
_NO_CHUNK = (1 << 64) - 1
_ELEMENT_BYTES = {"b1": 1, "i1": 1, "u1": 1, "f2": 2, "bfloat16": 2}


class UnknownPackingError(Exception):
    """The array is packed in a way that cannot be checked here."""


def find_gap(place: CheckpointPlace, folder: str, *, fills: bool) -> str | None:
    """What of an array is missing or cut off, in words; None where nothing is.

    Args:
        place: the checkpoint.
        folder: the array's folder in it.
        fills: whether a chunk of nothing but the fill value may have been left out.

    Raises:
        SourceError: what describes the array cannot be read.
        UnknownPackingError: it is packed in a way that is not known here.
    """
    v3 = f"{folder}/zarr.json" in place.files
    name = f"{folder}/{'zarr.json' if v3 else '.zarray'}"
    try:
        description = json.loads(place.read(name, count=_MOST_DESCRIPTION_BYTES))
        shape, chunk, packing = (_read_v3 if v3 else _read_v2)(description)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise SourceError(f"{name}: cannot be read: {error}") from error
    for chunk_name in _chunk_names(shape, chunk, description, v3=v3):
        path = f"{folder}/{chunk_name}"
        if path not in place.files:
            if not fills:
                return f"{path} is not there"
        elif not _ends_well(place, path, packing):
            return f"{path} is cut off or damaged"
    return None


def _read_v2(description: Mapping[str, Any]) -> tuple[list[int], list[int], Any]:
    compressor = description["compressor"]
    packing = compressor["id"] if compressor else _chunk_bytes(description["dtype"], description["chunks"])
    return _sizes(description["shape"]), _sizes(description["chunks"]), packing


def _read_v3(description: Mapping[str, Any]) -> tuple[list[int], list[int], Any]:
    chunk = _sizes(description["chunk_grid"]["configuration"]["chunk_shape"])
    *_, last = description["codecs"]
    if last["name"] != "sharding_indexed":
        return _sizes(description["shape"]), chunk, last["name"]
    inner = _sizes(last["configuration"]["chunk_shape"])
    index_codecs = [codec["name"] for codec in last["configuration"]["index_codecs"]]
    if index_codecs != ["bytes", "crc32c"] or last["configuration"].get("index_location", "end") != "end":
        raise UnknownPackingError(f"the index of its shards is packed by {', '.join(index_codecs)}")
    count = math.prod(math.ceil(whole / part) for whole, part in zip(chunk, inner, strict=True))
    return _sizes(description["shape"]), chunk, ("shard", count)


def _sizes(values: Any) -> list[int]:
    found = [int(value) for value in values]
    if any(value < 0 for value in found):
        raise ValueError(f"negative size in {found}")
    return found


def _chunk_bytes(dtype: str, chunk: Any) -> int:
    kind = dtype.lstrip("<>|=")
    element = _ELEMENT_BYTES.get(kind) or int(kind.lstrip("biufcV"))
    return element * math.prod(_sizes(chunk))


def _chunk_names(shape: list[int], chunk: list[int], description: Mapping[str, Any], *, v3: bool) -> Iterator[str]:
    counts = [math.ceil(whole / part) if part else 0 for whole, part in zip(shape, chunk, strict=True)]
    if math.prod(counts) > MOST_CHUNKS:
        raise UnknownPackingError(f"an array of {math.prod(counts):,} chunks")
    separator = "/" if v3 else str(description.get("dimension_separator", "."))
    for index in itertools.product(*(range(count) for count in counts)):
        parts = [str(one) for one in index]
        if v3:
            yield separator.join(["c", *parts])
        else:
            yield separator.join(parts) or "0"


def _ends_well(place: CheckpointPlace, path: str, packing: Any) -> bool:
    """Whether a chunk's file holds all of it; `packing` is its bytes, the name of the codec, or a shard's chunks."""
    size_bytes = place.files[path]
    with place.open(path) as file:
        if isinstance(packing, int):
            return size_bytes == packing
        if isinstance(packing, tuple):
            return _shard_ends_well(file, size_bytes, packing[1])
        if packing == "zstd":
            return _zstd_bytes(file) == size_bytes
    raise UnknownPackingError(f"arrays packed by {packing}")


def _shard_ends_well(file: BinaryIO, size_bytes: int, chunks: int) -> bool:
    """Whether a shard ends with an index of so many chunks, all of which lie in front of it."""
    index_bytes = _INDEX_ENTRY_BYTES * chunks + _CRC_BYTES
    if index_bytes > MOST_INDEX_BYTES:
        raise UnknownPackingError(f"shards of {chunks:,} chunks")
    if size_bytes < index_bytes:
        return False
    file.seek(size_bytes - index_bytes)
    index = file.read(index_bytes)
    if crc32c(index[:-_CRC_BYTES]) != int.from_bytes(index[-_CRC_BYTES:], "little"):
        return False
    for at in range(0, index_bytes - _CRC_BYTES, _INDEX_ENTRY_BYTES):
        offset, length = (int.from_bytes(index[at + i : at + i + 8], "little") for i in (0, 8))
        if offset != _NO_CHUNK and offset + length > size_bytes - index_bytes:
            return False
    return True


def _zstd_bytes(file: BinaryIO) -> int | None:
    """Bytes of the zstd frame with which a file begins, by the headers of its blocks; None where none is whole."""
    head = file.read(5)
    if len(head) < 5 or not head.startswith(_ZSTD_MAGIC):
        return None
    descriptor = head[4]
    single = descriptor >> 5 & 1
    content_bytes = (single, 2, 4, 8)[descriptor >> 6]
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + content_bytes
    while True:
        file.seek(at)
        header = file.read(3)
        if len(header) < 3:
            return None
        value = int.from_bytes(header, "little")
        last, kind, size = value & 1, value >> 1 & 3, value >> 3
        at += 3 + (1 if kind == 1 else size)  # kind 1 is one byte, repeated
        if kind == 3:
            return None
        if last:
            return at + (4 if descriptor >> 2 & 1 else 0)
