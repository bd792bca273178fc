"""Checkpoints of Keras 3: `Model.save`, `Model.save_weights`, and what calls them, such as `ModelCheckpoint`.

Both end in functions of `keras.src.saving.saving_api`, which are hooked under whatever name they are called.

Source: keras 3.0 to 3.15.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Saved, SavePoint, saved_whole
from phasepoint.recorder.seam.redirection import PathArgument

_PLACE = PathArgument(1, "filepath")


def save_points(module: str) -> list[SavePoint]:
    """The saving functions, `save_model(model, filepath)` and `save_weights(model, filepath)`."""
    import keras.src.saving.saving_api as saving

    return [
        SavePoint(saving, name, _describe, _PLACE.redirect, by_any_name=True) for name in ("save_model", "save_weights")
    ]


def _describe(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """None where nothing stands at the path."""
    path = _PLACE.saved(args, kwargs)
    return saved_whole("keras", path) if path is not None and ("://" in path or Path(path).exists()) else None
