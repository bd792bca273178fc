"""What TensorStore keeps for Orbax, read by TensorStore: OCDBT databases, and Zarr arrays without one around them.

Of a database its manifest and nodes are read, which say in which file, from which byte and how long every value lies.
Of an array its description is, and whether every chunk is there; a chunk is not unpacked, which takes 1.1 s for 240 MB
(docs/design/0009-checkpoint-readers.md): a zstd frame says where each of its blocks ends.

Source: zstd frames, RFC 8878 3.1.1.
"""

import math
import re
from collections.abc import Callable
from typing import Any, BinaryIO

from phasepoint.checkpoints.facts import CheckpointPlace
from phasepoint.core.errors import SourceError

MOST_CHUNKS = 100_000
"""Chunks of one array that are looked at; an array of more is not judged."""

MOST_NODES_BYTES = 128 << 20
"""Bytes of all nodes of one database; a million chunks take about half of that."""

_MANIFEST = "manifest.ocdbt"
_LOCATION = re.compile(r"(?P<kind>\w+):(?P<base>[^:]*):(?P<file>[^:]*):(?P<offset>\d+):(?P<length>\d+)")
"""Source: "location" in the documentation of `tensorstore.ocdbt.dump`."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

Read = Callable[[str, int, int], bytes]
"""File, first byte and count to bytes; raises where the file is not there, or shorter."""


class UncheckedError(Exception):
    """It cannot be told whether all is there: the library is not installed, or the packing is not known here."""


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise UncheckedError(
            "its arrays are TensorStore's, which is not installed: pip install 'phasepoint[checkpoints]'"
        ) from error
    return tensorstore


def find_value_ends(read: Read, manifest: bytes) -> dict[str, int]:
    """By file, how many bytes it must have at least for the newest version of an OCDBT database.

    The nodes are handed to TensorStore from memory, so that it reads what Phasepoint opens, wherever that lies.

    Args:
        read: reads the files of the database, whose paths are relative to its folder.
        manifest: content of its manifest.

    Raises:
        SourceError: the manifest or a node is damaged, or they take too many bytes.
        UncheckedError: TensorStore is not there, or the database has no version in its manifest.
    """
    ts = _tensorstore()
    memory = ts.KvStore.open("memory://").result()
    memory[_MANIFEST] = manifest
    versions = _dump(ts, memory, _MANIFEST).get("versions")
    if not versions:
        raise UncheckedError(f"{_MANIFEST} names no version")
    ends: dict[str, int] = {}
    waiting = [versions[-1]["root"].get("location")]
    left = MOST_NODES_BYTES
    while waiting:
        location = waiting.pop()
        if location is None:
            continue
        parts = _LOCATION.fullmatch(location)
        if parts is None:
            raise SourceError(f"{_MANIFEST}: a value or node lies at {location!r}, which is no place")
        path, begin, count = parts["base"] + parts["file"], int(parts["offset"]), int(parts["length"])
        ends[path] = max(ends.get(path, 0), begin + count)
        if parts["kind"] == "value":
            continue
        left -= count
        if left < 0:
            raise SourceError(f"{path}: its nodes take more bytes than are read")
        memory[path] = read(path, begin, count)
        entries = _dump(ts, memory, path, f"btreenode:{parts['base']}:{parts['file']}:0:{count}")["entries"]
        waiting += [entry.get("indirect_value") or entry.get("location") for entry in entries]
    return ends


def _dump(ts: Any, memory: Any, path: str, node: str | None = None) -> dict[str, Any]:
    """What TensorStore says of the manifest, or of a node."""
    try:
        return dict(ts.ocdbt.dump(memory, node).result())
    except (ValueError, OSError) as error:
        raise SourceError(f"{path}: {_first_line(error)}") from error


def find_gap(place: CheckpointPlace, folder: str, *, fills: bool) -> str | None:
    """What of a Zarr array is missing or cut off, in words; None where nothing is.

    Args:
        place: the checkpoint.
        folder: the array's folder in it.
        fills: whether a chunk of nothing but the fill value may have been left out.

    Raises:
        SourceError: what describes the array cannot be read.
        UncheckedError: TensorStore is not there, or the array is packed in a way that is not known here.
    """
    ts = _tensorstore()
    v3 = f"{folder}/zarr.json" in place.files
    name = f"{folder}/{'zarr.json' if v3 else '.zarray'}"
    try:
        array = ts.open({"driver": "zarr3" if v3 else "zarr", "kvstore": place.kvstore(folder)}).result()
        metadata = array.spec().to_json()["metadata"]
    except (ValueError, OSError) as error:
        if not place.is_local:  # the job's credentials and endpoints are pyarrow's, which TensorStore may not have
            raise UncheckedError(f"TensorStore cannot open {name}: {_first_line(error)}") from error
        raise SourceError(f"{name}: cannot be read: {_first_line(error)}") from error
    chunk = array.chunk_layout.write_chunk.shape or ()  # None of a scalar
    count = math.prod(-(-whole // part) for whole, part in zip(array.shape, chunk, strict=True))
    if count > MOST_CHUNKS:
        raise UncheckedError(f"an array of {count:,} chunks")
    try:  # of a shard it reads the index, which has a checksum
        whole = array.storage_statistics(query_fully_stored=True).result().fully_stored
    except (ValueError, OSError) as error:
        return f"{folder} is cut off or damaged: {_first_line(error)}"
    if not (whole or fills):
        return f"a chunk of {folder} is not there"
    packing = metadata["codecs"][-1]["name"] if v3 else (metadata["compressor"] or {"id": "bytes"})["id"]
    chunk_bytes = math.prod(chunk) * array.dtype.numpy_dtype.itemsize
    chunks = (path for path in place.below(folder) if not path.rpartition("/")[2].startswith((".", "zarr.json")))
    damaged = (path for path in chunks if not _ends_well(place, path, packing, chunk_bytes))
    return next((f"{path} is cut off or damaged" for path in damaged), None)


def _ends_well(place: CheckpointPlace, path: str, packing: str, chunk_bytes: int) -> bool:
    """Whether a chunk's file holds all of it."""
    if packing == "sharding_indexed":
        return True
    if packing == "bytes":
        return place.files[path] == chunk_bytes
    if packing != "zstd":
        raise UncheckedError(f"arrays packed by {packing}")
    with place.open(path) as file:
        return _zstd_bytes(file) == place.files[path]


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


def _first_line(error: Exception) -> str:
    """TensorStore's message without the traces of its source that follow."""
    return str(error).partition("\n")[0].partition(" [")[0]
