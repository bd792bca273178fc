"""Has a function called on the job's main thread between two bytecodes, from another thread.

PyTorch's profiler must be started and stopped on the thread whose ops it records, while none of them runs: stopped from
another thread, or over all threads while one of them is inside an op, it writes to memory that was given back
(torch 2.13, measured 2026-11-22: a segmentation fault after some tens of stops). The interpreter itself calls functions
that were left with `Py_AddPendingCall` on the main thread between two bytecodes, where that thread is inside no op of
its own but those that called Python.
"""

import ctypes
import threading
from collections.abc import Callable

_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

_KEPT: list["MainThreadCalls"] = []
"""All of them, for ever (one or two a recording): the interpreter holds a bare pointer to what it will call."""


class MainThreadCalls:
    """Leaves one call at a time with the interpreter.

    Args:
        action: what is called on the main thread. It must not raise.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._waits = False
        self._call = _PendingCall(self._run)
        _KEPT.append(self)
        self._add = ctypes.pythonapi.Py_AddPendingCall
        self._add.argtypes = [_PendingCall, ctypes.c_void_p]
        self._add.restype = ctypes.c_int

    def request(self) -> None:
        """Have the action called soon; a request that still waits is enough. May be called on any thread."""
        if not self._waits:
            self._waits = self._add(self._call, None) == 0

    def _run(self, _: object) -> int:
        self._waits = False
        self._action()
        return 0


def on_main_thread() -> bool:
    """Whether the caller is the thread on which such calls are made."""
    return threading.current_thread() is threading.main_thread()
