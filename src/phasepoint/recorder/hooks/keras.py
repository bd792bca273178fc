"""Checkpoints of Keras 3: `Model.save`, `Model.save_weights`, and what calls them, such as `ModelCheckpoint`.

Both end in functions of `keras.src.saving.saving_api`, which are wrapped under whatever name they are called.

Source: keras 3.0 to 3.15.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.saves import Decorator, Describe, Saved
from phasepoint.recorder.seam.patch import patch_function
from phasepoint.recorder.seam.redirection import absolute_path, destination
from phasepoint.recorder.seam.session import Remove

SAVES = ("save_model", "save_weights")
"""Saving functions; the second argument of each is the path."""


def hook_keras(wrap: Callable[[Describe], Decorator]) -> list[Remove]:
    """Wrap the saving functions of Keras, which must have been imported."""
    import keras.src.saving.saving_api as saving

    return [patch_function(saving, name, wrap(describe_keras_save)) for name in SAVES]


def describe_keras_save(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Saved | None:
    """What `save_model(model, filepath)` or `save_weights(model, filepath)` wrote; None where nothing stands there."""
    place = args[1] if len(args) > 1 else kwargs.get("filepath")
    if not isinstance(place, str | os.PathLike):
        return None
    path = absolute_path(destination(os.fspath(place)))
    there = "://" in path or Path(path).exists()
    return Saved("keras", path, None, False, holds_inner=True) if there else None
