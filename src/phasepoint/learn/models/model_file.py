"""A model on disk: a folder with `model.npz` (arrays) and `card.json` (what it is). Nothing in it is ever unpickled."""

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.errors import ModelError, OutputExistsError

MODEL_VERSION = 1
"""Of the folder's format."""
ARRAYS, CARD = "model.npz", "card.json"


Progress = Callable[[int, int], None]
"""Told how many pieces of work are done, of how many."""


@dataclass(frozen=True)
class StoredModel:
    """A stored model.

    Attributes:
        name: the folder's name.
        kind: which code reads it: kernels, operators, solvers, tile_sweeps, …
        arrays: by name; the kind says which.
        card: what a reader must know, plain JSON: `corpus`, `date`, `device`, `errors`, `seed`, versions, settings.
    """

    name: str
    kind: str
    arrays: Mapping[str, npt.NDArray[Any]]
    card: Mapping[str, Any] = field(default_factory=dict)


def write_model(model: StoredModel, path: str | Path, *, force: bool = False) -> None:
    """Write a model's folder.

    Raises:
        OutputExistsError: there is a model already and force is not given.
    """
    folder = Path(path)
    if (folder / CARD).exists() and not force:
        raise OutputExistsError(f"{folder} holds a model already; give --force to replace it, or another --out")
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in sorted(model.arrays.items())}
    with (folder / ARRAYS).open("wb") as file:
        np.savez_compressed(file, **arrays)
    card = {"version": MODEL_VERSION, "kind": model.kind, **model.card}
    (folder / CARD).write_text(json.dumps(card, indent=2, sort_keys=False) + "\n", encoding="utf-8")


def read_model(path: str | Path, *, kind: str | None = None) -> StoredModel:
    """Read a model's folder.

    Args:
        path: the folder, or `builtin:NAME` for one that came with the package.
        kind: what it must be; None takes any.

    Raises:
        ModelError: there is no model, it is damaged, of a newer version, or of another kind.
    """
    text = str(path)
    if not text.startswith("builtin:"):
        return _read_folder(Path(path), kind)
    name = text.removeprefix("builtin:")
    if name not in builtin_models():
        raise ModelError(f"no model called {name!r} came with the package; there are: {', '.join(builtin_models())}")
    with as_file(files("phasepoint.learn").joinpath("models").joinpath(name)) as folder:
        return _read_folder(folder, kind)


def builtin_models() -> tuple[str, ...]:
    """Names of the models that came with the package, sorted."""
    root = files("phasepoint.learn").joinpath("models")
    return tuple(sorted(entry.name for entry in root.iterdir() if entry.joinpath(CARD).is_file()))


def _read_folder(folder: Path, kind: str | None) -> StoredModel:
    card = _read_card(folder)
    version = card.pop("version", None)
    if not isinstance(version, int) or version > MODEL_VERSION:
        raise ModelError(
            f"{folder / CARD}: version {version!r}, this release reads up to {MODEL_VERSION}; upgrade or train it anew"
        )
    found = str(card.pop("kind", ""))
    if kind is not None and found != kind:
        raise ModelError(f"{folder} is a model of kind {found!r}, not {kind!r}; give the folder of a {kind} model")
    try:
        with (folder / ARRAYS).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"{folder / ARRAYS} cannot be read ({error}); train the model anew") from error
    return StoredModel(folder.name, found, arrays, card)


def _read_card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    if not path.is_file():
        raise ModelError(f"{folder} holds no model: {CARD} is missing; a model is made by `phasepoint learn train`")
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}); train the model anew") from error
    if not isinstance(card, dict):
        raise ModelError(f"{path} holds no JSON object; train the model anew")
    return card
