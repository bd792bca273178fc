"""What looking at a checkpoint tells, whatever format it is in; and what its parts' names say is in it.

The files of a checkpoint, wherever they lie: their names and sizes, and bounded pieces of their content.
"""

import io
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import pyarrow.fs as pafs

from phasepoint.store.filesystem import Location, open_location

MOST_FILES = 200_000
"""Files that are looked at in one checkpoint; one with more is not judged."""

RETRY_LIMIT_S = 10
"""How long a bucket that does not answer is asked."""


@dataclass(frozen=True)
class CheckpointPlace:
    """What stands at a checkpoint's path.

    Attributes:
        name: the path, for messages.
        files: size in bytes by path relative to the checkpoint; `""` alone where it is one file.
        folders: whether folders stand in it, by relative path; empty where it is one file.
        truncated: whether there are more than `MOST_FILES` files, so that `files` is not all.
    """

    name: str
    files: Mapping[str, int]
    folders: frozenset[str]
    truncated: bool
    _location: Location = field(repr=False)

    @property
    def is_file(self) -> bool:
        """Whether it is one file."""
        return "" in self.files

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine's file systems."""
        return self._location.is_local

    @property
    def base_name(self) -> str:
        """Last part of its path."""
        return self._location.root.rpartition("/")[2]

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all its files; None where not all were looked at."""
        return None if self.truncated else sum(self.files.values())

    def below(self, folder: str) -> list[str]:
        """Paths of the files below one of its folders, sorted."""
        begin, end = (bisect_left(self._sorted, folder + mark) for mark in "/0")  # "0" comes after "/"
        return self._sorted[begin:end]

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.files)

    def kvstore(self, relative: str) -> dict[str, str] | str:
        """Where TensorStore finds a folder of it."""
        if self.is_local:
            return {"driver": "file", "path": f"{Path(self._location.path(relative)).absolute()}/"}
        return f"{self._location.show(relative)}/"

    def file(self, relative: str) -> "CheckpointPlace":
        """One of its files, as a place of its own."""
        location = replace(self._location, root=self._location.path(relative))
        return CheckpointPlace(f"{self.name}/{relative}", {"": self.files[relative]}, frozenset(), False, location)

    def open(self, relative: str = "") -> BinaryIO:
        """A file of it, to read and seek in.

        Raises:
            OSError: it cannot be opened.
        """
        path = self._location.path(relative)
        if self._location.filesystem is None:
            return Path(path).open("rb")
        return cast(BinaryIO, self._location.filesystem.open_input_file(path))

    def read(self, relative: str = "", *, start: int = 0, count: int) -> bytes:
        """At most `count` bytes of a file from `start` on.

        Raises:
            OSError: it cannot be read.
        """
        with self.open(relative) as file:
            file.seek(start, io.SEEK_SET)
            return bytes(file.read(count))


def open_place(path: str) -> CheckpointPlace | None:
    """What stands at a path or URL, None where nothing does.

    Raises:
        StoreError: the URL is of no known kind.
        OSError: the place cannot be looked at: no permission, no network.
    """
    location = open_location(_with_short_retry(path))
    return _look_locally(path, location) if location.filesystem is None else _look_remotely(path, location)


def _with_short_retry(path: str) -> str:
    """Let Google's client give up within seconds; by itself it tries for 15 minutes where there is no way there."""
    if not path.startswith("gs://") or "retry_limit_seconds" in path:
        return path
    return f"{path}{'&' if '?' in path else '?'}retry_limit_seconds={RETRY_LIMIT_S}"


def _look_locally(name: str, location: Location) -> CheckpointPlace | None:
    try:
        found = os.stat(location.root)  # noqa: PTH116 - Path.stat is the same
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a name with a null byte is no name
        return None
    if not stat.S_ISDIR(found.st_mode):
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        return CheckpointPlace(name, {"": size}, frozenset(), False, location)
    files: dict[str, int] = {}
    folders: list[str] = []
    waiting = [""]
    while waiting and len(files) + len(folders) < MOST_FILES:
        folder = waiting.pop()
        with os.scandir(location.path(folder)) as entries:
            for entry in entries:
                relative = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(relative)
                    folders.append(relative)
                elif entry.is_file():  # what a link leads to; pipes and sockets are nobody's checkpoint
                    files[relative] = entry.stat().st_size
                if len(files) + len(folders) >= MOST_FILES:
                    break
    return CheckpointPlace(name, files, frozenset(folders), bool(waiting), location)


def _look_remotely(name: str, location: Location) -> CheckpointPlace | None:
    filesystem: Any = location.filesystem
    info = filesystem.get_file_info(location.root)
    if info.type == pafs.FileType.NotFound:
        return None
    if info.type == pafs.FileType.File:
        return CheckpointPlace(name, {"": info.size or 0}, frozenset(), False, location)
    found = filesystem.get_file_info(pafs.FileSelector(location.root, recursive=True))
    kept = found[:MOST_FILES]
    begin = len(location.root) + 1
    files = {one.path[begin:]: one.size or 0 for one in kept if one.type == pafs.FileType.File}
    folders = frozenset(one.path[begin:] for one in kept if one.type == pafs.FileType.Directory)
    return CheckpointPlace(name, files, folders, len(found) > MOST_FILES, location)


CheckpointState = Literal["whole", "incomplete", "corrupt", "missing", "unknown"]
"""`unknown`: it cannot be told from here; it is no checkpoint's fault."""

Part = Literal["model", "optimizer", "prng", "iterator", "other"]


@dataclass(frozen=True)
class CheckpointContents:
    """Which parts of a job's state are in a checkpoint; None where its names do not tell.

    Attributes:
        has_model: parameters of the model.
        has_optimizer: state of the optimizer.
        has_prng: state of a random generator.
        has_iterator: state of the data iterator, loader or sampler.
    """

    has_model: bool | None = None
    has_optimizer: bool | None = None
    has_prng: bool | None = None
    has_iterator: bool | None = None


NOTHING_TOLD = CheckpointContents()


@dataclass(frozen=True)
class CheckpointFacts:
    """What was found where a checkpoint should be.

    Attributes:
        format: a name of `checkpoints.formats.FORMATS`; other where it is of no known one; None where nothing could be
            looked at.
        state: whole, incomplete (parts are not there yet, or no more), corrupt (there, but not readable), missing, or
            unknown (cannot be told from here).
        problem: why it is not whole, in words; None where it is.
        size_bytes: bytes of all its files; None where it cannot be told.
        contents: what is in it.
    """

    format: str | None
    state: CheckpointState
    problem: str | None = None
    size_bytes: int | None = None
    contents: CheckpointContents = NOTHING_TOLD


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS: tuple[tuple[Part, frozenset[str]], ...] = (
    ("iterator", _words("iterator iterators iter dataloader dataloaders loader sampler samplers dataset grain")),
    ("prng", _words("rng rngs prng prngs prngkey random")),
    ("optimizer", _words("optimizer optimizers optim optims opt adam adamw sgd momentum")),
    (
        "other",
        _words(
            "step steps epoch epochs iteration iterations loss losses metrics metric metadata meta config args hparams "
            "hyperparameters version scheduler schedulers scaler callbacks loops time lr seed history best"
        ),
    ),
    ("model", _words("model models params param parameters module net network weights weight bias ema")),
)
"""What the words of a name tell, in the order in which they count."""

_WHOLE_NAMES: dict[str, Part] = {
    "key": "prng",
    "prng_key": "prng",
    "dropout_key": "prng",
    "state_dict": "model",
    "param_groups": "optimizer",
    "batch_stats": "model",
    "hyper_parameters": "other",
}
_WRAPPERS = _words("state states train_state trainstate app app_state default checkpoint ckpt payload trainer")
"""Names that hold the parts and are none."""

_PARAMETERS = _words("weight bias kernel scale embedding gamma beta running_mean running_var num_batches_tracked")
"""How the name of a parameter or of a layer's statistics ends."""

_RANDOM = _words("rng rngs prng_key rng_state")
_STEPS = re.compile(r"[./]")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def parts_of(name: str) -> frozenset[Part]:
    """The parts of a job's state that a name tells of; `other` for counters and settings; none where it tells nothing.

    A name is a path (`train_state.params.Dense_0.kernel`). Its first component that is no mere wrapper (`state`, `app`)
    tells by its words (`torch_rng_state`); of several, the first of iterator, prng, optimizer, other, model counts, so
    that `model_optimizer` is an optimizer's. Where that tells nothing, a path that ends as parameters do (`weight`)
    is the model's. A random generator may stand deep within a model: `dropout.rngs.count`.
    """
    components = [one for one in _STEPS.split(name.lower()) if one]
    while len(components) > 1 and components[0] in _WRAPPERS:
        del components[0]
    if not components:
        return frozenset()
    parts = {_part_by_words(components[0])}
    if None in parts and components[-1] in _PARAMETERS:
        parts = {"model"}
    if not _RANDOM.isdisjoint(components):
        parts.add("prng")
    return frozenset(part for part in parts if part is not None)


def _part_by_words(component: str) -> Part | None:
    whole = _WHOLE_NAMES.get(component)
    if whole is not None:
        return whole
    words = set(_SEPARATORS.split(component))
    return next((part for part, telling in _WORDS if words & telling), None)


def tell_contents(names: Iterable[str]) -> CheckpointContents:
    """What is in a checkpoint by the names of all its parts: keys, items, tensors.

    A part that is named is there. A part that is not named is absent if every name tells of something, and not known
    otherwise: it may stand under a name that tells nothing.
    """
    told = [parts_of(name) for name in names]
    found = frozenset[Part]().union(*told)
    absent = False if told and all(told) else None
    has = [True if part in found else absent for part in ("model", "optimizer", "prng", "iterator")]
    return CheckpointContents(*has)
