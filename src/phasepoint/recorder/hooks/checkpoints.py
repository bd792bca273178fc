"""Notices checkpoints without a call: the frameworks' saving functions are wrapped in place while a recording runs.

A wrapper reads the clock twice and passes everything on: arguments, result, exceptions. A save inside a save (Orbax's
manager calls a checkpointer, a Trainer saves five files into one folder) is one checkpoint; a save that failed, or that
was skipped, is none. A wait for what is written in the background is noticed where it is the job that waits: on a
thread that saves, and outside of a save.

Hooks of one framework: put in when it has been imported, now or later, and taken out again.
"""

from collections.abc import Callable, Mapping
from functools import partial

from phasepoint.recorder.hooks.saves import SaveWatch
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.session import CheckpointWaited, CheckpointWritten, Remove

Hook = Callable[[str], list[Remove]]
"""Puts the hooks of a module in, by its name; returns what takes each out."""


def hook_when_imported(module: str, guard: Guard, hook: Hook) -> Remove:
    """Put a framework's hooks in as soon as its module has been imported.

    Args:
        module: full name.
        guard: catches what goes wrong in putting them in.
        hook: does it.

    Returns:
        What takes the hooks out, or sees to it that they do not come in any more.
    """
    install = _Install(module, guard, hook)
    forget = when_imported(module, install.run)

    def remove() -> None:
        forget()
        install.undo()

    return remove


class _Install:
    """The hooks of one framework."""

    def __init__(self, module: str, guard: Guard, hook: Hook) -> None:
        self.guard = guard
        self._module = module
        self._hook = hook
        self._removes: list[Remove] = []

    @guarded
    def run(self) -> None:
        self._removes = self._hook(self._module)

    def undo(self) -> None:
        for remove in reversed(self._removes):
            remove()
        self._removes = []


def watch_checkpoints(
    on_written: Callable[[CheckpointWritten], None],
    on_waited: Callable[[CheckpointWaited], None],
    *,
    guard: Guard,
) -> Remove:
    """Notice checkpoints of the frameworks of `_HOOKS`, whether these are imported already or later.

    Args:
        on_written: called on the saving thread after every checkpoint.
        on_waited: called on the saving thread after it waited for one that was being written.
        guard: catches what goes wrong in the hooks.

    Returns:
        What takes the hooks out again.
    """
    watch = SaveWatch(on_written, on_waited, guard)
    hooks = ((module, partial(hook, watch)) for module, hook in _HOOKS.items())
    removes = [hook_when_imported(module, guard, hook) for module, hook in hooks]

    def remove() -> None:
        for one in removes:
            one()

    return remove


def _hook_torch(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.torch import hook_torch_save

    return hook_torch_save(watch.wrap)


def _hook_dcp(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.dcp import hook_dcp

    return hook_dcp(watch.wrap)


def _hook_safetensors(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.safetensors import hook_safetensors

    return hook_safetensors(module, watch.wrap)


def _hook_orbax(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.orbax import hook_orbax

    return hook_orbax(watch.wrap, watch.wrap_wait)


def _hook_orbax_v1(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.orbax import hook_orbax_v1

    return hook_orbax_v1(module, watch.wrap)


def _hook_transformers(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.transformers import hook_transformers

    return hook_transformers(module, watch.wrap)


def _hook_accelerate(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.accelerate import hook_accelerate

    return hook_accelerate(watch.wrap)


def _hook_lightning(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.lightning import hook_lightning

    return hook_lightning(module, watch.wrap)


def _hook_keras(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.keras import hook_keras

    return hook_keras(watch.wrap)


def _hook_flax(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.hooks.flax import hook_flax

    return hook_flax(watch.wrap)


_HOOKS: Mapping[str, Callable[[SaveWatch, str], list[Remove]]] = {
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
