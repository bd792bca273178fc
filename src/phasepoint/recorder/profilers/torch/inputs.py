"""What a PyTorch model is called with, looked at now and then: how much a step is given to do where no loader tells.

A hook for all modules stands from a boundary between two steps to the first call of the model after it, and takes
itself out there. The model is the module that was called first when this began; of a job with several (a GAN's), calls
of the others pass by. As with the marks of layers, a job that uses `torch.compile` has no such hook. Measured with
torch 2.13 on 2 shared cores (2026-11-25): 4 µs to put in, 5 µs for the call.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from phasepoint.recorder.profilers.torch.dynamo import has_compiled

MOST_CALLS = 8
"""Calls of other modules after which the hook gives up until it is asked for again."""


class NextInputs:
    """Waits for the next call of the job's model."""

    def __init__(self) -> None:
        self.is_over = False
        self._model: weakref.ref[Any] | None = None
        self._handle: Any = None
        self._take: Callable[[object], None] | None = None
        self._thread = 0
        self._calls = 0

    def wait(self, take: Callable[[object], None]) -> None:
        """Have `take` called with the positional inputs of the model's next call on this thread."""
        if self.is_over or self._handle is not None:
            self._calls = 0
            return
        hooks = sys.modules["torch.nn.modules.module"]
        if has_compiled() or not hasattr(hooks, "register_module_forward_pre_hook"):
            self.is_over = True
            return
        self._take, self._thread, self._calls = take, threading.get_ident(), 0
        self._handle = hooks.register_module_forward_pre_hook(self._enter)

    def forget(self) -> None:
        """Wait no longer."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def end(self) -> None:
        """Never wait again: the job compiles."""
        self.is_over = True
        self.forget()

    def _enter(self, module: Any, inputs: object) -> None:
        try:
            if self._thread != threading.get_ident():
                return
            if self._model is None or self._model() is None:
                self._model = weakref.ref(module)
            if self._model() is module:
                self.forget()
                if self._take is not None:
                    self._take(inputs)
                return
            self._calls += 1
            if self._calls >= MOST_CALLS:
                self.forget()
        except Exception:  # noqa: BLE001 - the job must not be hurt, whatever it is
            self.end()
