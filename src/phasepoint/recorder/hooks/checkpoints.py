"""Notices checkpoints without a call: the frameworks' saving functions are wrapped in place while a recording runs.

A wrapper reads the clock twice and passes everything on: arguments, result, exceptions. A save inside a save (Orbax's
manager calls a checkpointer, a Trainer saves five files into one folder) is one checkpoint; a save that failed, or that
was skipped, is none. A wait for what is written in the background is noticed where it is the job that waits: on a
thread that saves, and outside of a save.

Hooks of one framework: put in when it has been imported, now or later, and taken out again.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

from phasepoint.recorder.hooks.saves import SavePoint, SaveWatch
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.session import CheckpointWaited, CheckpointWritten, Remove, remove_all

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
    removes: list[Remove] = []

    def install() -> None:
        if not guard.off:
            guard.call(f"hooking {module}", lambda: removes.extend(hook(module)))

    forget = when_imported(module, install)

    def remove() -> None:
        forget()
        while removes:
            removes.pop()()

    return remove


FRAMEWORKS: Mapping[str, str] = {
    "torch": "torch",
    "torch.distributed.checkpoint": "dcp",
    "safetensors.torch": "safetensors",
    "safetensors.numpy": "safetensors",
    "safetensors.flax": "safetensors",
    "orbax.checkpoint": "orbax",
    "orbax.checkpoint.v1": "orbax",
    "orbax.checkpoint.experimental.v1": "orbax",
    "transformers.trainer": "transformers",
    "transformers.modeling_utils": "transformers",
    "accelerate.accelerator": "accelerate",
    "lightning.pytorch.trainer.trainer": "lightning",
    "lightning.fabric.fabric": "lightning",
    "pytorch_lightning.trainer.trainer": "lightning",
    "lightning_fabric.fabric": "lightning",
    "keras.src.saving.saving_api": "keras",
    "flax.training.checkpoints": "flax",
}
"""By module after whose import its hooks go in, the file of `hooks` whose `save_points(module)` says what saves."""


def hook_frameworks(guard: Guard, hook: Callable[[SavePoint], list[Remove]]) -> list[Remove]:
    """Hook what the frameworks of `FRAMEWORKS` save by, whether these are imported already or later.

    Args:
        guard: catches what goes wrong in putting the hooks in.
        hook: puts those of one function in; returns what takes them out.

    Returns:
        For each framework what takes its hooks out, or sees to it that they do not come in any more.
    """

    def hook_module(module: str) -> list[Remove]:
        points = import_module(f"phasepoint.recorder.hooks.{FRAMEWORKS[module]}").save_points(module)
        return [remove for point in points if point.owner is not None for remove in hook(point)]

    return [hook_when_imported(module, guard, hook_module) for module in FRAMEWORKS]


def watch_checkpoints(
    on_written: Callable[[CheckpointWritten], None],
    on_waited: Callable[[CheckpointWaited], None],
    *,
    guard: Guard,
) -> Remove:
    """Notice checkpoints of the frameworks of `FRAMEWORKS`.

    Args:
        on_written: called on the saving thread after every checkpoint.
        on_waited: called on the saving thread after it waited for one that was being written.
        guard: catches what goes wrong in the hooks.

    Returns:
        What takes the hooks out again.
    """
    return remove_all(hook_frameworks(guard, SaveWatch(on_written, on_waited, guard).hook))
