"""Orbax: a folder with `_CHECKPOINT_METADATA`, and the tree of arrays in it or in a folder per item.

Orbax writes under a name with `.orbax-checkpoint-tmp` and renames when all is there; it notes the commit's time in
`_CHECKPOINT_METADATA`, and on object stores, which cannot rename, leaves `commit_success.txt` behind at the end. A
folder without these marks is half written. A folder that has them may have lost something since: the files that the
arrays need are therefore looked at too.

Source: what orbax-checkpoint 0.11 to 0.12 and its experimental v1 write, and leave behind when killed.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from phasepoint.checkpoints.facts import (
    NOTHING_TOLD,
    CheckpointContents,
    CheckpointFacts,
    CheckpointPlace,
    parts_of,
    tell_contents,
)
from phasepoint.checkpoints.tensorstore import UncheckedError, find_gap, find_value_ends
from phasepoint.core.errors import SourceError

TEMPORARY_MARK = ".orbax-checkpoint-tmp"
"""Part of the names of what is being written."""

MOST_JSON_BYTES = 64 << 20
"""A larger JSON file is not read. The tree of 100,000 arrays takes about 20 MB."""

_METADATA = "_CHECKPOINT_METADATA"
_TREE = "_METADATA"
_COMMIT = "commit_success.txt"
_MANIFEST = "manifest.ocdbt"
_PROCESS_DATABASE = re.compile(r"(^|/)ocdbt\.process_[^/]*/")
"""Where each process wrote first; what is needed of it, the merged database names."""

_JSON_FILE = re.compile(
    r"(^|/)(_CHECKPOINT_METADATA|_METADATA|_sharding|metadata|metrics|[^/]*\.json)$|(^|/)array_metadatas/"
)
_GRAIN_FILE = re.compile(r"^process_\d+-of-\d+\.json$")
_ARRAY_TYPES = ("jax.Array", "np.ndarray", "scalar")
_TREE_HANDLERS = ("PyTreeCheckpointHandler", "StandardCheckpointHandler", "PyTreeHandler")


class _IncompleteError(Exception):
    """Something is not there."""


def is_orbax(place: CheckpointPlace) -> bool:
    """A folder with one of Orbax's marks, or with its temporary name."""
    if place.is_file:
        return False
    marks = (_METADATA, _TREE, _MANIFEST)
    return TEMPORARY_MARK in place.base_name or any(name.rpartition("/")[2] in marks for name in place.files)


def inspect_orbax(place: CheckpointPlace) -> CheckpointFacts:
    """Whether it was committed, and all that its arrays need is there; what is in it by items and keys of the tree."""
    contents = NOTHING_TOLD
    try:
        documents = _read_documents(place)
        handlers = _check_commit(place, documents)
        _check_items(place, handlers)
        trees = {
            name.removesuffix(_TREE).rstrip("/"): tree
            for name, tree in documents.items()
            if name.rpartition("/")[2] == _TREE
        }
        contents = _contents(place, handlers, trees)
        for folder, tree in trees.items():
            _check_tree(place, folder, _mapping(tree))
        _check_databases(place)
    except _IncompleteError as error:
        return CheckpointFacts("orbax", "incomplete", str(error), place.size_bytes)
    except UncheckedError as error:
        return CheckpointFacts("orbax", "unknown", f"it cannot be checked: {error}", place.size_bytes, contents)
    except SourceError as error:
        return CheckpointFacts("orbax", "corrupt", str(error), place.size_bytes)
    return CheckpointFacts("orbax", "whole", None, place.size_bytes, contents)


def _read_documents(place: CheckpointPlace) -> dict[str, Any]:
    """Every JSON file of the checkpoint, by path.

    Raises:
        SourceError: one is no JSON.
    """
    documents = {}
    for name, size_bytes in place.files.items():
        if not _JSON_FILE.search(name) or size_bytes > MOST_JSON_BYTES or _PROCESS_DATABASE.search(name):
            continue
        try:
            documents[name] = json.loads(place.read(name, count=MOST_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise SourceError(f"its file {name} cannot be read: {error}") from error
    return documents


def _check_commit(place: CheckpointPlace, documents: Mapping[str, Any]) -> Mapping[str, str]:
    """Whether it was written to its end; returns the handler of each item, `""` being the checkpoint itself."""
    unfinished = sorted(name for name in (place.base_name, *place.folders) if TEMPORARY_MARK in name)
    if unfinished:
        raise _IncompleteError(f"{unfinished[0]}: it was being written when its writer ended")
    if _METADATA not in documents:
        raise _IncompleteError(f"its {_METADATA} is not there")
    metadata = _mapping(documents[_METADATA])
    if metadata.get("commit_timestamp_nsecs") is None:
        raise _IncompleteError(f"its {_METADATA} names no time of the commit: it was not written to its end")
    if place.name.startswith("gs://") and _COMMIT not in place.files:
        raise _IncompleteError(f"its {_COMMIT}, which is written last, is not there")
    handlers = metadata.get("item_handlers")
    if isinstance(handlers, str):
        return {"": handlers}
    return {str(name): str(handler) for name, handler in _mapping(handlers).items()}


def _check_items(place: CheckpointPlace, handlers: Mapping[str, str]) -> None:
    for item, handler in handlers.items():
        if item and item not in place.folders:
            raise _IncompleteError(f"its item {item!r} is not there")
        tree = f"{item}/{_TREE}" if item else _TREE
        if handler.endswith(_TREE_HANDLERS) and tree not in place.files:
            raise _IncompleteError(f"{tree} is not there")


def _check_tree(place: CheckpointPlace, folder: str, tree: Mapping[str, Any]) -> None:
    """Whether the arrays of a tree are there: in a database, or each in a folder of its own."""
    manifest = f"{folder}/{_MANIFEST}" if folder else _MANIFEST
    leaves = [_mapping(leaf) for leaf in _mapping(tree.get("tree_metadata")).values()]
    arrays = [leaf for leaf in leaves if _mapping(leaf.get("value_metadata")).get("value_type") in _ARRAY_TYPES]
    if tree.get("use_ocdbt"):
        if arrays and manifest not in place.files:
            raise _IncompleteError(f"{manifest} is not there")
        return
    fills = not tree.get("store_array_data_equal_to_fill_value")
    for leaf in arrays:
        name = ".".join(_path_of(leaf))
        array = f"{folder}/{name}" if folder else name
        if not {f"{array}/.zarray", f"{array}/zarr.json"} & place.files.keys():
            raise _IncompleteError(f"array {array} is not there")
        gap = find_gap(place, array, fills=fills)
        if gap is not None:
            raise _IncompleteError(gap)


def _check_databases(place: CheckpointPlace) -> None:
    for name in place.files:
        if name.rpartition("/")[2] == _MANIFEST and not _PROCESS_DATABASE.search(name):
            folder = name.removesuffix(_MANIFEST)
            manifest = place.read(name, count=MOST_JSON_BYTES)
            for file, end in find_value_ends(partial(_read_node, place, folder), manifest).items():
                _require(place, folder + file, end)


def _read_node(place: CheckpointPlace, folder: str, file: str, start: int, count: int) -> bytes:
    """A node of the database in a folder."""
    _require(place, folder + file, start + count)
    return place.read(folder + file, start=start, count=count)


def _require(place: CheckpointPlace, name: str, end: int) -> None:
    size_bytes = place.files.get(name)
    if size_bytes is None:
        raise _IncompleteError(f"its file {name} is not there")
    if size_bytes < end:
        raise _IncompleteError(f"its file {name} has {size_bytes:,} bytes; {end:,} are needed")


def _contents(
    place: CheckpointPlace, handlers: Mapping[str, str], trees: Mapping[str, Mapping[str, Any]]
) -> CheckpointContents:
    """What is in it: an item tells by its name, by its handler, or by the keys of its tree."""
    names: list[str] = []
    for item, handler in (handlers or {"": ""}).items():
        files = [name.removeprefix(f"{item}/") for name in place.files if name.startswith(f"{item}/")] if item else []
        leaves = _mapping(_mapping(trees.get(item)).get("tree_metadata")).values()
        keys = [".".join(_path_of(_mapping(leaf))) for leaf in leaves]
        if "RandomKey" in handler:
            names.append("rng")
        elif handler.startswith("grain.") or any(_GRAIN_FILE.match(file) for file in files):
            names.append("iterator")
        elif item and parts_of(item):
            names += [
                item,
                *(key for key in keys if parts_of(key.partition(".")[0]) & {"optimizer", "prng", "iterator"}),
            ]
        else:
            names += keys or [item]
    return tell_contents(names)


def _path_of(leaf: Mapping[str, Any]) -> list[str]:
    keys = leaf.get("key_metadata")
    return [str(_mapping(key).get("key", "")) for key in keys] if isinstance(keys, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    """A document's part as a mapping; an empty one where it is something else."""
    return value if isinstance(value, Mapping) else {}
