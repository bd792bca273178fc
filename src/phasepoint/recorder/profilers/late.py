"""The session of a job whose framework is not known when the recording begins: none at first, then that one's.

In a job that uses neither JAX nor PyTorch it stays so: the step clock runs, no window opens.
"""

from collections.abc import Callable
from typing import Any, cast

from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.session import CaptureFormat, OnCompile, ProfilerSession, Remove, SessionProbe


def late_session(
    makers: dict[str, Callable[[], ProfilerSession]], guard: Guard, *, decide: Callable[[], str] | None = None
) -> ProfilerSession:
    """A session that becomes the one of the first framework imported, JAX or PyTorch.

    Args:
        makers: framework's module name → makes its session.
        guard: keeps what goes wrong out of the job's `import` statement.
        decide: says which framework it is, asked before the first window, where both have been imported already: a
            PyTorch job may import JAX through its checkpoint library, a JAX job PyTorch for its loader.
    """
    return cast("ProfilerSession", _LateSession(makers, guard, decide))


class _NoProfiler:
    """What is asked of a session while there is no profiler: always busy, so that no window opens."""

    format: CaptureFormat = "xplane"
    clock = "none: no profiler ran"

    def probe(self) -> SessionProbe:
        return SessionProbe("", "", "none", "neither JAX nor PyTorch was imported yet when the run was created")

    def busy(self) -> bool:
        return True

    def interrupts(self) -> bool:
        return False

    def devices(self) -> list[str]:
        return []

    def device_memory_bytes(self) -> int | None:
        return None

    def node_counter(self) -> None:
        return None

    def past_compiles(self) -> tuple[()]:
        return ()

    def next_inputs(self, take: Callable[[object], None]) -> None:
        return None


class _LateSession:
    """All but what stands here is that of the session which this one has become."""

    def __init__(
        self, makers: dict[str, Callable[[], ProfilerSession]], guard: Guard, decide: Callable[[], str] | None
    ) -> None:
        self.guard = guard
        self._session: Any = _NoProfiler()
        self._makers = makers
        self._decide = decide
        self._installers: list[Callable[[ProfilerSession], Remove]] = []
        self._removes: list[Remove] = []
        self._adopted = False
        for name, make in makers.items() if decide is None else ():
            self._removes.append(when_imported(name, lambda make=make: self._adopt(make)))  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @guarded
    def _adopt(self, make: Callable[[], ProfilerSession]) -> None:
        """Become the session that `make` gives, unless another framework came first."""
        if self._adopted:
            return
        self._adopted = True
        session = make()
        self._removes += [install(session) for install in self._installers]
        self._session = session

    def busy(self) -> bool:
        """Whether no window can open now; always before the import."""
        if self._decide is not None and not self._adopted:
            self._adopt(self._makers[self._decide()])
        return bool(self._session.busy())

    def watch_compiles(self, on_compile: OnCompile) -> Remove:
        """Watch as soon as there is something to watch."""
        return self._install(lambda session: session.watch_compiles(on_compile))

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Remove:
        """Watch as soon as there is something to watch."""
        return self._install(lambda session: session.watch_user_profiler(before_start))

    def _install(self, install: Callable[[ProfilerSession], Remove]) -> Remove:
        self._installers.append(install)
        if not isinstance(self._session, _NoProfiler):
            self._removes.append(install(self._session))
        return self._remove

    def _remove(self) -> None:
        while self._removes:
            self._removes.pop()()
