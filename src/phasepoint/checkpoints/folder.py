"""Folders in which each part of a job's state has a file of its own, as Transformers and Accelerate write them.

What is in one is told by its files' names (`optimizer.pt`, `rng_state.pth`), and by the keys in a file whose name tells
nothing. Whether it is whole is told file by file, as for a file alone, by the lists of shards, and by what each
framework writes last or never without the other. Nothing in them is run.

Source: what `Trainer._save_checkpoint` of transformers 4.40 to 5.23 and `Accelerator.save_state` of accelerate 0.30 to
1.15 write.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from phasepoint.checkpoints.facts import (
    CheckpointContents,
    CheckpointFacts,
    CheckpointPlace,
    CheckpointState,
    Part,
    parts_of,
)
from phasepoint.checkpoints.safetensors import inspect_safetensors, is_safetensors
from phasepoint.checkpoints.torch import inspect_torch, is_torch

MOST_INSPECTED = 64
"""Files looked into; a folder with more is not judged. A Trainer's has five, and one for each shard of the model."""

MOST_JSON_BYTES = 16 << 20
"""A larger JSON file is not read: `trainer_state.json` with 100,000 logged values has about 10 MB."""

_TRAINER_STATE = "trainer_state.json"
_TRAINER_ARGUMENTS = "training_args.bin"
_DATA = (".safetensors", ".pt", ".pth", ".bin", ".pkl", ".ckpt")
_TORCH = _DATA[1:]
_RANDOM_STATES = re.compile(r"random_states_\d+\.pkl")
_INDEX = ".index.json"
_OTHERS = re.compile(r"(scheduler|scaler|training_args|custom_checkpoint_\d+)(_\d+)?\.")
_LOADERS = re.compile(r"(sampler|dl_state_dict)(_\d+)?\.")
_PARTS: tuple[Part, ...] = ("model", "optimizer", "prng", "iterator")


def is_transformers(place: CheckpointPlace) -> bool:
    """A folder that a `Trainer` wrote, or `save_pretrained`: a configuration with a model's files."""
    if place.is_file:
        return False
    model = any(parts_of(name) == {"model"} for name in _data_files(place))
    return bool({_TRAINER_STATE, _TRAINER_ARGUMENTS} & place.files.keys()) or ("config.json" in place.files and model)


def is_accelerate(place: CheckpointPlace) -> bool:
    """A folder with the random states of `Accelerator.save_state`."""
    return any(_RANDOM_STATES.fullmatch(name) for name in place.files)


def is_files(place: CheckpointPlace) -> bool:
    """A folder with files of PyTorch or safetensors in it."""
    return not place.is_file and bool(_data_files(place))


def inspect_transformers(place: CheckpointPlace) -> CheckpointFacts:
    """Of a `Trainer`'s, `trainer_state.json` is written last; optimizer, schedule and random state go together."""
    facts = _inspect(place, "transformers")
    stems = {name.partition(".")[0].partition("_")[0] for name in place.files}
    trained = stems & {"optimizer", "scheduler", "rng"} or _TRAINER_STATE in place.files
    if facts.state != "whole" or not trained:
        return facts
    if _TRAINER_STATE not in place.files:
        return _not_whole(facts, "incomplete", f"its {_TRAINER_STATE}, which is written last, is not there")
    if not facts.contents.has_model:
        return _not_whole(facts, "incomplete", "the model's weights are not there")
    missing = [part for part in ("optimizer", "scheduler", "rng") if part not in stems]
    if "latest" in place.files:  # DeepSpeed's: optimizer and schedule stand in a folder of its own
        missing = [part for part in missing if part == "rng"]
    elif facts.contents.has_optimizer:  # FSDP's stands in a folder
        missing = [part for part in missing if part != "optimizer"]
    if missing and len(missing) < 3:
        names = {"optimizer": "optimizer.pt", "scheduler": "scheduler.pt", "rng": "rng_state.pth"}
        return _not_whole(facts, "incomplete", f"its {names[missing[0]]} is not there, though the rest is")
    return facts


def inspect_accelerate(place: CheckpointPlace) -> CheckpointFacts:
    """Random states are written after all else but the user's own objects; a schedule needs an optimizer."""
    facts = _inspect(place, "accelerate")
    if facts.state == "whole" and not facts.contents.has_model:
        return _not_whole(facts, "incomplete", "the model's weights are not there")
    if facts.state == "whole" and "scheduler.bin" in place.files and not facts.contents.has_optimizer:
        return _not_whole(facts, "incomplete", "its optimizer.bin is not there, though the rest is")
    return facts


def inspect_files(place: CheckpointPlace) -> CheckpointFacts:
    """Whether each file is whole; whether one is missing that was there cannot be told."""
    return _inspect(place, "files")


def _data_files(place: CheckpointPlace) -> list[str]:
    return [name for name in place.files if "/" not in name and name.endswith(_DATA)]


def _inspect(place: CheckpointPlace, kind: str) -> CheckpointFacts:
    names = _data_files(place)
    if len(names) > MOST_INSPECTED:
        problem = f"it has {len(names)} files of parameters and states: not looked into"
        return CheckpointFacts(kind, "unknown", problem, place.size_bytes, _contents_by_names(place, {}))
    found = {name: _inspect_file(place.file(name)) for name in names}
    contents = _contents_by_names(place, found)
    facts = CheckpointFacts(kind, "whole", None, place.size_bytes, contents)
    for name, one in found.items():
        if one.state != "whole":
            return _not_whole(facts, one.state, f"{name}: {one.problem}")
    empty = next((name for name, size_bytes in place.files.items() if "/" in name and not size_bytes), None)
    if empty is not None:
        return _not_whole(facts, "incomplete", f"{empty}: it is empty")
    problems = (_json_problem(place, name) for name in place.files if name.endswith(".json"))
    wrong = next(filter(None, problems), None)
    return facts if wrong is None else _not_whole(facts, "incomplete", wrong)


def _inspect_file(place: CheckpointPlace) -> CheckpointFacts:
    if not place.size_bytes:
        return CheckpointFacts(None, "incomplete", "it is empty", 0)
    if is_safetensors(place):
        return inspect_safetensors(place)
    if is_torch(place):
        return inspect_torch(place)
    return CheckpointFacts(None, "corrupt", "it is no file of PyTorch or safetensors", place.size_bytes)


def _contents_by_names(place: CheckpointPlace, found: Mapping[str, CheckpointFacts]) -> CheckpointContents:
    """What a folder holds: the parts of all its files; a part is absent where every file of states tells of others.

    A file's name counts, and what its keys say is there beside: `model.pt` may hold an optimizer too. The names of a
    model's tensors are the model's own, and count only where the file's name tells nothing.
    """
    parts: set[Part] = set()
    told = True
    for name in place.files:
        if "/" in name:  # DeepSpeed's and FSDP's folders: `global_step5/…_optim_states.pt`, `optimizer_0/__0_0.distcp`
            parts |= _parts_by_name(name.rpartition("/")[2]) | _parts_by_name(name.partition("/")[0])
        elif name.endswith(_DATA):
            mine = _parts_by_name(name)
            contents = found[name].contents if name in found else CheckpointContents()
            has = (contents.has_model, contents.has_optimizer, contents.has_prng, contents.has_iterator)
            parts |= mine
            if not mine or (name.endswith(_TORCH) and "other" not in mine):
                parts |= {part for part, there in zip(_PARTS, has, strict=True) if there}
            told = told and (bool(mine) or None not in has)
    return CheckpointContents(*((True if part in parts else False if told else None) for part in _PARTS))


def _parts_by_name(name: str) -> frozenset[Part]:
    """What a file's name tells: of `step_500.pt` nothing, for it may hold all."""
    if _OTHERS.match(name):
        return frozenset({"other"})
    if _LOADERS.match(name):
        return frozenset({"iterator"})
    parts = parts_of(name.partition(".")[0])
    return parts - {"other"}


def _json_problem(place: CheckpointPlace, name: str) -> str | None:
    """What is wrong with a JSON file, or with a list of shards: one of them is not there."""
    if "/" in name or place.files[name] > MOST_JSON_BYTES:
        return None
    try:
        document = json.loads(place.read(name, count=MOST_JSON_BYTES))
    except (ValueError, RecursionError):
        return f"{name}: it is cut off, or no JSON"
    weights = document.get("weight_map") if name.endswith(_INDEX) and isinstance(document, dict) else None
    shards = weights.values() if isinstance(weights, dict) else ()
    gone = sorted({shard for shard in shards if isinstance(shard, str)} - place.files.keys())
    return f"{gone[0]}, which {name} names, is not there" if gone else None


def _not_whole(facts: CheckpointFacts, state: CheckpointState, problem: str) -> CheckpointFacts:
    return replace(facts, state=state, problem=problem)
