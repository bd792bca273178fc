"""The steps of a JAX job that says nothing: executions of the program that does most of its work.

JAX has no public hook for executions. Two private places see all of them without changing what the job calls: the
post hook that the compiled fast path calls after every cached execution (JAX's own NaN check uses it), and
`ExecuteReplicated.__call__`, through which the first executions and those with effects go. Measured with jax 0.10.2
on 2 shared cores (2026-11-21), CPU time of an execution that takes 3.2 µs without: 2.4 µs more for the step program,
1.1 µs for another jitted function of the job, 0.2 µs for an eager expression.

A step begins when the program has been dispatched and ends when it has been dispatched again. Which program it is
shows after a few executions: the one with the most executions times bytes taken and given. That choice is looked at
again each time the number of executions has doubled.
"""

import atexit
import functools
import itertools
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from phasepoint.recorder.autosteps import LateRecording, PastStep
from phasepoint.recorder.guard import guarded
from phasepoint.recorder.patch import patch_attribute

DECIDE_EXECUTIONS = 4
"""Executions of one program after which the first choice is made."""

SWITCH_RATIO = 2.0
"""How much more than the chosen program another one must have done since the last look to take its place."""

MOST_EARLY_EXECUTIONS = 1024
"""Executions kept of a program before it is chosen: an upper limit on memory, far above what is ever used."""

_INTERNAL = ("jax.", "jax._src.", "jaxlib.")
_PARALLEL = "jax._src.pmap"
_UNKNOWN_JAX = (
    "phasepoint: steps not recorded: this version of JAX does not tell of its executions where we look; "
    "call phasepoint.record in the script\n"
)
_NOT_A_NAME = re.compile(r"[^0-9A-Za-z_]")
_MODULE_NAME = re.compile(r"(?:jit|pmap)(?:_(?P<old>.+)|\((?P<new>.+)\))")
"""`jit_train_step`, or `jit(train_step)` in newer versions."""

PostHook = Callable[[Any, Any, Any, Any], object]
"""Takes the function, its positional and named arguments, and its results."""

ReadHook = Callable[[], PostHook | None]
WriteHook = Callable[[PostHook], object]


@dataclass
class Program:
    """What is known of one program of the job, by its name.

    Attributes:
        bytes: arrays taken and given by its first execution.
        executions: how often it ran.
        since_look: how often it ran since the last choice.
        times_ns: when its first executions had been dispatched.
    """

    bytes: int
    executions: int = 0
    since_look: int = 0
    times_ns: list[int] = field(default_factory=list)


class StepProgram:
    """Chooses the program whose executions are the steps. Knows nothing of JAX."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.programs: dict[str, Program] = {}
        self._total = 0
        self._next_look = 2 * DECIDE_EXECUTIONS

    def executed(self, name: str, size_bytes: Callable[[], int], now_ns: int) -> bool:
        """Note an execution; True if the choice has changed.

        Args:
            name: the program's name.
            size_bytes: bytes of its arguments and results, asked once for each program.
            now_ns: when it had been dispatched.
        """
        program = self.programs.get(name)
        if program is None:
            program = self.programs[name] = Program(size_bytes())
        program.executions += 1
        program.since_look += 1
        self._total += 1
        if self.name is None:
            if len(program.times_ns) < MOST_EARLY_EXECUTIONS:
                program.times_ns.append(now_ns)
            return program.executions >= DECIDE_EXECUTIONS and self.choose()
        return self._total >= self._next_look and self.choose()

    def choose(self) -> bool:
        """Look at the choice now; True if it has changed. Only a program that ran twice or more can be chosen."""
        self._next_look = 2 * self._total
        work = {
            name: program.since_look * max(1, program.bytes)
            for name, program in self.programs.items()
            if program.executions > 1
        }
        for program in self.programs.values():
            program.since_look = 0
        best = max(work, key=lambda name: work[name], default=None)
        if best is None or best == self.name:
            return False
        if self.name is not None and work[best] <= SWITCH_RATIO * work[self.name]:
            return False
        self.name = best
        return True

    def first_times_ns(self) -> list[int]:
        """When the chosen program's executions before the choice had been dispatched."""
        return [] if self.name is None else self.programs[self.name].times_ns


class JaxClock:
    """Turns executions into the steps of a recording."""

    def __init__(self, late: LateRecording) -> None:
        self.guard = late.guard
        self._late = late
        self._names: dict[int, tuple[weakref.ref[Any], str | None]] = {}
        self._ignored: set[int] = set()
        self._reset()

    def _reset(self) -> None:
        self._chooser = StepProgram()
        self._thread = 0

    def install(self) -> None:
        """Put the hooks in; JAX must have been imported."""
        pxla = sys.modules.get("jax._src.interpreters.pxla")
        execute = getattr(pxla, "ExecuteReplicated", None)
        post_hook = _PostHook.find(self._executed_fast, self._ignored)
        if execute is None or post_hook is None:
            atexit.register(sys.stderr.write, _UNKNOWN_JAX)
            return
        patch_attribute(execute, "__call__", self._wrap_execute)
        post_hook.arm()
        post_hook.stay()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self._exit)

    def _wrap_execute(self, execute: Any) -> Any:
        @functools.wraps(execute)
        def execute_and_tell(compiled: Any, *args: Any) -> Any:
            out = execute(compiled, *args)
            self._executed_slowly(compiled, args, out)
            return out

        return execute_and_tell

    @guarded
    def _executed_slowly(self, compiled: Any, args: Any, out: Any) -> None:
        match = _MODULE_NAME.fullmatch(str(getattr(compiled, "name", "")))
        if match is not None:
            name = _plain_name(match["old"] or match["new"])
            self._executed(name, lambda: _leaf_bytes((args, out)))

    @guarded
    def _executed_fast(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        known = self._names.get(id(function))
        if known is None or known[0]() is not function:
            known = self._name(function)
        name = known[1]
        if name is not None:
            self._executed(name, lambda: _leaf_bytes((args, kwargs, out)))

    def _name(self, function: Any) -> tuple[weakref.ref[Any], str | None]:
        """Remember a function's name for as long as it lives; JAX's own are not told of again."""
        number, ignored = id(function), self._ignored

        def forget(_: object) -> None:
            ignored.discard(number)

        name = _function_name(function)
        if name is None:
            ignored.add(number)
        known = self._names[number] = (weakref.ref(function, forget), name)
        return known

    def _executed(self, name: str, size_bytes: Callable[[], int]) -> None:
        thread = threading.get_ident()
        if (thread != self._thread and self._thread) or self._late.framework == "torch":
            return
        changed = self._chooser.executed(name, size_bytes, time.perf_counter_ns())
        if not self._late.is_open:
            if changed:
                self._thread = thread
                self._open(self._chooser.first_times_ns())
        elif name == self._chooser.name:
            self._begin_step()

    def _open(self, times_ns: list[int]) -> None:
        """The step program is known: its executions up to now are the first steps."""
        past = [PastStep(begin, None, end) for begin, end in itertools.pairwise(times_ns)]
        if past:
            self._late.open("jax", past, finish=self._late.drop_step)
            self._begin_step()

    def _begin_step(self) -> None:
        self._late.ask()
        self._late.got(waited=False)

    @guarded
    def _exit(self) -> None:
        """A job of few steps has not opened its recording yet. Nobody says when a last step ended, so it is none."""
        if self._late.framework is None and self._chooser.choose():
            self._open(self._chooser.first_times_ns())
        if self._late.framework == "jax":
            self._late.close()


class _PostHook:
    """The function that JAX calls after each cached execution; the one that was there stays in force behind ours."""

    def __init__(self, executed: PostHook, ignored: Container[int], *, read: ReadHook, write: WriteHook) -> None:
        self._executed = executed
        self._ignored = ignored
        self._read = read
        self._write = write
        self._next: PostHook | None = None
        self._hook = self._call

    @staticmethod
    def find(executed: PostHook, ignored: Container[int]) -> "_PostHook | None":
        """JAX's place for the function; None where this JAX has it elsewhere.

        Args:
            executed: called with function, arguments, named arguments and results.
            ignored: `id` of the functions that it is not called with.
        """
        state: Any = getattr(sys.modules.get("jax._src.api"), "_post_hook_state", None)
        if hasattr(state, "set_global"):
            return _PostHook(executed, ignored, read=state.get_global, write=state.set_global)
        older: Any = getattr(sys.modules.get("jax._src.lib"), "jax_jit", None)  # seen in jax 0.6.2
        if not hasattr(older, "global_state"):
            return None
        state = older.global_state()
        return _PostHook(
            executed, ignored, read=lambda: state.post_hook, write=lambda hook: setattr(state, "post_hook", hook)
        )

    def arm(self) -> None:
        """Put ours in, if it is not there."""
        current = self._read()
        if current is not self._hook:
            self._next = current
            self._write(self._hook)

    def stay(self) -> None:
        """Stay in place when `jax_debug_nans` or `jax_debug_infs` is set, which puts JAX's own check there."""
        config = sys.modules.get("jax._src.config")
        api = sys.modules.get("jax._src.api")
        everywhere = getattr(api, "_update_debug_special_global", None)
        in_thread = getattr(api, "_update_debug_special_thread_local", None)
        if everywhere is None or in_thread is None:
            return

        def update(value: object) -> None:
            everywhere(value)
            self.arm()

        for name in ("debug_nans", "debug_infs"):
            add_hooks = getattr(getattr(config, name, None), "_add_hooks", None)
            if add_hooks is not None:
                add_hooks(update, in_thread)

    def _call(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        if id(function) not in self._ignored:
            self._executed(function, args, kwargs, out)
        if self._next is not None:
            self._next(function, args, kwargs, out)


def _function_name(function: Any) -> str | None:
    """A jitted function's name; None for JAX's own small programs (`convert_element_type` of an eager expression)."""
    module = str(getattr(function, "__module__", ""))
    if module.startswith(_INTERNAL) and module != _PARALLEL:
        return None
    return _plain_name(str(getattr(function, "__name__", ""))) or "unnamed"


def _plain_name(name: str) -> str:
    """The name as XLA writes it in a module's name, without its signs."""
    return _NOT_A_NAME.sub("_", name)


def _leaf_bytes(tree: Any) -> int:
    """Bytes of the arrays in a tree; donated ones still know theirs."""
    from jax import tree_util

    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in tree_util.tree_leaves(tree))
