"""PyTorch's Kineto profiler inside the job's process. Every private name of torch that the recorder needs is here.

The private way (`torch.autograd._prepare_profiler`, `_enable_profiler`, `_disable_profiler`) never builds Python's
event lists. It captures the thread that starts it, the backward passes of that thread wherever they run, and all work
on the GPU. Not `profile_all_threads`: stopping that while another thread is inside an op crashes the job (torch 2.13,
measured 2026-11-22: a segmentation fault after 34 stops beside two threads that ran ops; without it none in 1,181).

Measured on 2 shared cores with torch 2.13 (2026-11-21), a window of 5 steps and 1,100 JSON events: start 0.3 ms, stop
1.5 ms; the public API takes 0.6 ms and 2.2 ms. Writing and reading the JSON takes 2 ms either way. Host memory stays
flat over 1,000 windows (`benchmarks/overhead.py --windows`); pytorch#193348 is about the event lists.

Kineto gives its capture as a file only: it goes through a memory file system where there is one. Times of GPUs are
turned into times of day while the file is written, by the clock of the session that ended last, and are 0 where that
began later (torch 2.11 on an H200, 2026-11-27): so a capture is written before the next one begins.

Has a function called on the job's main thread between two bytecodes, from another thread.

PyTorch's profiler must be started and stopped on the thread whose ops it records, while none of them runs: stopped from
another thread, or over all threads while one of them is inside an op, it writes to memory that was given back
(torch 2.13, measured 2026-11-22: a segmentation fault after some tens of stops). The interpreter itself calls functions
that were left with `Py_AddPendingCall` on the main thread between two bytecodes, where that thread is inside no op of
its own but those that called Python.
"""

import contextlib
import ctypes
import os
import re
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from phasepoint.core.errors import RecordError
from phasepoint.recorder.profilers.torch.dynamo import before_compiling
from phasepoint.recorder.profilers.torch.inputs import NextInputs
from phasepoint.recorder.profilers.torch.layers import LayerEvents, UserProfiler
from phasepoint.recorder.profilers.torch.open_ranges import OpenRanges
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.session import (
    CaptureFormat,
    CompiledProgram,
    OnCompile,
    PastCompile,
    PendingCapture,
    ProfilerBusyError,
    Remove,
    SessionProbe,
    remove_all,
)
from phasepoint.recorder.windows.runner import FileCapture

_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

_KEPT: list["MainThreadCalls"] = []
"""All of them, for ever (one or two a recording): the interpreter holds a bare pointer to what it will call."""


class MainThreadCalls:
    """Leaves one call at a time with the interpreter.

    Args:
        action: what is called on the main thread. It must not raise.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._waits = False
        self._call = _PendingCall(self._run)
        _KEPT.append(self)
        self._add = ctypes.pythonapi.Py_AddPendingCall
        self._add.argtypes = [_PendingCall, ctypes.c_void_p]
        self._add.restype = ctypes.c_int

    def request(self) -> None:
        """Have the action called soon; a request that still waits is enough. May be called on any thread."""
        if not self._waits:
            self._waits = self._add(self._call, None) == 0

    def _run(self, _: object) -> int:
        self._waits = False
        self._action()
        return 0


def on_main_thread() -> bool:
    """Whether the caller is the thread on which such calls are made."""
    return threading.current_thread() is threading.main_thread()


MEMORY_FOLDER = Path("/dev/shm")
"""Where captures pass through, if it exists and has room; else the system's folder for temporary files."""

MEMORY_FOLDER_ROOM_BYTES = 1 << 30
"""Room to ask of `MEMORY_FOLDER`: containers often give 64 MB, which a large window overflows."""

_COMPILE_ID = re.compile(r"(\d+)(?:_\d+)?$")
_REASON_OF = re.compile(r"^\d+/\d+(?:_\d+)?: ")
"""Which earlier compilation a reason is about."""

_NO_GRAPH_TASK = -1
"""What `torch._C._current_graph_task_id` says outside every backward pass."""

_SEVERITY_SYMBOL = "_ZN9libkineto6Logger14severityLevel_E"

_SEVERITY_SILENT = 99
"""Above every level that Kineto logs at, 0 (verbose) to 4 (error). Source: `libkineto/include/ILoggerObserver.h`."""

_FULLEST_OPTIONS: tuple[dict[str, Any], ...] = ({"trace_only": True}, {})
"""Options of torch's `_ExperimentalConfig`, from the newest torch to the oldest; the first it takes is used."""


class TorchSession:
    """Kineto sessions, opened and closed many times; see `ProfilerSession`.

    Work on CUDA is captured once the job has initialised CUDA: asking earlier would initialise it for a job that may
    never use it.
    """

    format: CaptureFormat = "kineto"
    clock = "unix epoch: ts in microseconds after baseTimeNanoseconds"

    def __init__(self, *, force_public: bool = False) -> None:
        self._user = UserProfiler()
        self._layers = LayerEvents()
        self._inputs = NextInputs()
        self._ranges = OpenRanges()
        self._engine = _PublicEngine() if force_public else _choose_engine()
        self._last: weakref.ref[CaptureFile] | None = None
        self._thread: int | None = None
        self._calls: MainThreadCalls | None = None
        self._action: Callable[[], object] | None = None
        self._is_interrupting = False

    def probe(self) -> SessionProbe:
        """Which way into the profiler this torch offers."""
        import torch

        return SessionProbe("torch", str(torch.__version__), self._engine.api, self._engine.reason)

    def busy(self) -> bool:
        """Whether the user's own torch profiler is prepared or running, on any thread."""
        return self._user.is_running()

    def drain(self) -> None:
        """Wait for the current CUDA device, if the job uses one; work on the CPU has ended when its call returned."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def start(self, *, with_programs: bool) -> None:
        """Start capturing this thread, and marking layers; torch has no programs, so `with_programs` changes nothing.

        Raises:
            ProfilerBusyError: the user's own profiler is prepared or running; a range of the job's that an earlier
                capture saw begin is still open, or a backward pass runs: a capture must not begin there.
        """
        if self.busy():
            raise ProfilerBusyError("the job's own torch profiler is running; this window is left out")
        if not self._ranges.are_left:
            raise ProfilerBusyError("a record_function that began in the window before had not ended yet")
        if not _is_outside_backward():
            raise ProfilerBusyError("a backward pass was running")
        self._write_last()
        with self._user.left_alone():
            self._engine.start(with_cuda=sys.modules["torch"].cuda.is_initialized())
        self._thread = threading.get_ident()
        self._layers.install()
        self._ranges.capture_begins()

    def stop(self) -> PendingCapture:
        """Stop capturing. What it returns writes Kineto's JSON; it holds the interpreter for about 4 ms a MB.

        Raises:
            RecordError: capture was started on another thread, and goes on there.
        """
        if self._thread != threading.get_ident():
            raise RecordError("the torch profiler can be stopped only on the thread that started it")
        self._thread = None
        self._ranges.capture_ends()
        if self._is_interrupting:
            self._layers.pause()
        else:
            self._layers.remove()
        with self._user.left_alone():
            file = CaptureFile(self._engine.stop())
        self._last = weakref.ref(file)
        return FileCapture(file.written)

    def interrupts(self) -> bool:
        """Whether the calling thread is the main one, which alone can be called between two ops."""
        return on_main_thread()

    def interrupt(self, action: Callable[[], object]) -> None:
        """Have `action` called on the main thread between two ops; not while a backward pass runs there.

        Inside a backward pass PyTorch puts the profiler of the thread aside and back: a start or stop there is undone
        or crashes. A torch that cannot say where it is
        is never interrupted.
        """
        if self._calls is None or self._action != action:
            self._action = action
            self._calls = MainThreadCalls(self._act)
        self._calls.request()

    def step_annotation(self, step: int) -> AbstractContextManager[object]:
        """A `record_function` named `phasepoint.step#<step>`."""
        context: AbstractContextManager[object] = sys.modules["torch"].profiler.record_function(
            f"phasepoint.step#{step}"
        )
        return context

    def _act(self) -> None:
        if self._action is None or not _is_outside_backward(if_unknown=False):
            return
        self._is_interrupting = True
        try:
            self._action()
        finally:
            self._is_interrupting = False

    def devices(self) -> list[str]:
        """The job's CUDA devices with their names once it has initialised CUDA, else the CPU."""
        torch = sys.modules["torch"]
        if not torch.cuda.is_initialized():
            return ["cpu:0"]
        return [f"gpu:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]

    def device_memory_bytes(self) -> int | None:
        """Bytes that torch's allocator has given out on the current CUDA device; None on CPU."""
        torch = sys.modules["torch"]
        return int(torch.cuda.memory_allocated()) if torch.cuda.is_initialized() else None

    def node_counter(self) -> Callable[[], int] | None:
        """Autograd's own number of the next node, of the calling thread (private; 0.05 µs)."""
        found: Callable[[], int] | None = getattr(sys.modules["torch"].autograd, "_get_sequence_nr", None)
        return found

    def next_inputs(self, take: Callable[[object], None]) -> None:
        """The positional inputs of the model's next call; see `NextInputs`."""
        self._inputs.wait(take)

    def past_compiles(self) -> list[PastCompile]:
        """Those of which Dynamo keeps when they began and how long they took: not in releases before 2.6."""
        behind_ns = time.time_ns() - time.perf_counter_ns()
        return [
            PastCompile(
                one.start_time_us * 1000 - behind_ns, one.duration_us * 1000, partial(_describe, str(one.compile_id))
            )
            for one in _compile_metrics()
            if getattr(one, "start_time_us", None) and getattr(one, "duration_us", None)
        ]

    def watch_compiles(self, on_compile: OnCompile) -> Remove:
        """Time `torch.compile` through Dynamo's own callbacks, once the job has imported Dynamo."""
        watch = _CompileWatch(on_compile)
        forget = when_imported("torch._dynamo.callback", watch.install)
        unhook = before_compiling(self._layers.end, self._inputs.end)
        return remove_all([forget, unhook, self._inputs.forget, watch.remove])

    def watch_user_profiler(self, before_start: Callable[[], None]) -> Remove:
        """Call `before_start()` before any of torch's own profilers is prepared or started, on the thread that does."""

        def close_and_write() -> None:
            before_start()
            self._write_last()

        return self._user.watch(close_and_write)

    def _write_last(self) -> None:
        """Write the last capture where somebody still wants it and nobody has; what fails, fails for whoever does."""
        file = self._last() if self._last is not None else None
        if file is not None:
            with contextlib.suppress(RecordError):
                file.written()


def _is_outside_backward(*, if_unknown: bool = True) -> bool:
    """Whether no backward pass runs on this thread; `if_unknown` where this torch cannot say."""
    task_id = getattr(sys.modules["torch"]._C, "_current_graph_task_id", None)
    return if_unknown if task_id is None else task_id() == _NO_GRAPH_TASK


class _Engine(Protocol):
    api: Literal["private", "public"]
    reason: str

    def start(self, *, with_cuda: bool) -> None: ...

    def stop(self) -> Callable[[str], None]: ...


class _PrivateEngine:
    """Sessions through `torch.autograd`'s private functions, kept from before anybody wraps them."""

    api: Literal["private", "public"] = "private"

    def __init__(self) -> None:
        from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState
        from torch.autograd import _disable_profiler, _enable_profiler, _prepare_profiler

        self._prepare, self._enable, self._disable = _prepare_profiler, _enable_profiler, _disable_profiler
        experimental = _experimental_config()
        self._config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, experimental)
        self._cpu = {ProfilerActivity.CPU}
        self._cuda = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
        self._severity = _kineto_severity()
        noise = "" if self._severity is not None else "; Kineto's own lines on stderr cannot be kept back"
        self.reason = (
            "in-process Kineto session over the job's thread and its backward pass: about 2 ms a window of 1,100 "
            f"events{noise}"
        )

    def start(self, *, with_cuda: bool) -> None:
        activities = self._cuda if with_cuda else self._cpu
        self._prepare(self._config, activities)
        with self._silent():
            self._enable(self._config, activities)

    def stop(self) -> Callable[[str], None]:
        with self._silent():
            save: Callable[[str], None] = self._disable().save
        return save

    @contextlib.contextmanager
    def _silent(self) -> Iterator[None]:
        """Keep back the lines that Kineto (torch 2.12 on) prints to stderr at every start and stop.

        The level is Kineto's only and is put back at once, so that the user's own sessions print what they did. It is
        not set around `_prepare`, in which Kineto reads its level from the environment the first time.
        """
        if self._severity is None:
            yield
            return
        before = self._severity.value
        self._severity.value = _SEVERITY_SILENT
        try:
            yield
        finally:
            self._severity.value = before


class _PublicEngine:
    """Sessions through `torch.profiler.profile`, for a torch whose private functions have changed."""

    api: Literal["private", "public"] = "public"
    reason = (
        "torch.profiler.profile, because this torch lacks the private functions: about 3 ms a window of 1,100 events, "
        "more where it builds its event lists at the end; only the job's thread and its backward pass; Kineto prints "
        "its own lines to stderr"
    )

    def __init__(self) -> None:
        self._profile: Any = None

    def start(self, *, with_cuda: bool) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if with_cuda else [])]
        self._profile = profile(activities=activities)
        self._profile.start()

    def stop(self) -> Callable[[str], None]:
        finished, self._profile = self._profile, None
        finished.stop()
        export: Callable[[str], None] = finished.export_chrome_trace
        return export


class _CompileWatch:
    """Times Dynamo's compilations: the outermost start to its end."""

    def __init__(self, on_compile: OnCompile) -> None:
        self._on_compile = on_compile
        self._handler: Any = None
        self._start_ns: int | None = None

    def install(self) -> None:
        handler = getattr(sys.modules["torch._dynamo.callback"], "callback_handler", None)
        if handler is None:
            return
        handler.register_start_callback(self._started)
        handler.register_end_callback(self._ended)
        self._handler = handler

    def remove(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.remove_start_callback(self._started)
            handler.remove_end_callback(self._ended)

    def _started(self, *_: object) -> None:
        self._start_ns = time.perf_counter_ns()

    def _ended(self, *args: object) -> None:
        if self._start_ns is not None:
            compile_id = str(getattr(args[0], "compile_id", "")) if args else ""
            self._on_compile(time.perf_counter_ns() - self._start_ns, True, partial(_describe, compile_id))
            self._start_ns = None


def _describe(compile_id: str) -> CompiledProgram:
    """What Dynamo noted of a compilation.

    Args:
        compile_id: `2/1` is the second compilation of the third function; a restarted attempt adds `_1`.
    """
    numbered = _COMPILE_ID.search(compile_id)
    again = int(numbered[1]) > 0 if numbered else None
    # The newest first: after `torch.compiler.reset()` numbers are given anew.
    mine = [one for one in reversed(_compile_metrics()) if str(getattr(one, "compile_id", None)) == compile_id]
    name = next((one.co_name for one in mine if getattr(one, "co_name", None)), None)
    why = next((one.recompile_reason for one in mine if getattr(one, "recompile_reason", None)), None)
    # `0/0: tensor 'x' size mismatch …`, a line for each earlier compilation that did not fit; the last one comes first
    return CompiledProgram(name, again, None if why is None else _REASON_OF.sub("", str(why).strip().splitlines()[0]))


def _compile_metrics() -> list[Any]:
    """What Dynamo noted of its last compilations, the newest last; nothing where it was not imported."""
    metrics: list[Any] = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", list)()
    return metrics


def _choose_engine() -> _Engine:
    """The private way where this torch has it."""
    try:
        return _PrivateEngine()
    except (ImportError, AttributeError, TypeError):
        return _PublicEngine()


def _experimental_config() -> Any:
    from torch._C._profiler import _ExperimentalConfig

    for options in _FULLEST_OPTIONS:
        with contextlib.suppress(TypeError):
            return _ExperimentalConfig(**options)
    raise TypeError("torch._C._profiler._ExperimentalConfig takes no known options")


def _kineto_severity() -> ctypes.c_int | None:
    """The integer below which Kineto logs nothing, inside torch's library; None where it is not to be found."""
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        with contextlib.suppress(OSError, ValueError):
            return ctypes.c_int.in_dll(ctypes.CDLL(str(folder / name)), _SEVERITY_SYMBOL)
    return None


class CaptureFile:
    """A capture's file, written once, by whoever comes first; removed with the capture.

    Args:
        save: writes Kineto's JSON to a path.
    """

    def __init__(self, save: Callable[[str], None]) -> None:
        self._save: Callable[[str], None] | None = save
        self._lock = threading.Lock()
        self._found: Path | RecordError

    def written(self) -> Path:
        """Where it is.

        Raises:
            RecordError: it could not be written, now or before.
        """
        with self._lock:
            save, self._save = self._save, None
            if save is not None:
                try:
                    self._found = _saved_file(save)
                    weakref.finalize(self, self._found.unlink, missing_ok=True)
                except Exception as error:  # noqa: BLE001 - whatever it is, whoever asks next must hear of it too
                    self._found = error if isinstance(error, RecordError) else RecordError(str(error))
        if isinstance(self._found, RecordError):
            raise self._found
        return self._found


def _saved_file(save: Callable[[str], None]) -> Path:
    handle, name = tempfile.mkstemp(prefix="phasepoint-", suffix=".json", dir=_capture_folder())
    os.close(handle)
    path = Path(name)
    save(name)
    if not path.is_file() or not path.stat().st_size:
        path.unlink(missing_ok=True)
        raise RecordError(
            f"Kineto wrote no capture to {path}: is there room in {path.parent}? Set TMPDIR to one with room"
        )
    return path


def _capture_folder() -> str | None:
    import shutil

    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_FOLDER_ROOM_BYTES:
            return str(MEMORY_FOLDER)
    return None
