"""Ranges of `record_function` that the job entered while a capture was on, and has not left yet.

PyTorch keeps in each range where its event lies, and writes the end there when the range is left while any capture is
on. If that is another one than the range was entered in, the memory was given back: the job's heap is damaged and it
crashes later, anywhere (torch 2.13, measured 2026-11-25: within 50 captures that each began where the one before had
ended, inside `Optimizer.step`, which is such a range; none in 1,500 where all ranges had been left). So no capture
begins while one is open.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.session import Remove, remove_all


class OpenRanges:
    """Looks at the ranges of one thread during captures, and after them until all are left."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread: int | None = None
        self._is_on = False
        self._remove: Remove | None = None

    @property
    def are_left(self) -> bool:
        """Whether the job has left every range that it entered in a capture."""
        return not self._open

    def capture_begins(self) -> None:
        """Look at the ranges that this thread enters from now on."""
        from torch.autograd import profiler

        self._thread, self._is_on = threading.get_ident(), True
        if self._remove is None:
            kind = profiler.record_function
            self._remove = remove_all(
                [
                    patch_attribute(kind, "__enter__", self._wrap_enter),
                    patch_attribute(kind, "__exit__", self._wrap_exit),
                ]
            )

    def capture_ends(self) -> None:
        """Look at no more ranges; those that are open are waited for."""
        self._is_on = False
        self._forget()

    def _forget(self) -> None:
        if not self._is_on and not self._open and self._remove is not None:
            remove, self._remove = self._remove, None
            remove()

    def _wrap_enter(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        def enter_theirs(entered: Any) -> Any:
            if self._is_on and threading.get_ident() == self._thread:
                self._open.add(entered)  # first: a capture may end between any two of these lines
            return enter(entered)

        return enter_theirs

    def _wrap_exit(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        def leave_theirs(left: Any, *error: Any) -> Any:
            try:
                return leave(left, *error)
            finally:
                self._open.discard(left)
                self._forget()

        return leave_theirs
