"""Notices checkpoints without a call: the frameworks' saving functions are wrapped in place while a recording runs.

A wrapper reads the clock twice and passes everything on: arguments, result, exceptions. A save inside a save (Orbax's
manager calls a checkpointer, a Trainer saves five files into one folder) is one checkpoint; a save that failed, or that
was skipped, is none. A wait for what is written in the background is noticed where it is the job that waits: on a
thread that saves, and outside of a save.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

from phasepoint.recorder.framework_hooks import hook_when_imported
from phasepoint.recorder.guard import Guard, guarded
from phasepoint.recorder.saved_folder import saved_bytes
from phasepoint.recorder.session import CheckpointWaited, CheckpointWritten, Remove

LEAST_WAIT_NS = 1_000_000
"""A call that found nothing to wait for is no wait; loops make one every step."""


@dataclass(frozen=True)
class Saved:
    """What a finished call says about the checkpoint it wrote; None for what it does not say.

    Attributes:
        framework: orbax, torch, dcp, safetensors, transformers, accelerate, lightning, keras or flax.
        path: where the checkpoint stands.
        bytes: its size, where it is known without a search.
        asynchronous: whether writing goes on.
        has_iterator: whether the data iterator's state is in it.
        holds_inner: what is saved within the call is a part of it: its own path counts (or that of such a call within,
            where it says none), and its size is measured when the outermost call is over.
    """

    framework: str
    path: str | None = None
    bytes: int | None = None
    asynchronous: bool | None = None
    has_iterator: bool | None = None
    holds_inner: bool = False


Describe = Callable[[tuple[Any, ...], Mapping[str, Any], Any], Saved | None]
"""Arguments, named arguments and result of a finished call to what it saved; None if it saved no checkpoint."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass
class _Call:
    start_ns: int
    end_ns: int = 0
    inner: Saved | None = None


class SaveWatch:
    """Wraps saving functions and tells of every outermost call that saved something, or that waited for a save."""

    def __init__(
        self,
        on_written: Callable[[CheckpointWritten], None],
        on_waited: Callable[[CheckpointWaited], None],
        guard: Guard,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.guard = guard
        self._on_written = on_written
        self._on_waited = on_waited
        self._now_ns = now_ns
        self._thread = threading.local()

    def wrap(self, describe: Describe) -> Decorator:
        """A decorator for a saving function, which `describe` understands."""

        def decorate(save: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(save)
            def noticed(*args: Any, **kwargs: Any) -> Any:
                outer: _Call | None = getattr(self._thread, "call", None)
                call = self._thread.call = _Call(self._now_ns())
                try:
                    result = save(*args, **kwargs)
                finally:
                    self._thread.call = outer
                call.end_ns = self._now_ns()
                self._finish(call, outer, lambda: describe(args, kwargs, result))
                return result

            return noticed

        return decorate

    def wrap_wait(self, framework: str) -> Decorator:
        """A decorator for a function that waits for what a save left to be written."""

        def decorate(wait: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(wait)
            def noticed(*args: Any, **kwargs: Any) -> Any:
                if getattr(self._thread, "call", None) is not None or not getattr(self._thread, "saves", False):
                    return wait(*args, **kwargs)
                call = self._thread.call = _Call(self._now_ns())
                try:
                    return wait(*args, **kwargs)
                finally:
                    self._thread.call = None
                    self._waited(CheckpointWaited(call.start_ns, self._now_ns(), framework))

            return noticed

        return decorate

    @guarded
    def _waited(self, waited: CheckpointWaited) -> None:
        if waited.end_ns - waited.start_ns >= LEAST_WAIT_NS:
            self._on_waited(waited)

    @guarded
    def _finish(self, call: _Call, outer: _Call | None, describe: Callable[[], Saved | None]) -> None:
        saved = _merge(describe(), call.inner)
        if saved is None:
            return
        if outer is not None:
            outer.inner = _beside(outer.inner, saved)
        elif saved.path is not None:
            self._thread.saves = True
            self._on_written(_checkpoint(call, saved, saved.path))


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
    from phasepoint.recorder.torch_hook import hook_torch_save

    return hook_torch_save(watch.wrap)


def _hook_dcp(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.dcp_hook import hook_dcp

    return hook_dcp(watch.wrap)


def _hook_safetensors(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.safetensors_hook import hook_safetensors

    return hook_safetensors(module, watch.wrap)


def _hook_orbax(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.orbax_hook import hook_orbax

    return hook_orbax(watch.wrap, watch.wrap_wait)


def _hook_orbax_v1(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.orbax_v1_hook import hook_orbax_v1

    return hook_orbax_v1(module, watch.wrap)


def _hook_transformers(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.transformers_hook import hook_transformers

    return hook_transformers(module, watch.wrap)


def _hook_accelerate(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.accelerate_hook import hook_accelerate

    return hook_accelerate(watch.wrap)


def _hook_lightning(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.lightning_hook import hook_lightning

    return hook_lightning(module, watch.wrap)


def _hook_keras(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.keras_hook import hook_keras

    return hook_keras(watch.wrap)


def _hook_flax(watch: SaveWatch, module: str) -> list[Remove]:
    from phasepoint.recorder.flax_hook import hook_flax

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


def _merge(outer: Saved | None, inner: Saved | None) -> Saved | None:
    """What the outer call says, completed by what the call inside it knew better: the path and whether it waits."""
    if outer is None or inner is None:
        return outer or inner
    if outer.holds_inner:
        within = inner.path if inner.holds_inner else None
        return replace(outer, path=outer.path or within, has_iterator=outer.has_iterator or inner.has_iterator)
    return Saved(
        framework=outer.framework,
        path=inner.path or outer.path,
        bytes=inner.bytes if outer.bytes is None else outer.bytes,
        asynchronous=inner.asynchronous if outer.asynchronous is None else outer.asynchronous,
        has_iterator=outer.has_iterator or inner.has_iterator,
        holds_inner=inner.holds_inner,
    )


def _beside(earlier: Saved | None, later: Saved) -> Saved:
    """What two saves within one call say of it: one that holds others before a single file, else the later one."""
    if earlier is None:
        return later
    chosen = earlier if earlier.holds_inner and not later.holds_inner else later
    return replace(chosen, has_iterator=earlier.has_iterator or later.has_iterator)


def _checkpoint(call: _Call, saved: Saved, path: str) -> CheckpointWritten:
    measured = saved.bytes is None and saved.holds_inner and not saved.asynchronous
    return CheckpointWritten(
        path=path,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        framework=saved.framework,
        bytes=saved_bytes(path) if measured else saved.bytes,
        asynchronous=saved.asynchronous,
        has_iterator=saved.has_iterator,
    )
