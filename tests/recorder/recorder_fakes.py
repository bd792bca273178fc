"""A clock that moves when told, a profiler that captures nothing, and a recording without a thread."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phasepoint.recorder.background import Flusher
from phasepoint.recorder.clock.epoch import Clock
from phasepoint.recorder.recording import Recording, record
from phasepoint.recorder.seam.session import PastCompile, PendingCapture, ProfilerBusyError, SessionProbe

MS = 1_000_000
"""Nanoseconds."""


class FakeClock:
    """Monotonic, Unix and CPU time in nanoseconds; `tick` moves the first two."""

    def __init__(self) -> None:
        self.ns = 5_000 * MS
        self.unix_offset_ns = 1_700_000_000_000_000_000
        self.fails = False

    def now_ns(self) -> int:
        if self.fails:
            raise OSError("the clock is broken")
        return self.ns

    def unix_ns(self) -> int:
        return self.ns + self.unix_offset_ns

    def cpu_ns(self) -> int:
        return 0

    def tick(self, ms: float) -> None:
        self.ns += int(ms * MS)

    def as_clock(self) -> Clock:
        return Clock(self.now_ns, self.unix_ns, self.cpu_ns, busy_ns=lambda: self.ns)


class FakeSession:
    """A profiler whose calls take the time that it is told; notes every call in `log`."""

    format = "xplane"
    clock = "the fake clock"

    def __init__(self, clock: FakeClock | None = None, *, stop_ms: float = 2.0) -> None:
        self.log: list[Any] = []
        self.can_interrupt = True
        self.is_on = False
        self.is_busy = False
        self.fail_at: dict[str, Exception] = {}
        self.on_compile: Callable[[int, bool], None] | None = None
        self.before_start: Callable[[], None] | None = None
        self.count_nodes: Callable[[], int] | None = None
        self.compiled: list[PastCompile] = []
        self.take_inputs: Callable[[object], None] | None = None
        self._clock = clock
        self._stop_ms = stop_ms

    def _call(self, name: str, *what: Any) -> None:
        self.log.append((name, *what))
        if name in self.fail_at:
            raise self.fail_at[name]

    def probe(self) -> SessionProbe:
        self._call("probe")
        return SessionProbe("fake", "1.0", "private", "in memory")

    def busy(self) -> bool:
        self._call("busy")
        return self.is_busy

    def drain(self) -> None:
        self._call("drain")

    def start(self, *, with_programs: bool) -> None:
        self._call("start", with_programs)
        assert not self.is_on
        self.is_on = True

    def stop(self) -> PendingCapture:
        self.is_on = False
        self._call("stop")
        if self._clock is not None:
            self._clock.tick(self._stop_ms)
        return self._capture

    def _capture(self) -> bytes:
        self._call("capture")
        return b"capture"

    @contextmanager
    def step_annotation(self, step: int) -> Any:
        self._call("enter", step)
        yield
        self._call("leave", step)

    def interrupts(self) -> bool:
        return self.can_interrupt

    def interrupt(self, action: Callable[[], object]) -> None:
        self._call("interrupt")
        if self.can_interrupt:
            action()

    def devices(self) -> list[str]:
        self._call("devices")
        return ["fake:0"]

    def device_memory_bytes(self) -> int | None:
        self._call("memory")
        return 4096

    def node_counter(self) -> Callable[[], int] | None:
        self._call("node_counter")
        return self.count_nodes

    def past_compiles(self) -> list[PastCompile]:
        self._call("past_compiles")
        return self.compiled

    def next_inputs(self, take: Callable[[object], None]) -> None:
        self._call("next_inputs")
        self.take_inputs = take

    def watch_compiles(self, on_compile: Callable[[int, bool], None]) -> Callable[[], None]:
        self._call("watch_compiles")
        self.on_compile = on_compile
        return self._remove

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Callable[[], None]:
        self._call("watch_user_profiler")
        self.before_start = before_start
        return lambda: setattr(self, "before_start", None)

    def _remove(self) -> None:
        self.on_compile = None
        self._call("remove")

    def names(self) -> list[str]:
        return [entry[0] for entry in self.log]

    def refuse(self) -> None:
        self.fail_at["start"] = ProfilerBusyError("somebody else's session")


class StillFlusher(Flusher):
    """No thread: the last round runs where the recording ends, others when the test asks for one."""

    made: "StillFlusher | None" = None

    def __init__(self, work: Callable[[bool], object], **options: Any) -> None:
        super().__init__(work, **options)
        StillFlusher.made = self

    def start(self) -> None:
        """Nothing."""

    def wake(self) -> None:
        self._work(False)

    def finish(self) -> None:
        self._work(True)

    def round(self) -> None:
        self._work(False)


def fake_record(path: Any, clock: FakeClock, session: FakeSession, **options: Any) -> Recording:
    return record(path, clock=clock.as_clock(), session=session, **options)


def run_script(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A script in a process of its own, which may import this module."""
    search = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(search)}
    words = [sys.executable, "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=environ, check=False)
