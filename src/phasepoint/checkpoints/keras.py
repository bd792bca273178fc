"""Keras 3: a `.keras` archive or folder with the weights in `model.weights.h5`, or such a file alone; Keras 2's `.h5`.

Of an HDF5 file only the first block is read, which says where the file ends, and the names in its root (`layers`,
`optimizer`), which tell what is in it.

Source: HDF5 File Format Specification 3.0, superblock versions 0 to 3 (section II.A), local heap (III.D); what keras
3.0 to 3.15 writes.
"""

import struct
from collections.abc import Iterable
from dataclasses import replace
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from phasepoint.checkpoints.facts import (
    NOTHING_TOLD,
    CheckpointContents,
    CheckpointFacts,
    CheckpointPlace,
    CheckpointState,
    parts_of,
)
from phasepoint.checkpoints.torch import inspect_torch, stored_at

MOST_NAMES_BYTES = 1 << 20
"""A larger list of names is not read; that of Keras's root has some dozens of bytes."""

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_WEIGHTS = "model.weights.h5"
_UNDEFINED = 0xFFFF_FFFF_FFFF_FFFF  # the undefined address: all bits set (II.A)
_FIRST_BYTES = 96  # of a superblock of version 0 with the entry of the root group (II.A.1)
_OFFSET_BYTES = 8  # HDF5's library's own choice of offsets' size


def is_keras(place: CheckpointPlace) -> bool:
    """An HDF5 file, an archive that is called `.keras`, or a folder with Keras's file of weights in it."""
    if not place.is_file:
        return _WEIGHTS in place.files
    return place.base_name.endswith(".keras") or place.read(count=len(_SIGNATURE)) == _SIGNATURE


def inspect_keras(place: CheckpointPlace) -> CheckpointFacts:
    """Whether archive and HDF5 file end where they say; what is in it by the names in the file's root."""
    if not place.is_file:
        return replace(_inspect_hdf5(place.file(_WEIGHTS)), size_bytes=place.size_bytes)
    if place.read(count=len(_SIGNATURE)) == _SIGNATURE:
        return _inspect_hdf5(place)
    facts = inspect_torch(place)  # the archive's directory, checksums and all
    if facts.state != "whole":
        return replace(facts, format="keras")
    return _inspect_archive(place)


def _inspect_archive(place: CheckpointPlace) -> CheckpointFacts:
    with place.open() as file:
        try:
            weights = ZipFile(file).getinfo(_WEIGHTS)
        except (BadZipFile, KeyError):
            return _told(place, "incomplete", f"its {_WEIGHTS} is not there")
        begin = stored_at(file, weights)
    if begin is None or weights.compress_type != ZIP_STORED:
        return CheckpointFacts("keras", "whole", None, place.size_bytes, CheckpointContents(has_model=True))
    return _inspect_hdf5(place, begin, weights.file_size)


def _inspect_hdf5(place: CheckpointPlace, begin: int = 0, size_bytes: int | None = None) -> CheckpointFacts:
    """The HDF5 file of so many bytes that begins at a byte of a file; without a size, the whole file."""
    size_bytes = place.files[""] - begin if size_bytes is None else size_bytes
    head = place.read(start=begin, count=_FIRST_BYTES)
    if len(head) < _FIRST_BYTES or not head.startswith(_SIGNATURE):
        return _told(
            place, "incomplete", "its weights do not begin as an HDF5 file does, or end within its first block"
        )
    version = head[8]
    if version > 3 or head[13 if version < 2 else 9] != _OFFSET_BYTES:
        return _told(place, "unknown", f"its weights are an HDF5 file of a kind that is not read (version {version})")
    at = {0: 40, 1: 44}.get(version, 28)
    (end,) = struct.unpack_from("<Q", head, at)
    if end != size_bytes:
        state: CheckpointState = "incomplete" if size_bytes < end else "corrupt"
        return _told(place, state, f"its weights have {size_bytes:,} bytes, and their first block promises {end:,}")
    names = _root_names(place, begin, head) if version == 0 else None
    return CheckpointFacts("keras", "whole", None, place.size_bytes, _contents(names))


def _root_names(place: CheckpointPlace, begin: int, head: bytes) -> frozenset[str] | None:
    """The names in the root of a file of version 0; None where they do not stand where that version puts them."""
    cached, _, _, heap = struct.unpack_from("<LLQQ", head, 72)
    if cached != 1 or heap == _UNDEFINED:
        return None
    block = place.read(start=begin + heap, count=32) if heap < place.files[""] else b""
    if len(block) < 32 or not block.startswith(b"HEAP"):
        return None
    count, _, names_at = struct.unpack_from("<QQQ", block, 8)
    if count > MOST_NAMES_BYTES or names_at >= place.files[""]:
        return None
    text = place.read(start=begin + names_at, count=count)
    return frozenset(one.decode("ascii", "replace") for one in text.split(b"\0") if one)


def _contents(names: Iterable[str] | None) -> CheckpointContents:
    """Keras keeps the states of its random generators among the layers, so that the root does not tell of them."""
    if names is None:
        return NOTHING_TOLD
    held = {"layers", "model_weights", "vars"} & set(names)
    optimizer = any("optimizer" in parts_of(name) for name in names)
    return CheckpointContents(bool(held) or None, optimizer, None, False)


def _told(place: CheckpointPlace, state: CheckpointState, problem: str) -> CheckpointFacts:
    return CheckpointFacts("keras", state, problem, place.size_bytes)
