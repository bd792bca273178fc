"""Trained models as JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phasepoint.learn.models.model_file import ARRAYS, CARD, Model
from phasepoint.learn.tasks import Task


def model_document(model: Model, folder: Path) -> Mapping[str, Any]:
    """What `phasepoint learn train --json` prints: where the model is, its kind and its card."""
    written = [{"path": str(folder / name), "bytes": (folder / name).stat().st_size} for name in (ARRAYS, CARD)]
    return {"model": str(folder), "model_kind": model.kind, "written": written, "card": dict(model.card)}


def models_document(models: Sequence[Model], tasks: Sequence[Task]) -> Mapping[str, Any]:
    """What `phasepoint learn --json` prints."""
    return {
        "models": [
            {"name": model.name, "kind": model.kind, "bytes": array_bytes(model), "card": dict(model.card)}
            for model in models
        ],
        "tasks": [{"name": task.name, "data": task.data} for task in tasks],
    }


def array_bytes(model: Model) -> int:
    """Size of a model's arrays in memory, bytes."""
    return sum(array.nbytes for array in model.arrays.values())
