"""Saves seen from outside: a saving function is wrapped, and every outermost call that saved something is told."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.redirection import Decorator, saved_bytes
from phasepoint.recorder.seam.session import CheckpointWaited, CheckpointWritten, Remove

LEAST_WAIT_NS = 1_000_000
"""A call that found nothing to wait for is no wait; loops make one every step."""


class Saved(Struct, frozen=True):
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


def saved_whole(framework: str, path: str | None, *, asynchronous: bool = False) -> Saved | None:
    """What a call saved at a path, with all that is saved within it; None without a path."""
    return None if path is None else Saved(framework, path, None, asynchronous, holds_inner=True)


def defined_in(module: str) -> dict[str, Any]:
    """What an imported module defines itself, by name, without what it imports from others."""
    named = vars(sys.modules[module]).items()
    return {name: one for name, one in named if getattr(one, "__module__", None) == module}


Describe = Callable[[tuple[Any, ...], Mapping[str, Any], Any], Saved | None]
"""Arguments, named arguments and result of a finished call to what it saved; None if it saved no checkpoint."""


class SavePoint(Struct, frozen=True):
    """A function or method of a framework by which checkpoints are written, waited for, or given their place.

    Attributes:
        owner: module or class that has it; None where this version of the framework has none.
        name: its name there; where it does not exist nothing is hooked.
        describe: what a finished call of it saved; None where that is not asked.
        redirect: makes it write elsewhere in a replay; None where what it calls is redirected.
        waits_for: framework for whose saves it waits; None where it is none of those.
        by_any_name: whether it is a plain function, which others may have taken a reference to.
    """

    owner: Any
    name: str
    describe: Describe | None = None
    redirect: Decorator | None = None
    waits_for: str | None = None
    by_any_name: bool = False

    def wrap(self, decorate: Decorator) -> Remove:
        """Put a decorator's function in its place; returns what takes it out."""
        from phasepoint.recorder.seam.patch import patch_attribute, patch_function

        return (patch_function if self.by_any_name else patch_attribute)(self.owner, self.name, decorate)


class _SaveCall(Struct):
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

    def hook(self, point: SavePoint) -> list[Remove]:
        """Notice the calls of a function, if it is one that saves or waits; returns what takes the hook out."""
        if point.waits_for is not None:
            return [point.wrap(self.wrap_wait(point.waits_for))]
        return [] if point.describe is None else [point.wrap(self.wrap(point.describe))]

    def wrap(self, describe: Describe) -> Decorator:
        """A decorator for a saving function, which `describe` understands."""

        def decorate(save: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(save)
            def noticed(*args: Any, **kwargs: Any) -> Any:
                outer: _SaveCall | None = getattr(self._thread, "call", None)
                call = self._thread.call = _SaveCall(self._now_ns())
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
                call = self._thread.call = _SaveCall(self._now_ns())
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
    def _finish(self, call: _SaveCall, outer: _SaveCall | None, describe: Callable[[], Saved | None]) -> None:
        saved = _merge(describe(), call.inner)
        if saved is None:
            return
        if outer is not None:
            outer.inner = _beside(outer.inner, saved)
        elif saved.path is not None:
            self._thread.saves = True
            self._on_written(_checkpoint(call, saved, saved.path))


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


def _checkpoint(call: _SaveCall, saved: Saved, path: str) -> CheckpointWritten:
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
