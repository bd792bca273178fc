"""The formats of checkpoints. A new format is one module and one row of `FORMATS`. Nothing in them is run.

A checkpoint of no format that is known here: it is there, and how large; whether it is whole cannot be told.
"""

import glob
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from phasepoint.checkpoints.dcp import inspect_dcp, is_dcp
from phasepoint.checkpoints.facts import CheckpointFacts, CheckpointPlace, open_place
from phasepoint.checkpoints.folder import (
    inspect_accelerate,
    inspect_files,
    inspect_transformers,
    is_accelerate,
    is_files,
    is_transformers,
)
from phasepoint.checkpoints.keras import inspect_keras, is_keras
from phasepoint.checkpoints.orbax import TEMPORARY_MARK, inspect_orbax, is_orbax
from phasepoint.checkpoints.safetensors import inspect_safetensors, is_safetensors
from phasepoint.checkpoints.torch import inspect_torch, is_torch
from phasepoint.core.errors import StoreError


def is_other(place: CheckpointPlace) -> bool:
    """Anything is."""
    return True


def inspect_other(place: CheckpointPlace) -> CheckpointFacts:
    """Its size; one without a byte is incomplete."""
    size_bytes = place.size_bytes
    if size_bytes == 0:
        return CheckpointFacts("other", "incomplete", "it is empty", 0)
    return CheckpointFacts("other", "unknown", "it is there, in a format that cannot be checked", size_bytes)


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


FORMATS: tuple[CheckpointFormat, ...] = (
    CheckpointFormat("orbax", is_orbax, inspect_orbax),
    CheckpointFormat("dcp", is_dcp, inspect_dcp),
    CheckpointFormat("safetensors", is_safetensors, inspect_safetensors),
    CheckpointFormat("keras", is_keras, inspect_keras),
    CheckpointFormat("torch", is_torch, inspect_torch),
    CheckpointFormat("accelerate", is_accelerate, inspect_accelerate),
    CheckpointFormat("transformers", is_transformers, inspect_transformers),
    CheckpointFormat("files", is_files, inspect_files),
    CheckpointFormat("other", is_other, inspect_other),
)
"""The first that recognises a place reads it."""


_OF_FILES = ("safetensors", "torch")


def inspect_checkpoint(path: str, framework: str | None = None) -> CheckpointFacts:
    """Look at a checkpoint where it lies: whether it is whole, how large it is, and what is in it.

    Args:
        path: path or URL.
        framework: what wrote it, as the recorder noted it: decides where the place itself does not tell.
    """
    try:
        place = open_place(path)
        if place is None:
            return _not_there(path)
        if place.truncated:
            return CheckpointFacts(None, "unknown", f"it has more than {len(place.files)} files: not looked at")
        return _without_model(place, _format_of(place, framework).inspect(place))
    except (OSError, StoreError, pa.ArrowException) as error:
        return CheckpointFacts(None, "unknown", f"it cannot be looked at: {error}")


def _without_model(place: CheckpointPlace, facts: CheckpointFacts) -> CheckpointFacts:
    """A file that says it is one part (`scheduler.pt`), and whose keys do not speak against it, holds no model."""
    if not place.is_file or facts.contents.has_model is not None or not _ONE_PART.match(place.base_name):
        return facts
    return replace(facts, contents=replace(facts.contents, has_model=False))


_ONE_PART = re.compile(
    r"(rng_state|random_states?|optimizer|scheduler|lr_scheduler|scaler|sampler|training_args)(_\d+)?\."
)
"""Names of files that Transformers, Accelerate and those who write by hand give to one part of a state."""


def _not_there(path: str) -> CheckpointFacts:
    """Nothing, or what Orbax left of it under its temporary name."""
    local = Path(path.removeprefix("file://"))
    if "://" not in str(local) and local.parent.is_dir():
        left = sorted(one.name for one in local.parent.glob(f"{glob.escape(local.name)}{TEMPORARY_MARK}*"))
        if left:
            return CheckpointFacts("orbax", "incomplete", f"{left[0]}: it was being written when its writer ended")
    return CheckpointFacts(None, "missing", "it is not there any more")


def _format_of(place: CheckpointPlace, framework: str | None) -> CheckpointFormat:
    found = next(one for one in FORMATS if one.is_it(place))
    if found.name != "other":
        return found
    named = next((one for one in FORMATS if one.name == framework), found)
    return named if place.is_file == (named.name in _OF_FILES) else found
