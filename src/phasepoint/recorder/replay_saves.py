"""In a replay, saves that would go where the original's checkpoints stand go elsewhere; nothing of those is lost.

The save itself is done, for its time is part of the phase; only its place is another. The hooks go in when the process
imports its framework (`replay run` sees to that) and stay until it ends: a program saves its last checkpoint, or closes
its manager, after the recording is over.
"""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from phasepoint.recorder.framework_hooks import Hook, hook_when_imported
from phasepoint.recorder.guard import Guard
from phasepoint.recorder.patch import patch_attribute
from phasepoint.recorder.patch_function import patch_function
from phasepoint.recorder.redirection import Redirection, destination, in_force, put_in_force
from phasepoint.recorder.resume import ReplayRequest, tell
from phasepoint.recorder.session import Remove


def protect_checkpoints(
    request: ReplayRequest, guard: Guard, on_redirected: Callable[[str], None] | None = None
) -> Remove:
    """Redirect this process's saves away from `request.protected`, to `request.saves`, from now on.

    Args:
        request: what the replay is asked to do.
        guard: catches what goes wrong in putting the hooks in.
        on_redirected: called with every place, once, when the first save to it is redirected; None tells it in the
            handshake.

    Returns:
        `release_checkpoints`. A replay does not call it.
    """
    known = in_force()
    if known is not None and (known.protected, known.saves) == (request.protected, request.saves):
        return release_checkpoints
    on_redirected = on_redirected or (lambda place: tell(request, "redirected", place=place))
    put_in_force(Redirection(request.protected, request.saves, request.checkpoint, on_redirected))
    if not _hooks:  # else they are there, and ask what is in force
        _hooks.extend(hook_when_imported(module, guard, hook) for module, hook in _HOOKS.items())
    return release_checkpoints


def release_checkpoints() -> None:
    """End the protection of this process, if there is one, and take the hooks out."""
    put_in_force(None)
    while _hooks:
        _hooks.pop()()


_hooks: list[Remove] = []
"""What takes out the hooks that this process has in."""


def redirect_argument(position: int, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a function that writes to the path it is given.

    Args:
        position: of the path among the arguments.
        name: of the argument, where it is given by name.
    """

    def decorate(save: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(save)
        def redirected(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position:
                args = (*args[:position], _elsewhere(args[position]), *args[position + 1 :])
            elif name in kwargs:
                kwargs = {**kwargs, name: _elsewhere(kwargs[name])}
            return save(*args, **kwargs)

        return redirected

    return decorate


def _redirect_result(where: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for a function that says where to write."""

    @wraps(where)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        return _elsewhere(where(*args, **kwargs))

    return redirected


def _elsewhere(place: Any) -> Any:
    """A place to write, of the kind that was given; what is no path (an open file, a buffer) as it is."""
    if not isinstance(place, str | os.PathLike):
        return place
    path = os.fspath(place)
    if not isinstance(path, str):
        return place
    target = destination(path)
    if target == path:
        return place
    return target if isinstance(place, str) else type(place)(target)  # type: ignore[call-arg]


def _hook_torch(module: str) -> list[Remove]:
    import torch

    decorate = redirect_argument(1, "f")
    owners = [torch] if torch.save is torch.serialization.save else [torch, torch.serialization]
    return [patch_function(owner, "save", decorate) for owner in owners]


def _hook_dcp(module: str) -> list[Remove]:
    import torch.distributed.checkpoint as dcp

    decorate = redirect_argument(1, "checkpoint_id")  # by name alone
    # A storage writer takes its place when it is made.
    writer = redirect_argument(1, "path")
    return [
        *(patch_function(dcp, name, decorate) for name in ("save", "async_save")),
        patch_attribute(dcp.FileSystemWriter, "__init__", writer),
    ]


def _hook_safetensors(module: str) -> list[Remove]:
    import importlib

    return [patch_function(importlib.import_module(module), "save_file", redirect_argument(1, "filename"))]


def _hook_orbax(module: str) -> list[Remove]:
    from phasepoint.recorder.orbax_saves import protect_orbax

    return protect_orbax(redirect_argument(1, "directory"))


def _hook_orbax_v1(module: str) -> list[Remove]:
    import importlib

    from phasepoint.recorder.orbax_v1_hook import SAVES

    v1 = importlib.import_module(module)
    return [patch_attribute(v1, name, redirect_argument(0, "path")) for name in SAVES]


def _patch_methods(module: Any, methods: Iterable[tuple[str, str, Callable[..., Any]]]) -> list[Remove]:
    """Wrap (class, method, decorator) of those classes that a module defines; another version may lack one."""
    owners = {name: one for name, one in vars(module).items() if getattr(one, "__module__", None) == module.__name__}
    return [patch_attribute(owners[owner], name, wrap) for owner, name, wrap in methods if owner in owners]


def _hook_transformers(module: str) -> list[Remove]:
    import importlib

    methods = (
        ("Trainer", "_get_output_dir", _redirect_result),  # of checkpoints alone
        ("Trainer", "save_model", redirect_argument(1, "output_dir")),
        ("PreTrainedModel", "save_pretrained", redirect_argument(1, "save_directory")),
    )
    return _patch_methods(importlib.import_module(module), methods)


def _hook_accelerate(module: str) -> list[Remove]:
    from accelerate.accelerator import Accelerator

    return [
        patch_attribute(Accelerator, "save_state", redirect_argument(1, "output_dir")),
        patch_attribute(Accelerator, "save_model", redirect_argument(2, "save_directory")),
    ]


def _hook_lightning(module: str) -> list[Remove]:
    import importlib

    methods = (
        ("Fabric", "save", redirect_argument(1, "path")),
        ("Trainer", "save_checkpoint", redirect_argument(1, "filepath")),
    )
    return _patch_methods(importlib.import_module(module), methods)


def _hook_keras(module: str) -> list[Remove]:
    import keras.src.saving.saving_api as saving

    from phasepoint.recorder.keras_hook import SAVES

    return [patch_function(saving, name, redirect_argument(1, "filepath")) for name in SAVES]


def _hook_flax(module: str) -> list[Remove]:
    from flax.training import checkpoints

    from phasepoint.recorder.flax_hook import SAVES

    return [patch_function(checkpoints, name, redirect_argument(0, "ckpt_dir")) for name in SAVES]


def _hook_files(module: str) -> list[Remove]:
    from phasepoint.recorder.file_saves import protect_files

    return protect_files()


_HOOKS: dict[str, Hook] = {
    "builtins": _hook_files,
    "torch": _hook_torch,
    "torch.distributed.checkpoint": _hook_dcp,
    "safetensors.torch": _hook_safetensors,
    "safetensors.numpy": _hook_safetensors,
    "safetensors.flax": _hook_safetensors,
    "orbax.checkpoint": _hook_orbax,
    "orbax.checkpoint.v1": _hook_orbax_v1,
    "orbax.checkpoint.experimental.v1": _hook_orbax_v1,
    "transformers.trainer": _hook_transformers,
    "transformers.modeling_utils": _hook_transformers,
    "accelerate.accelerator": _hook_accelerate,
    "lightning.pytorch.trainer.trainer": _hook_lightning,
    "lightning.fabric.fabric": _hook_lightning,
    "pytorch_lightning.trainer.trainer": _hook_lightning,
    "lightning_fabric.fabric": _hook_lightning,
    "keras.src.saving.saving_api": _hook_keras,
    "flax.training.checkpoints": _hook_flax,
}
"""By module whose import brings them in, what puts the hooks in."""
