"""The formats of checkpoints. A new format is one module and one row of `FORMATS`. Nothing in them is unpickled."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from phasepoint.core.errors import StoreError
from phasepoint.sources.checkpoint_facts import CheckpointFacts
from phasepoint.sources.checkpoint_other import inspect_other, is_other
from phasepoint.sources.checkpoint_place import CheckpointPlace, open_place


@dataclass(frozen=True)
class CheckpointFormat:
    """One format.

    Attributes:
        name: what the recorder calls it (`checkpoints.framework`).
        is_it: whether a place looks like a checkpoint of it.
        inspect: what such a place tells; never raises but `OSError`, however damaged the files are.
    """

    name: str
    is_it: Callable[[CheckpointPlace], bool]
    inspect: Callable[[CheckpointPlace], CheckpointFacts]


FORMATS: tuple[CheckpointFormat, ...] = (CheckpointFormat("other", is_other, inspect_other),)


def inspect_checkpoint(path: str, framework: str | None = None) -> CheckpointFacts:
    """Look at a checkpoint where it lies: whether it is whole, how large it is, and what is in it.

    Args:
        path: path or URL.
        framework: what wrote it, as the recorder noted it: decides where the place itself does not tell.
    """
    try:
        place = open_place(path)
        if place is None:
            return CheckpointFacts(None, "missing", "it is not there any more")
        if place.truncated:
            return CheckpointFacts(None, "unknown", f"it has more than {len(place.files)} files: not looked at")
        return _format_of(place, framework).inspect(place)
    except (OSError, StoreError, pa.ArrowException) as error:
        return CheckpointFacts(None, "unknown", f"it cannot be looked at: {error}")


def _format_of(place: CheckpointPlace, framework: str | None) -> CheckpointFormat:
    found = next(one for one in FORMATS if one.is_it(place))
    if found.name != "other":
        return found
    return next((one for one in FORMATS if one.name == framework), found)
