"""The session of a job whose framework is not known when the recording begins: none at first, then that one's.

The session of a job that uses neither JAX nor PyTorch: the step clock runs, no window opens.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from phasepoint.core.errors import RecordError
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.session import (
    CaptureFormat,
    OnCompile,
    PendingCapture,
    ProfilerBusyError,
    ProfilerSession,
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


class LateSession:
    """`ProfilerSession` that becomes the session of the first framework imported, JAX or PyTorch.

    Args:
        makers: framework's module name → makes its session.
        guard: keeps what goes wrong out of the job's `import` statement.
        decide: says which framework it is, asked before the first window, where both have been imported already: a
            PyTorch job may import JAX through its checkpoint library, a JAX job PyTorch for its loader.
    """

    def __init__(
        self,
        makers: dict[str, Callable[[], ProfilerSession]],
        guard: Guard,
        *,
        decide: Callable[[], str] | None = None,
    ) -> None:
        self.guard = guard
        self._makers = makers
        self._decide = decide
        self._become(NoSession())
        self._installers: list[Callable[[ProfilerSession], Remove]] = []
        self._removes: list[Remove] = []
        self._adopted = False
        for name, make in makers.items() if decide is None else ():
            self._removes.append(when_imported(name, lambda make=make: self._adopt(make)))  # type: ignore[misc]

    @guarded
    def _adopt(self, make: Callable[[], ProfilerSession]) -> None:
        """Become the session that `make` gives, unless another framework came first."""
        if self._adopted:
            return
        self._adopted = True
        session = make()
        self._removes += [install(session) for install in self._installers]
        self._become(session)

    def _become(self, session: ProfilerSession) -> None:
        self._session = session
        self.format: CaptureFormat = session.format
        self.clock = session.clock

    def probe(self) -> SessionProbe:
        """What is known now; before the import, nothing."""
        return self._session.probe()

    def busy(self) -> bool:
        """Whether no window can open now; always before the import."""
        if self._decide is not None and not self._adopted:
            self._adopt(self._makers[self._decide()])
        return self._session.busy()

    def drain(self) -> None:
        """Wait for the device."""
        self._session.drain()

    def start(self, *, with_programs: bool) -> None:
        """Start capturing, as the framework's session does."""
        self._session.start(with_programs=with_programs)

    def stop(self) -> PendingCapture:
        """Stop capturing."""
        return self._session.stop()

    def interrupts(self) -> bool:
        """As the framework's session says."""
        return self._session.interrupts()

    def interrupt(self, action: Callable[[], object]) -> None:
        """As the framework's session does."""
        self._session.interrupt(action)

    def step_annotation(self, step: int) -> AbstractContextManager[object]:
        """The framework's annotation."""
        return self._session.step_annotation(step)

    def devices(self) -> list[str]:
        """The framework's devices; none before the import."""
        return self._session.devices()

    def device_memory_bytes(self) -> int | None:
        """As the framework's session says."""
        return self._session.device_memory_bytes()

    def watch_compiles(self, on_compile: OnCompile) -> Remove:
        """Watch as soon as there is something to watch."""
        return self._install(lambda session: session.watch_compiles(on_compile))

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Remove:
        """Watch as soon as there is something to watch."""
        return self._install(lambda session: session.watch_user_profiler(before_start))

    def _install(self, install: Callable[[ProfilerSession], Remove]) -> Remove:
        self._installers.append(install)
        self._removes.append(install(self._session))
        return self._remove

    def _remove(self) -> None:
        while self._removes:
            self._removes.pop()()
