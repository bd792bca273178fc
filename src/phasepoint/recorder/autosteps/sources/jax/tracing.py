"""What a JAX program does, seen while JAX traces it: does it take a gradient, apply an update, loop over steps?

Tracing happens once for each program and signature, so what is asked here costs an execution nothing. Private names of
JAX: `pjit._infer_params`, which traces every jitted function, and `ad.linearize` (`ad.vjp` in older versions), through
which every reverse-mode gradient goes. Where one of them is missing, programs are told apart by their work alone.
"""

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank
from phasepoint.recorder.autosteps.sources.jax.programs import program_key, program_name
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.patch import patch_attribute


@dataclass
class TracedProgram:
    """What tracing showed of one program.

    Attributes:
        rank: what it does.
        steps_per_call: rounds of the loops around its optimizer update; 1 where there are none.
        gradients_per_call: rounds of the loops around its gradient.
    """

    rank: Rank = Rank.REPEATED_PROGRAM
    steps_per_call: int = 1
    gradients_per_call: int = 1


@dataclass(frozen=True)
class JittedCall:
    """A call of a jitted function that JAX has to look at itself: its first ones, and those that compile again.

    Attributes:
        name: the function's name, as XLA writes it.
        key: the program; None for one of JAX's own.
        began_ns: when it was called.
    """

    name: str
    key: Hashable | None
    began_ns: int


class JaxTracing:
    """Watches what is traced, on any thread.

    Args:
        guard: keeps faults from the job.
        on_gradient: called when a gradient has been taken outside of every compiled program.

    Attributes:
        programs: what is known of each program, by key.
        keys: the newest program of each name.
    """

    def __init__(self, guard: Guard, on_gradient: Callable[[], object]) -> None:
        self.guard = guard
        self.programs: dict[Hashable, TracedProgram] = {}
        self.keys: dict[str, Hashable] = {}
        self._on_gradient = on_gradient
        self._thread = _ThreadState()

    def install(self) -> None:
        """Put the hooks in; JAX must have been imported."""
        _hide_our_frames()
        pjit = sys.modules.get("jax._src.pjit")
        ad = sys.modules.get("jax._src.interpreters.ad")
        loops = sys.modules.get("jax._src.lax.control_flow.loops")
        patch_attribute(pjit, "_infer_params", self._wrap_infer)
        for name in ("linearize", "vjp"):
            patch_attribute(ad, name, self._wrap_gradient)
        scan = getattr(loops, "scan", None)
        for owner in (loops, sys.modules.get("jax._src.lax.control_flow"), sys.modules.get("jax.lax")):
            if scan is not None and getattr(owner, "scan", None) is scan:
                patch_attribute(owner, "scan", self._wrap_scan)

    def last_call(self, name: str) -> JittedCall | None:
        """The call of a jitted function on this thread that leads to the execution of a program of this name."""
        call, self._thread.call = self._thread.call, None
        return call if call is not None and call.name == name else None

    def note_update(self) -> bool:
        """An optimizer's update is being applied; True if that happens outside of every compiled program."""
        traced = self._traced()
        if traced is None:
            return trace_state_clean()
        traced.rank = Rank.UPDATE_PROGRAM
        traced.steps_per_call = math.prod(self._thread.rounds)
        return False

    def _wrap_infer(self, infer: Any) -> Any:
        @functools.wraps(infer)
        def infer_and_note(fun: Any, info: Any, args: Any, kwargs: Any) -> Any:
            entered = self._enter(fun)
            try:
                return infer(fun, info, args, kwargs)
            finally:
                if entered:
                    self._thread.tracing = None

        return infer_and_note

    @guarded
    def _enter(self, fun: Any) -> bool:
        """A jitted function is looked at; True if nothing is being traced around it."""
        if self._thread.tracing is not None or not trace_state_clean():
            return False
        key, name = program_key(fun), program_name(fun)
        self._thread.call = JittedCall(name, key, time.perf_counter_ns())
        if key is None:
            return False
        self.keys[name] = key
        self._thread.tracing = key
        self._thread.rounds = []
        return True

    def _wrap_gradient(self, take: Any) -> Any:
        @functools.wraps(take)
        def take_and_note(*args: Any, **kwargs: Any) -> Any:
            is_outside = self._note_gradient()
            out = take(*args, **kwargs)
            if is_outside:
                self._on_gradient()
            return out

        return take_and_note

    @guarded
    def _note_gradient(self) -> bool:
        traced = self._traced()
        if traced is None:
            return trace_state_clean()
        traced.rank = max(traced.rank, Rank.GRADIENT_PROGRAM)
        traced.gradients_per_call = max(traced.gradients_per_call, math.prod(self._thread.rounds))
        return False

    def _wrap_scan(self, scan: Any) -> Any:
        @functools.wraps(scan)
        def scan_and_note(*args: Any, **kwargs: Any) -> Any:
            rounds = self._scan_rounds(args, kwargs) or 0
            if not rounds:
                return scan(*args, **kwargs)
            self._thread.rounds.append(rounds)
            try:
                return scan(*args, **kwargs)
            finally:
                self._thread.rounds.pop()

        return scan_and_note

    @guarded
    def _scan_rounds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Rounds of a `lax.scan` that is being traced; 0 where nothing is."""
        if self._thread.tracing is None:
            return 0
        length = kwargs.get("length", args[3] if len(args) > 3 else None)
        if length is None:
            from jax import tree_util

            leaves = tree_util.tree_leaves(kwargs.get("xs", args[2] if len(args) > 2 else None))
            length = leaves[0].shape[0] if leaves else 0
        return int(length)

    def _traced(self) -> TracedProgram | None:
        key = self._thread.tracing
        return None if key is None else self.programs.setdefault(key, TracedProgram())


class _ThreadState(threading.local):
    """What one thread is tracing."""

    def __init__(self) -> None:
        self.tracing: Hashable | None = None
        self.rounds: list[int] = []
        self.call: JittedCall | None = None


def _hide_our_frames() -> None:
    """Our hooks are no lines of the job: JAX leaves them out of tracebacks and of the source lines of its programs."""
    exclude = getattr(sys.modules.get("jax._src.source_info_util"), "register_exclusion", None)
    if exclude is not None:
        exclude(str(Path(__file__).parents[2]))


def trace_state_clean() -> bool:
    """Whether nothing is being traced on this thread, so that what is called happens now."""
    clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)
    return bool(clean()) if clean is not None else False
