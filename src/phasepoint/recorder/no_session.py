"""The session of a job that uses neither JAX nor PyTorch: the step clock runs, no window opens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from phasepoint.core.errors import RecordError
from phasepoint.recorder.session import (
    CaptureFormat,
    OnCompile,
    PendingCapture,
    ProfilerBusyError,
    Remove,
    SessionProbe,
)


class NoSession:
    """`ProfilerSession` without a profiler: always busy, so that no window opens."""

    format: CaptureFormat = "xplane"
    clock = "none: no profiler ran"

    def probe(self) -> SessionProbe:
        """Nothing was found."""
        return SessionProbe("", "", "none", "neither JAX nor PyTorch was imported yet when the run was created")

    def busy(self) -> bool:
        """True: no window can open."""
        return True

    def drain(self) -> None:
        """There is no device."""

    def start(self, *, with_programs: bool) -> None:
        """Refuse.

        Raises:
            ProfilerBusyError: always.
        """
        raise ProfilerBusyError("there is no profiler")

    def stop(self) -> PendingCapture:
        """Refuse.

        Raises:
            RecordError: always; nothing was started.
        """
        raise RecordError("no profiler session was started")

    def interrupts(self) -> bool:
        """False: no capture begins."""
        return False

    def interrupt(self, action: Callable[[], object]) -> None:
        """Nothing to interrupt for."""

    def step_annotation(self, step: int) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def devices(self) -> list[str]:
        """None."""
        return []

    def device_memory_bytes(self) -> int | None:
        """Not known."""
        return None

    def watch_compiles(self, on_compile: OnCompile) -> Remove:
        """Nothing to watch."""
        return lambda: None

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Remove:
        """Nothing to watch."""
        return lambda: None
