"""Notices the user's own torch profilers, so that theirs and the recorder's never run at the same time.

Kineto has one session per process: preparing a second one silently cancels the first, whoever owns it. All of torch's
profilers (`torch.profiler.profile`, `torch.autograd.profiler.profile`, `emit_nvtx`, `emit_itt`, the legacy one) start
through a few functions that their modules look up by name at each call; those names are wrapped while a recording runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from phasepoint.recorder.patch import patch_attribute
from phasepoint.recorder.session import Remove


class UserProfiler:
    """Whether the user's torch profiler is prepared or running, and a call before it becomes so."""

    def __init__(self) -> None:
        self._before_start: Callable[[], None] | None = None
        self._prepared = False
        self._ours_since_prepared = False
        self._is_ours = False

    def is_running(self) -> bool:
        """True from the user's preparation (the warm-up of a schedule) to their stop, on whatever thread."""
        import torch

        return (
            self._prepared
            or bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))
            or bool(torch.autograd._profiler_enabled())
        )

    @contextlib.contextmanager
    def left_alone(self) -> Iterator[None]:
        """Around the recorder's own starts and stops: they are not the user's, and they void what the user prepared
        before the recording began."""
        self._is_ours = self._ours_since_prepared = True
        try:
            yield
        finally:
            self._is_ours = False

    def watch(self, before_start: Callable[[], None]) -> Remove:
        """Wrap the starting functions until the returned function is called."""
        import torch.autograd.profiler as current
        import torch.autograd.profiler_legacy as legacy

        self._before_start = before_start
        removes = [
            patch_attribute(current, "_prepare_profiler", self._wrap_prepare),
            patch_attribute(current, "_enable_profiler", self._wrap_enable),
            patch_attribute(current, "_disable_profiler", self._wrap_disable),
            patch_attribute(legacy, "_enable_profiler_legacy", self._wrap_prepare),
            patch_attribute(legacy, "_disable_profiler_legacy", self._wrap_disable),
        ]

        def remove() -> None:
            for undo in removes:
                undo()

        return remove

    def _announce(self) -> None:
        if self._prepared:
            return
        self._prepared = True
        if self._before_start is not None:
            self._before_start()

    def _wrap_prepare(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        def prepare_theirs(*args: Any, **kwargs: Any) -> Any:
            if not self._is_ours:
                self._announce()
                self._ours_since_prepared = False
            return prepare(*args, **kwargs)

        return prepare_theirs

    def _wrap_enable(self, enable: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        def enable_theirs(config: Any, activities: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_ours:
                self._announce()
                if self._ours_since_prepared and activities:
                    torch.autograd._prepare_profiler(config, activities)
                self._ours_since_prepared = False
            return enable(config, activities, *args, **kwargs)

        return enable_theirs

    def _wrap_disable(self, disable: Callable[..., Any]) -> Callable[..., Any]:
        def disable_theirs(*args: Any, **kwargs: Any) -> Any:
            try:
                return disable(*args, **kwargs)
            finally:
                self._prepared = self._prepared and self._is_ours

        return disable_theirs
