"""JAX's profiler, in process: the one file that names JAX's private modules.

`ProfilerSession` of jaxlib starts in 0.02 ms and stops in 2 ms (6 ms with programs; 5 steps of a small network on one
core, jax 0.10.2, November 2026) and hands the trace over in memory. Where it is missing, `jax.profiler.start_trace` /
`stop_trace` write to a temporary directory instead.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from phasepoint.core.errors import RecordError
from phasepoint.recorder.process.identity import jax_backends_started
from phasepoint.recorder.seam.session import (
    CaptureFormat,
    CompiledProgram,
    OnCompile,
    PendingCapture,
    ProfilerBusyError,
    Remove,
    SessionProbe,
)

_COMPILE_EVENTS = "/jax/core/compile/"
_NEW_PROGRAM_EVENT = "/jax/core/compile/backend_compile_duration"
_BUSY = "ALREADY_EXISTS"
"""How XLA's profiler says, at the end, that another session had been there first."""

_CLASS = "ProfilerSession"
_OPTIONS = ("host_tracer_level", "python_tracer_level", "enable_hlo_proto")


class JaxSession:
    """`ProfilerSession` for JAX.

    Args:
        host_level: XLA's `host_tracer_level`. 2 carries the thunks' `hlo_op` on CPU and costs what level 1 does
            (measured, 5-step windows).
        python_level: `python_tracer_level`; 1 records every call of a Python function.
    """

    format: CaptureFormat = "xplane"
    clock = "Unix nanoseconds, the machine's real-time clock; profile_start_time in the capture"

    def __init__(self, *, host_level: int = 2, python_level: int = 0) -> None:
        self._levels = host_level, python_level
        self._private = _find_private()
        self._session: Any = None
        self._folder: Path | None = None
        self._has_memory_stats = True
        self._is_ours = False

    def probe(self) -> SessionProbe:
        """Look for the private session class and its options; starts nothing."""
        import jax

        if self._private is not None:
            return SessionProbe("jax", jax.__version__, "private", "in memory; a window costs some 2–10 ms to close")
        return SessionProbe(
            "jax",
            jax.__version__,
            "public",
            "jaxlib's ProfilerSession has moved or changed; start_trace writes to disk and takes up to 1 s to stop",
        )

    def busy(self) -> bool:
        """Whether the user's own `jax.profiler.start_trace` is on."""
        state = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
        return getattr(state, "profile_session", None) is not None

    def drain(self) -> None:
        """Wait for every live array of this process; a few microseconds where nothing is in flight."""
        import jax

        for value in jax.live_arrays():
            if not value.is_deleted():
                value.block_until_ready()

    def start(self, *, with_programs: bool) -> None:
        """Start a session.

        Raises:
            ProfilerBusyError: the user's session is on.
        """
        if self.busy():
            raise ProfilerBusyError("jax.profiler is on already")
        if self._private is not None:
            self._session = self._private.session(_options(self._private.options(), with_programs, self._levels))
            return
        self._is_ours = True
        try:
            self._start_public(with_programs)
        finally:
            self._is_ours = False

    def stop(self) -> PendingCapture:
        """Stop the session and take its XSpace bytes. May be called on any thread.

        Raises:
            ProfilerBusyError: a session that this process cannot see (a profiler server's) had been on all along.
        """
        session, self._session = self._session, None
        if self._folder is not None:
            return self._stop_public()
        if session is None:
            raise RecordError("the JAX profiler session was closed already")
        try:
            data: bytes = session.stop()
        except RuntimeError as error:
            if _BUSY in str(error):
                raise ProfilerBusyError(f"another profiler session was on: {error}") from error
            raise
        return lambda: data

    def interrupts(self) -> bool:
        """True: XLA's profiler may be started and stopped on any thread at any time."""
        return True

    def interrupt(self, action: Callable[[], object]) -> None:
        """Call `action`."""
        action()

    def step_annotation(self, step: int) -> AbstractContextManager[object]:
        """`phasepoint.step` with `step_num`, as XLA's tracer records it."""
        from jax.profiler import TraceAnnotation

        annotation: AbstractContextManager[object] = TraceAnnotation("phasepoint.step", step_num=step)
        return annotation

    def devices(self) -> list[str]:
        """Local devices, `cpu:0 cpu`; empty until JAX has started its backends, which is not ours to do."""
        import jax

        if not jax_backends_started():
            return []
        return [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.local_devices()]

    def device_memory_bytes(self) -> int | None:
        """Bytes in use on the first device; None on CPU, which keeps no account."""
        import jax

        if not self._has_memory_stats or not jax_backends_started():
            return None
        stats = jax.local_devices()[0].memory_stats()
        self._has_memory_stats = bool(stats)
        return stats.get("bytes_in_use") if stats else None

    def node_counter(self) -> None:
        """JAX notes nothing for a backward pass: programs are compiled with theirs."""

    def next_inputs(self, take: Callable[[object], None]) -> None:
        """JAX does not tell of calls."""

    def past_compiles(self) -> tuple[()]:
        """JAX tells of compilations as they end, and keeps nothing of them: `autosteps.sources.jax.clock` does."""
        return ()

    def watch_compiles(self, on_compile: OnCompile) -> Remove:
        """Listen to JAX's own compile events; a listener that cannot be removed is made deaf instead."""
        from jax import monitoring

        listening = True

        def listener(event: str, duration_s: float, **about: object) -> None:
            if not listening or not event.startswith(_COMPILE_EVENTS):
                return
            is_new = event == _NEW_PROGRAM_EVENT
            on_compile(int(duration_s * 1e9), is_new, partial(_describe, about) if is_new else None)

        def remove() -> None:
            nonlocal listening
            if listening:
                listening = False
                unregister = getattr(monitoring, "unregister_event_duration_listener", None)
                if unregister is not None:
                    unregister(listener)

        monitoring.register_event_duration_secs_listener(listener)
        return remove

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Remove:
        """Stand in front of the constructor that every in-process session goes through, so that ours ends first.

        Without this a session that the user starts during one of our windows would begin without a complaint and
        fail when it stops (jaxlib 0.10.2). Where there is no private constructor, `jax.profiler.start_trace` is
        wrapped instead.
        """
        import jax.profiler

        home, name = (jax.profiler, "start_trace") if self._private is None else (self._private.module, _CLASS)
        original = getattr(home, name)

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if not self._is_ours:
                before_start()
            return original(*args, **kwargs)

        def remove() -> None:
            if getattr(home, name) is stand_in:
                setattr(home, name, original)

        setattr(home, name, stand_in)
        return remove

    def _start_public(self, with_programs: bool) -> None:
        import jax.profiler

        self._folder = Path(tempfile.mkdtemp(prefix="phasepoint-"))
        options_class = getattr(jax.profiler, "ProfileOptions", None)
        kwargs = (
            {}
            if options_class is None
            else {"profiler_options": _options(options_class(), with_programs, self._levels)}
        )
        try:
            jax.profiler.start_trace(str(self._folder), **kwargs)
        except RuntimeError as error:
            self._remove_folder()
            raise ProfilerBusyError(f"jax.profiler.start_trace: {error}") from error

    def _stop_public(self) -> PendingCapture:
        import jax.profiler

        try:
            jax.profiler.stop_trace()
            assert self._folder is not None
            traces = list(self._folder.rglob("*.xplane.pb"))
            if len(traces) != 1:
                raise RecordError(f"jax.profiler.stop_trace left {len(traces)} captures; expected one")
            data = traces[0].read_bytes()
        finally:
            self._remove_folder()
        return lambda: data

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


@dataclass(frozen=True)
class _Private:
    """What of jaxlib is used that is not public."""

    module: ModuleType
    session: Callable[[Any], Any]
    options: Callable[[], Any]


def _describe(about: Mapping[str, object]) -> CompiledProgram:
    """The function's name; JAX does not say whether another program was compiled from it before."""
    name = about.get("fun_name")
    return CompiledProgram(None if name is None else str(name))


def _find_private() -> _Private | None:
    """jaxlib's profiler module, if it has what is needed under the names that are known."""
    try:
        from jax._src.lib import _profiler as module
    except ImportError:
        return None
    session: Any = getattr(module, _CLASS, None)
    options: Any = getattr(module, "ProfileOptions", None)
    if options is None or not hasattr(session, "stop") or not all(hasattr(options, name) for name in _OPTIONS):
        return None
    return _Private(module, session, options)


def _options(options: Any, with_programs: bool, levels: tuple[int, int]) -> Any:
    options.host_tracer_level, options.python_tracer_level = levels
    options.enable_hlo_proto = with_programs
    return options
