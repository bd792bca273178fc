"""What `torch.save` writes: a zip archive with the pickle of the object and a record per storage.

A file of the format before PyTorch 1.6 is a row of pickles with the storages behind them; of such a one the pickles
are read, and whether the storages are all there can be told by their sizes.

Sources: the layout of the archive, https://pytorch.org/docs/stable/notes/serialization.html; zip, APPNOTE 6.3 4.3.
"""

import struct
import zlib
from dataclasses import replace
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from phasepoint.checkpoints.facts import (
    NOTHING_TOLD,
    CheckpointContents,
    CheckpointFacts,
    CheckpointPlace,
    CheckpointState,
    tell_contents,
)
from phasepoint.checkpoints.pickle_outline import Call, Mapped, Named, Outline, outline_pickle
from phasepoint.core.errors import SourceError

MOST_PICKLE_BYTES = 64 << 20
"""A larger pickle is not read: a checkpoint of 50,000 tensors has one of 6 MB."""

MOST_DIRECTORY_BYTES = 64 << 20
"""A larger directory of an archive is not read; it stands for half a million records."""

MOST_CHECKED_BYTES = 64 << 20
"""So many bytes of records are read for their checksums; of the rest, that they lie inside the file is all."""

_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_END_BYTES = 22
_END64_LOCATOR_BYTES = 20
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


def is_torch(place: CheckpointPlace) -> bool:
    """A zip archive or a pickle, or a file that is called as such files mostly are."""
    if not place.is_file:
        return False
    head = place.read(count=4)
    return head == _ZIP or (head[:1] == _PICKLE and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"})


def inspect_torch(place: CheckpointPlace) -> CheckpointFacts:
    """Whether every record of the archive is there as its directory says, and which keys the saved object has."""
    size_bytes = place.files[""]
    if size_bytes == 0:
        return _not_whole("incomplete", "it is empty", place)
    head = place.read(count=4)
    if head[:1] == _PICKLE:
        return _inspect_legacy(place)
    if head != _ZIP:
        found: CheckpointState = "incomplete" if _ZIP.startswith(head) else "corrupt"
        return _not_whole(found, f"it begins with {head!r}; expected a zip archive, as torch.save writes it", place)
    with place.open() as file:
        try:
            return _inspect_zip(place, file)
        except (SourceError, BadZipFile, NotImplementedError, struct.error, UnicodeDecodeError, ValueError) as error:
            return _not_whole("corrupt", f"the archive cannot be read: {error}", place)


def _inspect_zip(place: CheckpointPlace, file: BinaryIO) -> CheckpointFacts:
    size_bytes = place.files[""]
    directory_bytes = _directory_bytes(place, size_bytes)
    if directory_bytes is None:
        return _not_whole("incomplete", "the directory at the end of the archive is not there: it is cut off", place)
    if directory_bytes > MOST_DIRECTORY_BYTES:
        return _not_whole("unknown", f"its directory has {directory_bytes:,} bytes: not read", place)
    archive = ZipFile(file)
    problem = _first_problem(archive, file, size_bytes)
    if problem is not None:
        return _not_whole("corrupt", problem, place)
    pickle = next((one for one in archive.infolist() if one.filename.endswith("/data.pkl")), None)
    if pickle is None:
        names = [one.filename.rpartition("/")[2].removesuffix(".npy") for one in archive.infolist()]
        return CheckpointFacts("other", "whole", None, size_bytes, tell_contents(names))
    begin = stored_at(file, pickle)
    if pickle.file_size > MOST_PICKLE_BYTES or pickle.compress_type != ZIP_STORED or begin is None:
        return CheckpointFacts("torch", "whole", None, size_bytes, NOTHING_TOLD)
    outline = outline_pickle(place.read(start=begin, count=pickle.file_size))
    return CheckpointFacts("torch", "whole", None, size_bytes, contents_of(outline.value))


def _directory_bytes(place: CheckpointPlace, size_bytes: int) -> int | None:
    """Bytes of the archive's directory by its end record; None where there is no end record."""
    reach = min(size_bytes, _END_BYTES + 0xFFFF + _END64_LOCATOR_BYTES)
    tail = place.read(start=size_bytes - reach, count=reach)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END_BYTES:
        return None
    (found,) = struct.unpack_from("<L", tail, at + 12)
    if found != 0xFFFFFFFF:
        return int(found)
    locator = tail[max(at - _END64_LOCATOR_BYTES, 0) : at]
    if not locator.startswith(b"PK\x06\x07"):
        return None
    (begin,) = struct.unpack_from("<Q", locator, 8)
    if begin + 56 > size_bytes:
        return None
    end64 = place.read(start=begin, count=56)
    return int(struct.unpack_from("<Q", end64, 40)[0]) if len(end64) == 56 else None


def _first_problem(archive: ZipFile, file: BinaryIO, size_bytes: int) -> str | None:
    """What is wrong with the first record that is not as the directory says; None where all are."""
    left = MOST_CHECKED_BYTES
    for info in archive.infolist():
        begin = stored_at(file, info)
        if begin is None:
            return f"record {info.filename!r} is not where the archive's directory says"
        if begin + info.compress_size > min(size_bytes, archive.start_dir):
            return f"record {info.filename!r} is cut off"
        # Without a checksum (torch.serialization.set_crc32_options(False)) it is 0.
        if info.CRC and info.file_size <= left and info.compress_type == ZIP_STORED:
            left -= info.file_size
            file.seek(begin)
            if zlib.crc32(file.read(info.file_size)) != info.CRC:
                return f"record {info.filename!r} does not have the checksum that was written with it"
    return None


def stored_at(file: BinaryIO, info: ZipInfo) -> int | None:
    """Where a record's data begins by the header in front of it; None where there is none."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(_ZIP):
        return None
    *_, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    return info.header_offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)


def contents_of(value: Any) -> CheckpointContents:
    """What is in a saved object by its top-level keys, or those below a key that only wraps (`state`)."""
    entries = _entries(value)
    keys = entries.keys()
    if set(keys) >= _RANDOM_KEYS:  # Transformers' rng_state.pth
        return tell_contents(["rng"])
    if set(keys) == {"state", "param_groups"}:  # an optimizer's own state
        return tell_contents(["optimizer"])
    if _LIGHTNING in keys:
        return replace(_tell(entries), has_iterator=bool(_lightning_loaders(entries)))
    return _tell(entries)


def _lightning_loaders(entries: Mapped) -> Any:
    """The states of the loaders that have one; Lightning keeps them with its loops, an empty list where none has."""
    found: Any = entries
    for key in ("loops", "fit_loop", "state_dict", "combined_loader"):
        found = _entries(found).find(key)
    return found if isinstance(found, list) else None


def _tell(entries: Mapped) -> CheckpointContents:
    names = []
    for key, inner in entries.items:
        if isinstance(key, str):
            below = _entries(inner).keys()
            names += [f"{key}.{name}" for name in below] if below else [key]
    return tell_contents(names)


def _entries(value: Any) -> Mapped:
    if isinstance(value, Call):
        return value.entries
    return value if isinstance(value, Mapped) else Mapped()


def _inspect_legacy(place: CheckpointPlace) -> CheckpointFacts:
    """Five pickles (a magic number, the version, the machine, the object, the storages' keys), then the storages."""
    data = place.read(count=MOST_PICKLE_BYTES)
    outlines: list[Outline] = []
    begin = 0
    try:
        while len(outlines) < 5:
            outlines.append(outline_pickle(data[begin:]))
            begin += outlines[-1].size_bytes
            if outlines[0].value != _LEGACY_MAGIC:
                return _judge_pickle(place, outlines[0])
    except SourceError as error:
        state: CheckpointState = "unknown" if place.files[""] > MOST_PICKLE_BYTES else "incomplete"
        return _not_whole(state, f"written without an archive; {error}", place)
    return _judge_storages(place, outlines[3], outlines[4], begin)


def _judge_pickle(place: CheckpointPlace, outline: Outline) -> CheckpointFacts:
    """A pickle of the job's own making."""
    size_bytes = place.files[""]
    if outline.size_bytes != size_bytes:
        problem = (
            f"a pickle of {outline.size_bytes:,} bytes in a file of {size_bytes:,}: what follows cannot be checked"
        )
        return CheckpointFacts("other", "unknown", problem, size_bytes)
    return CheckpointFacts("other", "whole", None, size_bytes, contents_of(outline.value))


def _judge_storages(place: CheckpointPlace, saved: Outline, keys: Outline, begin: int) -> CheckpointFacts:
    """Whether the storages, each with its count of elements in front, end where the file ends."""
    size_bytes = place.files[""]
    element_bytes: dict[str, int] = {}
    for one in saved.outside:
        if isinstance(one, tuple) and len(one) >= 3 and isinstance(one[1], Named) and isinstance(one[2], str):
            element_bytes[one[2]] = _ELEMENT_BYTES.get(one[1].name.removeprefix("torch."), 0)
    with place.open() as file:
        for key in keys.value if isinstance(keys.value, list) else ():
            if not isinstance(key, str) or not element_bytes.get(key):
                return _not_whole("unknown", "written without an archive; a storage of a kind that is not known", place)
            file.seek(begin)
            count = int.from_bytes(file.read(8), "little")
            begin += 8 + count * element_bytes[key]
            if begin > size_bytes:
                return _not_whole("incomplete", "written without an archive; it ends within its storages", place)
    if begin != size_bytes:
        return _not_whole("corrupt", "written without an archive; its storages end before the file does", place)
    return CheckpointFacts("torch", "whole", None, size_bytes, contents_of(saved.value))


def _not_whole(state: CheckpointState, problem: str, place: CheckpointPlace) -> CheckpointFacts:
    return CheckpointFacts("torch", state, problem, place.size_bytes)


_LIGHTNING = "pytorch-lightning_version"
"""A key of every checkpoint of Lightning's `Trainer`. Source: lightning 2.0 to 2.6, `dump_checkpoint`."""

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""Source: `torch.serialization.MAGIC_NUMBER`."""

_RANDOM_KEYS = {"python", "numpy", "cpu"}
"""Keys of the random states of Transformers' `Trainer`. Source: `Trainer._save_rng_state`, 4.40 to 5.23."""

_ELEMENT_BYTES = {
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    **dict.fromkeys(("CharStorage", "ByteStorage", "BoolStorage", "QInt8Storage", "QUInt8Storage"), 1),
    "ComplexDoubleStorage": 16,
    "storage.UntypedStorage": 1,
}
"""Bytes of an element by the storage's class. Source: the classes of `torch.storage`."""
