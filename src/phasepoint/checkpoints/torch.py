"""What `torch.save` writes: a zip archive with the pickle of the object and a record per storage.

The archive is read by `zipfile`; of the pickle only the outline. `torch.load` serves for neither: it refuses the states
of most trainers, and a tensor's changed byte passes (docs/design/0009-checkpoint-readers.md). It does serve for files
of the format before PyTorch 1.6, a row of pickles with the storages behind them.

Source: the layout of the archive, https://pytorch.org/docs/stable/notes/serialization.html; zip, APPNOTE 6.3 4.3.
"""

import pickle
import struct
import warnings
import zlib
from dataclasses import replace
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

from phasepoint.checkpoints.facts import (
    NOTHING_TOLD,
    CheckpointContents,
    CheckpointFacts,
    CheckpointPlace,
    CheckpointState,
    tell_contents,
)
from phasepoint.checkpoints.pickle_outline import Made, Outline, outline_pickle
from phasepoint.core.errors import SourceError

MOST_PICKLE_BYTES = 64 << 20
"""A larger pickle is not read: a checkpoint of 50,000 tensors has one of 6 MB."""

MOST_CHECKED_BYTES = 64 << 20
"""So many bytes of records are read for their checksums; of the rest, that they lie inside the file is all."""

MOST_LEGACY_BYTES = 4 << 30
"""A larger file without an archive is not loaded: `torch.load` takes as much memory for a moment, 0.4 s for 256 MB."""

_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_LEGACY_PICKLES = 5
"""Magic number, version, machine, object, keys of the storages. Source: `torch.serialization._legacy_save`."""


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
    if not is_zipfile(file):
        return _not_whole("incomplete", "the directory at the end of the archive is not there: it is cut off", place)
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
    if not isinstance(value, Made):
        return NOTHING_TOLD
    keys = value.keys()
    if set(keys) >= _RANDOM_KEYS:  # Transformers' rng_state.pth
        return tell_contents(["rng"])
    if set(keys) == {"state", "param_groups"}:  # an optimizer's own state
        return tell_contents(["optimizer"])
    if _LIGHTNING in keys:
        return replace(_tell(value), has_iterator=bool(_lightning_loaders(value)))
    return _tell(value)


def _lightning_loaders(saved: Made) -> Any:
    """The states of the loaders that have one; Lightning keeps them with its loops, an empty list where none has."""
    found: Any = saved
    for key in ("loops", "fit_loop", "state_dict", "combined_loader"):
        found = found.find(key) if isinstance(found, Made) else None
    return found if isinstance(found, list) else None


def _tell(saved: Made) -> CheckpointContents:
    names = []
    for key, inner in saved.items:
        if isinstance(key, str):
            below = inner.keys() if isinstance(inner, Made) else []
            names += [f"{key}.{name}" for name in below] if below else [key]
    return tell_contents(names)


def _inspect_legacy(place: CheckpointPlace) -> CheckpointFacts:
    """A pickle of the job's own making, or the pickles of PyTorch's old format and then its storages."""
    data = place.read(count=MOST_PICKLE_BYTES)
    outlines: list[Outline] = []
    begin = 0
    try:
        while len(outlines) < _LEGACY_PICKLES:
            outlines.append(outline_pickle(data[begin:]))
            begin += outlines[-1].size_bytes
            if outlines[0].value != _LEGACY_MAGIC:
                return _judge_pickle(place, outlines[0])
    except SourceError as error:
        state: CheckpointState = "unknown" if place.files[""] > MOST_PICKLE_BYTES else "incomplete"
        return _not_whole(state, f"{_OLD}; {error}", place)
    return replace(_load_legacy(place), contents=contents_of(outlines[3].value))


def _judge_pickle(place: CheckpointPlace, outline: Outline) -> CheckpointFacts:
    """A pickle of the job's own making."""
    size_bytes = place.files[""]
    if outline.size_bytes != size_bytes:
        problem = (
            f"a pickle of {outline.size_bytes:,} bytes in a file of {size_bytes:,}: what follows cannot be checked"
        )
        return CheckpointFacts("other", "unknown", problem, size_bytes)
    return CheckpointFacts("other", "whole", None, size_bytes, contents_of(outline.value))


def _load_legacy(place: CheckpointPlace) -> CheckpointFacts:
    """Whether PyTorch can load it, and the file ends where its storages do."""
    size_bytes = place.files[""]
    if size_bytes > MOST_LEGACY_BYTES:
        return _not_whole("unknown", f"{_OLD}, of {size_bytes:,} bytes: not read", place)
    try:
        import torch
    except ImportError:
        problem = f"{_OLD}: only PyTorch can tell whether all of it is there: pip install 'phasepoint[torch]'"
        return _not_whole("unknown", problem, place)
    wrong: tuple[CheckpointState, str] | None = None
    with place.open() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.load(file, map_location="meta", weights_only=True)
            if file.tell() != size_bytes:
                wrong = "corrupt", "its storages end before the file does"
        except pickle.UnpicklingError:  # its pickles have been outlined: they are whole
            wrong = "unknown", "it holds objects that torch.load(weights_only=True) refuses"
        except (RuntimeError, EOFError) as error:
            wrong = "incomplete", f"it ends within its storages: {error}"
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError, struct.error) as error:
            wrong = "corrupt", f"PyTorch cannot load it: {error}"
    if wrong is not None:
        return _not_whole(wrong[0], f"{_OLD}; {wrong[1]}", place)
    return CheckpointFacts("torch", "whole", None, size_bytes)


def _not_whole(state: CheckpointState, problem: str, place: CheckpointPlace) -> CheckpointFacts:
    return CheckpointFacts("torch", state, problem, place.size_bytes)


_LIGHTNING = "pytorch-lightning_version"
"""A key of every checkpoint of Lightning's `Trainer`. Source: lightning 2.0 to 2.6, `dump_checkpoint`."""

_OLD = "written without an archive"

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""Source: `torch.serialization.MAGIC_NUMBER`."""

_RANDOM_KEYS = {"python", "numpy", "cpu"}
"""Keys of the random states of Transformers' `Trainer`. Source: `Trainer._save_rng_state`, 4.40 to 5.23."""
