"""How long the calling thread was busy or waited for a device: not the time in which others had the cores."""

import time

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
