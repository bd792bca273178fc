"""In a replay, saves that would go where the original's checkpoints stand go elsewhere; nothing of those is lost.

The save itself is done, for its time is part of the phase; only its place is another. The hooks go in when the process
imports its framework (`replay run` sees to that) and stay until it ends: a program saves its last checkpoint, or closes
its manager, after the recording is over.

In a replay, files of the original are neither written over nor deleted by Python's own means either.

Programs rotate checkpoints by hand, write them beside and rename them, keep a file that names the latest. Below a
protected place, what stood there before this process began is the original's: it is not deleted, and what would be
written or moved over it goes elsewhere. Other files there are the program's own. Writes of libraries that open files
by themselves, in C++, are not seen here; those of the frameworks have hooks of their own (`recorder/resume/saves.py`).
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

from phasepoint.recorder.hooks.checkpoints import Hook, hook_when_imported
from phasepoint.recorder.resume.request import ReplayRequest, tell
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.patch import patch_attribute, patch_function
from phasepoint.recorder.seam.redirection import Redirection, destination, in_force, put_in_force
from phasepoint.recorder.seam.session import Remove

Function = Callable[..., Any]

_SYMLINK_SAFETY = "avoids_symlink_attacks"
"""What programs may ask of `shutil.rmtree`; a function's own attribute or its class's, by Python version."""

_WRITES, _CHANGES = frozenset("wax"), frozenset("a+")


def protect_files() -> list[Remove]:
    """Put the hooks in; returns what takes them out."""
    import builtins
    import io

    began_ns = time.time_ns()
    kept = partial(_keep, began_ns=began_ns)
    moved = partial(_move, began_ns=began_ns)
    opened = partial(_open, began_ns=began_ns)
    return [
        *(patch_attribute(os, name, kept) for name in ("remove", "unlink", "rmdir")),
        patch_attribute(shutil, "rmtree", kept),
        *(patch_attribute(os, name, moved) for name in ("rename", "replace")),
        *(patch_attribute(owner, "open", opened) for owner in (builtins, io)),
    ]


def is_originals(path: str, began_ns: int) -> bool:
    """Whether a path is protected and holds something that is older than `began_ns`, Unix time."""
    redirection = in_force()
    if redirection is None or not redirection.protects(path):
        return False
    with suppress(OSError):
        if os.lstat(path).st_mtime_ns < began_ns:
            return True
        with os.scandir(path) as entries:
            return any(entry.stat(follow_symlinks=False).st_mtime_ns < began_ns for entry in entries)
    return False


def _keep(delete: Function, *, began_ns: int) -> Function:
    @wraps(delete)
    def kept(path: Any, *args: Any, **kwargs: Any) -> Any:
        place = _path(path)
        if place is None or kwargs.get("dir_fd") is not None or not is_originals(place, began_ns):
            return delete(path, *args, **kwargs)
        _tell(place)
        return None

    if hasattr(delete, _SYMLINK_SAFETY):
        setattr(kept, _SYMLINK_SAFETY, getattr(delete, _SYMLINK_SAFETY))
    return kept


def _move(move: Function, *, began_ns: int) -> Function:
    @wraps(move)
    def moved(source: Any, target: Any, **kwargs: Any) -> Any:
        source_path, target_path = _path(source), _path(target)
        if source_path is None or target_path is None or {"src_dir_fd", "dst_dir_fd"} & kwargs.keys():
            return move(source, target, **kwargs)
        if is_originals(source_path, began_ns):  # it stays, and what takes its place is a copy
            _tell(source_path)
            return _copy(source_path, destination(target_path))
        if is_originals(target_path, began_ns):
            target = destination(target_path)
        return move(source, target, **kwargs)

    return moved


def _open(opens: Function, *, began_ns: int) -> Function:
    @wraps(opens)
    def opened(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        place = _path(file)
        writes = isinstance(mode, str) and bool((_WRITES | _CHANGES) & set(mode))
        if place is None or not writes or not is_originals(place, began_ns):
            return opens(file, mode, *args, **kwargs)
        target = destination(place)
        if _CHANGES & set(mode) and "w" not in mode and not Path(target).exists():
            shutil.copyfile(place, target)
        return opens(target, mode, *args, **kwargs)

    return opened


def _copy(source: str, target: str) -> None:
    if Path(source).is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _tell(place: str) -> None:
    """A place is told once, the first time that something there is kept."""
    redirection = in_force()
    if redirection is not None:
        redirection.tell(place)


def _path(value: Any) -> str | None:
    """A path as text; None for a file's number and for bytes."""
    if not isinstance(value, str | os.PathLike):
        return None
    path = os.fspath(value)
    return path if isinstance(path, str) else None


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
    from phasepoint.recorder.resume.orbax_saves import protect_orbax

    return protect_orbax(redirect_argument(1, "directory"))


def _hook_orbax_v1(module: str) -> list[Remove]:
    import importlib

    from phasepoint.recorder.hooks.orbax import SAVES

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

    from phasepoint.recorder.hooks.keras import SAVES

    return [patch_function(saving, name, redirect_argument(1, "filepath")) for name in SAVES]


def _hook_flax(module: str) -> list[Remove]:
    from flax.training import checkpoints

    from phasepoint.recorder.hooks.flax import SAVES

    return [patch_function(checkpoints, name, redirect_argument(0, "ckpt_dir")) for name in SAVES]


def _hook_files(module: str) -> list[Remove]:

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
