"""How long the job's thread stood in calls that wait: for the other ranks, and for the device.

All ranks of a synchronous job make steps of equal length, whichever of them is late; the one that the others wait for
is the one that waits least. PyTorch's ranks wait inside the backward pass (private: `_engine_run_backward`, where DDP
and FSDP reduce gradients) and in `Work.wait`; JAX's in `block_until_ready` and where an array's values are read. A
wrapper adds up how long the outermost of these calls took on the thread that makes the steps. What else such a call
does (computing gradients) it does on all ranks, so that only differences between ranks mean something.

Two clock readings a call: 0.42 µs in a tight loop (2 shared cores, 2026-11-25), one or two calls a step. Only jobs of
several ranks are measured.
"""

import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from phasepoint.core.units import PS_PER_NS, PS_PER_US
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.patch import patch_attribute, patch_function
from phasepoint.recorder.seam.session import Remove, remove_all

SYNC_COST_PS = 2 * PS_PER_US
"""Charged for each step: one call of 0.42 µs in a tight loop, five times as much between the job's own code
(`IN_THE_JOB` of `recorder/assembly.py`)."""

_FUNCTIONS = (("jax", "block_until_ready"),)
"""Module and function, whose callers may hold it by other names."""

_ATTRIBUTES = (
    ("torch.autograd", "", "_engine_run_backward"),
    ("torch._C._distributed_c10d", "Work", "wait"),
    ("jax._src.array", "ArrayImpl", "block_until_ready"),
    ("jax._src.array", "ArrayImpl", "_value"),
)
"""Module, class in it or nothing, method or property."""


class SyncClock:
    """Adds up the time in calls that wait. `install` and the calls on the job's thread, `total_ps` on any."""

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._total_ns = 0
        self._began_ns: int | None = None
        self._thread: int | None = None
        self._removes: list[Remove] = []

    def install(self) -> bool:
        """Put the wrappers into the frameworks that have been imported; this thread is the one that is measured.

        What goes wrong here (another version of a framework) harms nothing else: the recording goes on without.

        Returns:
            Whether anything is measured.
        """
        self._thread = threading.get_ident()
        Guard().call("timing calls that wait", self._install)
        return bool(self._removes)

    def _install(self) -> None:
        for module, name in _FUNCTIONS:
            if module in sys.modules:
                self._removes.append(patch_function(sys.modules[module], name, self.timed))
        for module, owner, name in _ATTRIBUTES:
            found: Any = sys.modules.get(module)
            found = getattr(found, owner, None) if owner else found
            if found is not None:
                self._removes.append(patch_attribute(found, name, self.timed))

    def remove(self) -> None:
        """Take the wrappers out again."""
        remove_all(self._removes)()

    def total_ps(self) -> int | None:
        """How long such calls took so far, a call in progress included; None where nothing is measured."""
        if not self._removes:
            return None
        total_ns, began_ns = self._total_ns, self._began_ns
        if began_ns is not None:
            total_ns += max(self._now_ns() - began_ns, 0)
        return total_ns * PS_PER_NS

    def timed(self, call: Any) -> Any:
        """A function, method or property that does what this one does, and is timed."""
        if isinstance(call, property):
            return property(self.timed(call.fget), call.fset, call.fdel, call.__doc__)
        now_ns, thread = self._now_ns, self._thread

        def call_timed(*args: Any, **kwargs: Any) -> Any:
            if self._began_ns is not None or threading.get_ident() != thread:
                return call(*args, **kwargs)
            self._began_ns = began_ns = now_ns()
            try:
                return call(*args, **kwargs)
            finally:
                self._began_ns = None
                self._total_ns += now_ns() - began_ns

        # A compiled class' methods are no functions, and lack what `wraps` copies.
        return wraps(call)(call_timed) if isinstance(call, FunctionType) else call_timed
