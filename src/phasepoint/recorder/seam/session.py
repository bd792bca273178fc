"""What the recorder asks of a framework: one profiler session, and the few facts it cannot see by itself.

`recorder/profilers/jax.py` and `recorder/profilers/torch/session.py` implement `ProfilerSession`; nothing else in the
recorder names a framework. Every method is called on the job's thread unless it says otherwise, and may raise: the
recorder's guard keeps what it raises away from the job.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from phasepoint.core.errors import RecordError

Remove = Callable[[], None]
"""Undoes one installation. Calling it twice is harmless."""


def remove_all(removes: Sequence[Remove]) -> Remove:
    """What undoes them all, those included that come to the sequence later."""

    def remove() -> None:
        for remove_one in removes:
            remove_one()

    return remove


PendingCapture = Callable[[], bytes]
"""Gives the raw capture. Called once, on the flusher's thread, so that turning it into bytes costs the job no wait.

A `FileCapture` gives a file instead to those who ask for that (`capture_content`)."""

CaptureFormat = Literal["xplane", "kineto"]


class ProfilerBusyError(RecordError):
    """Another profiler session (the user's own, mostly) is running, so a window cannot open."""


class SessionProbe(Struct, frozen=True):
    """What was found when looking at the framework, before anything was started.

    Attributes:
        framework: jax or torch; empty for a job that uses neither.
        framework_version: its version, as it says it.
        api: private (in memory, cheap), public (the documented API, dearer), or none (no window can be captured).
        reason: why that one, with its cost, in one sentence.
    """

    framework: str
    framework_version: str
    api: Literal["private", "public", "none"]
    reason: str


class CheckpointWritten(Struct, frozen=True):
    """A checkpoint that a hook noticed. Times are `time.perf_counter_ns()` readings.

    Attributes:
        path: where it was written.
        start_ns: when the call that writes it was entered.
        end_ns: when that call returned to the job.
        framework: what wrote it, as `Saved` says; user for `Recording.checkpoint`.
        step: the step the call names; None where it names none (the recorder then takes the step in progress).
        bytes: size on disk where it is known at once; None otherwise.
        asynchronous: whether writing goes on after the call returned.
        has_iterator: whether the data iterator's state is in it.
    """

    path: str
    start_ns: int
    end_ns: int
    framework: str
    step: int | None = None
    bytes: int | None = None
    asynchronous: bool | None = None
    has_iterator: bool | None = None


class CheckpointWaited(Struct, frozen=True):
    """A call that waited for a checkpoint being written in the background. Times as in `CheckpointWritten`.

    Attributes:
        start_ns: when the call was entered.
        end_ns: when it returned to the job.
        framework: orbax.
    """

    start_ns: int
    end_ns: int
    framework: str


class CompiledProgram(Struct, frozen=True):
    """What the framework tells of a compilation; None for what it does not tell.

    Attributes:
        name: what was compiled.
        again: whether it had been compiled before.
        why: why it was compiled again.
    """

    name: str | None = None
    again: bool | None = None
    why: str | None = None


class PastCompile(NamedTuple):
    """A stage of a compilation that ended before the recording began: when it began, on the monotonic clock, how long
    it took, and what was compiled, where it made a program.
    """

    start_ns: int
    dur_ns: int
    describe: Callable[[], CompiledProgram] | None


class OnCompile(Protocol):
    """What is called after every stage of a compilation."""

    def __call__(
        self, dur_ns: int, is_new_program: bool, describe: Callable[[], CompiledProgram] | None = None
    ) -> None:
        """Something was compiled.

        Args:
            dur_ns: how long it took.
            is_new_program: whether a program was compiled; False for an earlier stage (tracing, lowering).
            describe: called later, on the flusher's thread: frameworks know some facts only afterwards.
        """
        ...


class ProfilerSession(Protocol):
    """One framework's profiler, opened and closed many times, at most once at a time.

    Attributes:
        format: format of the raw captures.
        clock: what the captures' timestamps count from, for `session.json`.
    """

    format: CaptureFormat
    clock: str

    def probe(self) -> SessionProbe:
        """Look at the framework without starting a profiler."""
        ...

    def busy(self) -> bool:
        """Whether somebody else's profiler session is known to be running. Cheap: asked before every window."""
        ...

    def drain(self) -> None:
        """Wait until the device has finished what was dispatched, so that a window holds its own steps' work alone."""
        ...

    def start(self, *, with_programs: bool) -> None:
        """Start capturing.

        Args:
            with_programs: whether the capture must carry the compiled programs; it is cheaper without.

        Raises:
            ProfilerBusyError: somebody else's session is running; nothing was started.
        """
        ...

    def stop(self) -> PendingCapture:
        """Stop capturing. Returns as soon as the job may go on; the rest of the work is in what it returns."""
        ...

    def interrupts(self) -> bool:
        """Whether a capture of the calling thread, the job's, can begin and end in the middle of its steps."""
        ...

    def interrupt(self, action: Callable[[], object]) -> None:
        """Have `action` called where a capture may be started or stopped while the job's thread is inside a step.

        It is called at once and on this thread, or soon and on the job's, or not at all where that thread stays where
        it cannot be interrupted: ask again. Called on the flusher's thread, with the same `action` every time, which
        must not raise.
        """
        ...

    def step_annotation(self, step: int) -> AbstractContextManager[object]:
        """A context inside which step number `step` runs during a capture.

        It leaves an event `phasepoint.step` with metadata `step_num` (JAX), or `phasepoint.step#<step>` (PyTorch).
        Entered and left on the job's thread, while a capture is on.
        """
        ...

    def devices(self) -> list[str]:
        """The devices of this process: `cpu:0`, `gpu:0 NVIDIA H200`, … May be called on any thread."""
        ...

    def device_memory_bytes(self) -> int | None:
        """Memory in use on the first device; None where asking is not cheap or has no answer. Any thread."""
        ...

    def node_counter(self) -> Callable[[], int] | None:
        """What counts the operations that the calling thread has noted for backward passes; None where nothing does.

        It is called at every step: it must take no longer than a reading of the clock.
        """
        ...

    def next_inputs(self, take: Callable[[object], None]) -> None:
        """Have `take` called once, with what the model is called with in the step that begins; the job's thread.

        It must not raise, and keep nothing of it. The model is the one that was called first when this was asked for
        the first time. Where the framework does not tell, nothing happens.
        """
        ...

    def past_compiles(self) -> Sequence[PastCompile]:
        """What the framework itself remembers of compilations until now."""
        ...

    def watch_compiles(self, on_compile: OnCompile) -> Remove:
        """Call `on_compile` after tracing, lowering or compiling, on whatever thread did it.

        Where the framework does not tell, nothing is installed.
        """
        ...

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Remove:
        """Call `before_start()` before the user's own profiler session starts, so that ours can be closed first."""
        ...
