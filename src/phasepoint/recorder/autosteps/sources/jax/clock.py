"""The steps of a JAX job that says nothing: executions of the program that trains.

JAX has no public hook for executions. Two private places see all of them without changing what the job calls: the
post hook that the compiled fast path calls after every cached execution (JAX's own NaN check uses it), and
`ExecuteReplicated.__call__`, through which the first executions and those with effects go. Measured with jax 0.10.2
on 2 shared cores (2026-11-22, when a boundary wrote a row): 15 µs a step, clock included, in a loop of 0.65 ms a step
(5 µs in a loop of nothing else, whose code stays in the caches); 1.1 µs for another jitted function of the job, 0.2 µs
for an eager expression, both in a loop of nothing else.

A step ends when its program has been dispatched, and begins where the one before ended; the first one begins with the
call. Which program it is shows after a few executions (`programs.py`), by what tracing showed of it
(`tracing.py`). What the job does between two dispatches, an evaluation say, counts into the later step.

JAX's post hook: the function that its compiled fast path calls after each cached execution.
"""

import atexit
import functools
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import STEPS_PER_CALL, STEPS_UNFOLLOWED, LateRecording, PastStep
from phasepoint.recorder.autosteps.sources.jax.programs import LEAST_EXECUTIONS, StepProgram, plain_name, program_key
from phasepoint.recorder.autosteps.sources.jax.tracing import JaxTracing, TracedProgram
from phasepoint.recorder.autosteps.step_ends import StepEnds
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.patch import patch_attribute

Told = Callable[[Any, Any, Any, Any], object]
"""Takes the function, its positional and named arguments, and its results."""

ReadHook = Callable[[], Told | None]
WriteHook = Callable[[Told], object]


@dataclass(frozen=True)
class Place:
    """Where JAX keeps the function, for all threads and for the one that asks; the thread's own goes before."""

    read: ReadHook
    write: WriteHook
    read_local: ReadHook
    write_local: WriteHook


class PostHook:
    """The function that JAX calls after each cached execution; the one that was there stays in force behind ours."""

    def __init__(self, executed: Told, ignored: Container[int], place: Place) -> None:
        self._executed = executed
        self._ignored = ignored
        self._place = place
        self._next: Told | None = None
        self._hook = self._call
        self._hook_alone = self._tell

    @staticmethod
    def find(executed: Told, ignored: Container[int]) -> "PostHook | None":
        """JAX's place for the function; None where this JAX has it elsewhere.

        Args:
            executed: called with function, arguments, named arguments and results.
            ignored: `id` of the functions that it is not called with.
        """
        state: Any = getattr(sys.modules.get("jax._src.api"), "_post_hook_state", None)
        if hasattr(state, "set_global"):
            return PostHook(
                executed, ignored, Place(state.get_global, state.set_global, state.get_local, state.set_local)
            )
        older: Any = getattr(sys.modules.get("jax._src.lib"), "jax_jit", None)  # seen in jax 0.6.2
        if not hasattr(older, "global_state"):
            return None
        here, local = older.global_state(), older.thread_local_state
        return PostHook(
            executed,
            ignored,
            Place(
                lambda: here.post_hook,
                lambda hook: setattr(here, "post_hook", hook),
                lambda: local().post_hook,
                lambda hook: setattr(local(), "post_hook", hook),
            ),
        )

    def arm(self) -> None:
        """Put ours in, if it is not there."""
        current = self._place.read()
        if current is not self._hook:
            self._next = current
            self._place.write(self._hook)

    def stay(self) -> None:
        """Stay in place when `jax_debug_nans` or `jax_debug_infs` is set, which puts JAX's own check there.

        Tracing sets them for its own thread and back (`jax.nn.relu` does): from then on JAX holds "no function" for
        that thread, which goes before the one for all threads.
        """
        config = sys.modules.get("jax._src.config")
        api = sys.modules.get("jax._src.api")
        everywhere = getattr(api, "_update_debug_special_global", None)
        in_thread = getattr(api, "_update_debug_special_thread_local", None)
        if everywhere is None or in_thread is None:
            return

        def update(value: object) -> None:
            everywhere(value)
            self.arm()

        def update_in_thread(value: object) -> None:
            in_thread(value)
            self._arm_thread()

        for name in ("debug_nans", "debug_infs"):
            add_hooks = getattr(getattr(config, name, None), "_add_hooks", None)
            if add_hooks is not None:
                add_hooks(update, update_in_thread)

    def _arm_thread(self) -> None:
        """JAX has just set this thread's function: ours goes before it."""
        current = self._place.read_local()
        if not callable(current):
            self._place.write_local(self._hook_alone)
            return
        check = current

        def tell_and_check(function: Any, args: Any, kwargs: Any, out: Any) -> None:
            self._tell(function, args, kwargs, out)
            check(function, args, kwargs, out)

        self._place.write_local(tell_and_check)

    def _tell(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        if id(function) not in self._ignored:
            self._executed(function, args, kwargs, out)

    def _call(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        if id(function) not in self._ignored:
            self._executed(function, args, kwargs, out)
        if self._next is not None:
            self._next(function, args, kwargs, out)


_UNKNOWN_JAX = (
    "phasepoint: steps not recorded: this version of JAX does not tell of its executions where we look; "
    "call phasepoint.record in the script\n"
)
_MODULE_NAME = re.compile(r"(?:jit|pmap)(?:_(?P<old>.+)|\((?P<new>.+)\))")
"""`jit_train_step`, or `jit(train_step)` in newer versions."""

_TEXTS = {
    Rank.UPDATE_PROGRAM: "executions of {name}, a compiled program that applies an optimizer's update",
    Rank.GRADIENT_PROGRAM: "executions of {name}, the compiled program with a gradient that does most work",
    Rank.REPEATED_PROGRAM: "executions of {name}, the compiled program that does most work: no gradient was seen in it",
}

EAGER_GRADIENT = StepEvidence(Rank.GRADIENT, "jax", "gradients taken outside of any compiled program")


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; JAX must have been imported."""
    JaxClock(late).install()


class JaxClock:
    """Turns executions into the steps of a recording.

    Attributes:
        tracing: what is known of the programs.
    """

    def __init__(self, late: LateRecording) -> None:
        self.guard = late.source_guard()
        self._late = late
        self._keys: dict[int, tuple[weakref.ref[Any], Hashable | None]] = {}
        self._ignored: set[int] = set()
        self._gradients = StepEnds(late, EAGER_GRADIENT)
        self._expects_updates = False
        self.tracing = JaxTracing(self.guard, self._gradient_taken)
        self._reset()

    def expect_updates(self) -> None:
        """A library has been imported whose updates will be told of."""
        self._expects_updates = self._chooser.expects_updates = True

    def _reset(self) -> None:
        self._chooser = StepProgram(is_patient=self._late.is_patient)
        self._chooser.expects_updates = self._expects_updates
        self._thread = 0
        self._evidence: StepEvidence | None = None
        self._step_function: weakref.ref[Any] | None = None

    def install(self) -> None:
        """Put the hooks in; JAX must have been imported."""
        pxla = sys.modules.get("jax._src.interpreters.pxla")
        execute = getattr(pxla, "ExecuteReplicated", None)
        post_hook = PostHook.find(self._executed_fast, self._ignored)
        if execute is None or post_hook is None:
            atexit.register(sys.stderr.write, _UNKNOWN_JAX)
            return
        patch_attribute(execute, "__call__", self._wrap_execute)
        patch_attribute(getattr(pxla, "MeshExecutable", None), "create_cpp_call", self._wrap_create_call)
        self.tracing.install()
        _listen(self._compiled)
        post_hook.arm()
        post_hook.stay()
        self._late.jax_clock = self
        self._late.add_source(Rank.UPDATE_PROGRAM, finish=self._exit, reset=self._reset)
        self._late.add_source(EAGER_GRADIENT.rank, finish=self._gradients.finish, reset=self._gradients.reset)

    @guarded
    def _compiled(self, event: str, duration_s: float, about: Mapping[str, object]) -> None:
        if event.startswith("/jax/core/compile/"):
            name = str(about.get("fun_name") or "") if event.endswith("/backend_compile_duration") else None
            self._late.note_compile(int(duration_s * 1e9), name)

    def _wrap_execute(self, execute: Any) -> Any:
        @functools.wraps(execute)
        def execute_and_tell(compiled: Any, *args: Any) -> Any:
            out = execute(compiled, *args)
            self._executed_slowly(compiled, args, out)
            return out

        return execute_and_tell

    def _wrap_create_call(self, create: Any) -> Any:
        @functools.wraps(create)
        def create_and_remember(executable: Any, *args: Any, **kwargs: Any) -> Any:
            call = create(executable, *args, **kwargs)
            if call is not None:
                self._remember_compiled(call, executable)
            return call

        return create_and_remember

    @guarded
    def _remember_compiled(self, call: Any, executable: Any) -> None:
        """What `lower().compile()` gives has no function of the job behind it: its module's name tells."""
        self._remember(call, self._key_of_module(getattr(executable.unsafe_call, "name", "")))

    def _key_of_module(self, module: str) -> Hashable | None:
        match = _MODULE_NAME.fullmatch(str(module))
        return None if match is None else self.tracing.keys.get(plain_name(match["old"] or match["new"]))

    @guarded
    def _executed_slowly(self, compiled: Any, args: Any, out: Any) -> None:
        match = None if self._is_outranked() else _MODULE_NAME.fullmatch(str(getattr(compiled, "name", "")))
        if match is None:
            return
        name = plain_name(match["old"] or match["new"])
        call = self.tracing.last_call(name)
        key = self.tracing.keys.get(name) if call is None else call.key
        if key is not None:
            began_ns = None if call is None else call.began_ns
            self._executed(key, name, lambda: _leaf_bytes((args, out)), began_ns)

    def _executed_fast(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        step = self._step_function
        if (  # the hot path: the step program once more
            step is not None
            and step() is function
            and self._late.leader is self._evidence
            and self._thread == threading.get_ident()
            and not self.guard.off
            and self._chooser.repeated()
        ):
            self._late.mark()
        elif not self._is_outranked():
            self._executed_by_jit(function, args, kwargs, out)

    def _is_outranked(self) -> bool:
        """Whether somebody leads whom no program can replace: then executions need not be looked at."""
        leader = self._late.leader
        return leader is not None and leader.rank > Rank.UPDATE_PROGRAM

    @guarded
    def _executed_by_jit(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        known = self._keys.get(id(function))
        if known is None or known[0]() is not function:
            known = self._remember(function, program_key(getattr(function, "_fun", function)))
        key = known[1]
        if key is not None:
            self._executed(key, function, lambda: _leaf_bytes((args, kwargs, out)), None)
            if key == self._chooser.chosen and self._evidence is not None:
                self._step_function = known[0]

    def _remember(self, function: Any, key: Hashable | None) -> tuple[weakref.ref[Any], Hashable | None]:
        """Remember a function's program for as long as it lives; JAX's own are not told of again."""
        number, ignored = id(function), self._ignored

        def forget(_: object) -> None:
            ignored.discard(number)

        if key is None:
            ignored.add(number)
        known = self._keys[number] = (weakref.ref(function, forget), key)
        return known

    def _executed(self, key: Hashable, name: Any, size_bytes: Callable[[], int], began_ns: int | None) -> None:
        thread = threading.get_ident()
        if self._thread and thread != self._thread:
            return
        late, evidence = self._late, self._evidence
        if evidence is not None and late.leader is not evidence and not late.admits(evidence):
            return
        traced = self.tracing.programs.get(key, _UNKNOWN)
        now_ns = time.perf_counter_ns()
        changed = self._chooser.executed(key, size_bytes, now_ns, rank=traced.rank, began_ns=began_ns)
        if changed:
            self._lead(name, thread)
        elif key == self._chooser.chosen and evidence is not None and late.leader is evidence:
            self._late.mark()

    def _lead(self, name: Any, thread: int) -> None:
        """The step program is known, or another one than before: its executions up to now are steps."""
        key = self._chooser.chosen
        if key is None:
            return
        self._step_function = None
        program, traced = self._chooser.programs[key], self.tracing.programs.get(key, _UNKNOWN)
        text = _TEXTS[traced.rank].format(name=_program_text(key, name))
        evidence = StepEvidence(traced.rank, "jax", text)
        leader = self._late.leader
        if leader is not None and leader is self._evidence:
            self._evidence = evidence  # another program takes over
            self._late.lead(evidence)
            self._late.mark()
            return
        self._evidence = evidence
        if not self._late.admits(evidence):
            return
        self._thread = thread
        self._note_calls(traced)
        ends_ns = program.ends_ns
        bounds_ns = [min(program.began_ns, ends_ns[0]), *ends_ns]
        past = [PastStep(begin, None, end) for begin, end in pairwise(bounds_ns)]
        self._late.open(evidence, past, finish=self._late.drop_step)
        if self._late.leader is evidence:
            self._late.mark()

    def _note_calls(self, traced: TracedProgram) -> None:
        if traced.steps_per_call > 1:
            self._late.note(STEPS_PER_CALL, str(traced.steps_per_call))
        elif traced.gradients_per_call > 1 and traced.rank is Rank.GRADIENT_PROGRAM:
            self._late.note(
                STEPS_UNFOLLOWED,
                f"each recorded step is one call of a compiled program that loops over {traced.gradients_per_call} "
                "gradients: whether these are as many training steps, or parts of one, is not known",
            )

    @guarded
    def _gradient_taken(self) -> None:
        self._gradients.ended()

    @guarded
    def _exit(self) -> None:
        """A job of few executions has not opened its recording yet."""
        chooser = self._chooser
        if not chooser.choose(least_executions=1) or chooser.chosen is None:
            return
        program = chooser.programs[chooser.chosen]
        if program.executions >= LEAST_EXECUTIONS or program.rank > Rank.REPEATED_PROGRAM:
            self._lead(None, threading.get_ident())


_UNKNOWN = TracedProgram()


def _listen(compiled: Callable[[str, float, Mapping[str, object]], object]) -> None:
    """Have JAX tell of compilations from now on: its first steps have compiled before the recording is open."""
    from jax import monitoring

    monitoring.register_event_duration_secs_listener(lambda event, dur_s, **about: compiled(event, dur_s, about))


def _program_text(key: Hashable, named: Any) -> str:
    """The program's name for people."""
    if isinstance(key, tuple):
        key = key[-1]
    own = key if isinstance(key, str) else getattr(key, "co_name", None)
    return str(own or (named if isinstance(named, str) else getattr(named, "__name__", None)) or "a program")


def _leaf_bytes(tree: Any) -> int:
    """Bytes of the arrays in a tree; donated ones still know theirs."""
    from jax import tree_util

    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in tree_util.tree_leaves(tree))
