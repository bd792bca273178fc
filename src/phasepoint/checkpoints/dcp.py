"""torch.distributed.checkpoint: a folder with a `.metadata` and the ranks' `.distcp` files.

`.metadata` is a pickle; only its outline is read. It says in which file, from which byte and how long each piece of the
state lies, so that a file that is cut off or missing is seen without reading it.

Source: `torch.distributed.checkpoint.metadata.Metadata` and `filesystem._StorageInfo` of PyTorch 2.6 to 2.13.
"""

from typing import Any

from phasepoint.checkpoints.facts import CheckpointFacts, CheckpointPlace, CheckpointState, tell_contents
from phasepoint.checkpoints.pickle_outline import Made, outline_pickle
from phasepoint.core.errors import SourceError

MOST_METADATA_BYTES = 128 << 20
"""A larger `.metadata` is not read. That of 50,000 tensors on 64 ranks has about 60 MB."""

_METADATA = ".metadata"
_DATA = ".distcp"


def is_dcp(place: CheckpointPlace) -> bool:
    """A folder with `.metadata` or with `.distcp` files."""
    return _METADATA in place.files or any(name.endswith(_DATA) for name in place.files if "/" not in name)


def inspect_dcp(place: CheckpointPlace) -> CheckpointFacts:
    """Whether all that the metadata speaks of is there; what is in it is told by the keys of the state."""
    if _METADATA not in place.files:
        return _not_whole("incomplete", "its .metadata, which is written last, is not there", place)
    if place.files[_METADATA] > MOST_METADATA_BYTES:
        return _not_whole("unknown", f"its .metadata has {place.files[_METADATA]:,} bytes: not read", place)
    try:
        metadata = outline_pickle(place.read(_METADATA, count=MOST_METADATA_BYTES)).value
        keys, ends = _read_metadata(metadata)
    except SourceError as error:
        return _not_whole("corrupt", f"its .metadata cannot be read: {error}", place)
    problem = next(filter(None, (_gap(place, name, end) for name, end in sorted(ends.items()))), None)
    if problem is not None:
        return _not_whole("incomplete", problem, place)
    return CheckpointFacts("dcp", "whole", None, place.size_bytes, tell_contents(keys))


def _gap(place: CheckpointPlace, name: str, end: int) -> str | None:
    """What of a data file is missing; None where nothing is."""
    size_bytes = place.files.get(name)
    if size_bytes is None:
        return f"its file {name} is not there"
    if size_bytes < end:
        return f"its file {name} has {size_bytes:,} bytes, and .metadata speaks of {end:,}"
    return None


def _read_metadata(value: Any) -> tuple[list[str], dict[str, int]]:
    """The keys of the state, and how many bytes each file must have at least.

    Raises:
        SourceError: it is something else.
    """
    state = value.state if isinstance(value, Made) else None
    pieces, names = (_value(state, key) for key in ("storage_data", "state_dict_metadata"))
    if not isinstance(pieces, Made) or not isinstance(names, Made):
        raise SourceError("it says nothing of where the state lies; written by another storage writer?")
    ends: dict[str, int] = {}
    for _, piece in pieces.items:
        place = piece.state if isinstance(piece, Made) else None
        name, offset, length = (_value(place, key) for key in ("relative_path", "offset", "length"))
        if not isinstance(name, str) or not isinstance(offset, int) or not isinstance(length, int):
            raise SourceError("it does not say where a piece lies")
        ends[name] = max(ends.get(name, 0), offset + length)
    return names.keys(), ends


def _value(entries: Any, key: str) -> Any:
    """What stands under a key; None where there is no such key, or no dictionary."""
    return entries.find(key) if isinstance(entries, Made) else None


def _not_whole(state: CheckpointState, problem: str, place: CheckpointPlace) -> CheckpointFacts:
    return CheckpointFacts("dcp", state, problem, place.size_bytes)
