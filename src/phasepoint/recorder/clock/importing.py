"""What importing the recorder cost the job: it belongs to the account, and happens before there is one.

No garbage collection while the recorder is imported and assembled: what that makes lives as long as the job.

Its ten thousand objects would set off some twenty collections, and one of them may be a full one, which holds a job
with a million objects for 0.1–0.5 s. Instead young collections look at them once, 2–3 ms each time, and the job's next
full one comes when it would have come.

How long the calling thread was busy or waited for a device: not the time in which others had the cores.

Its own file: it is imported before all else of the recorder, and imports nothing of it.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def collector_paused() -> Iterator[None]:
    """Python's collector rests inside, unless the job has switched it off anyway."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        gc.enable()


_SCHEDSTAT = "/proc/thread-self/schedstat"


def busy_ns() -> int:
    """A stopwatch in nanoseconds: time that passed, less the time for which this thread waited for a free core.

    The difference of two readings on one thread is CPU time plus waiting (for a disk's fsync, say): what the thread's
    own work takes. A wall clock would charge the recorder for other processes on a machine that is full.

    Source: Documentation/scheduler/sched-stats.rst of the Linux kernel, /proc/<pid>/schedstat, second field: the time
    spent waiting on a run queue, in ns. Elsewhere it is the wall clock.
    """
    wall_ns = time.perf_counter_ns()
    try:
        with open(_SCHEDSTAT, "rb", buffering=0) as file:  # noqa: PTH123 - a third of Path.open's time
            return wall_ns - int(file.read(96).split()[1])
    except (OSError, IndexError, ValueError):
        return wall_ns


spent_ns = 0
"""CPU nanoseconds spent in `timed_import`, and before any recording by `inject/sitecustomize.py`, in this process, and
not yet in the account of a recording."""


def take_spent_ns() -> int:
    """What imports took since the last call: the next recording of a process has nothing to import."""
    global spent_ns
    taken_ns, spent_ns = spent_ns, 0
    return taken_ns


def timed_import(name: str) -> ModuleType:
    """Import a module and add the CPU time that took to `spent_ns`."""
    global spent_ns  # noqa: PLW0603 - one process, one sum
    began_ns = time.thread_time_ns()
    with collector_paused():
        module = import_module(name)
    spent_ns += time.thread_time_ns() - began_ns
    return module
