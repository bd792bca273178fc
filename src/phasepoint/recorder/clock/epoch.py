"""The session's clock: readings of a monotonic counter, and what they mean in Unix time.

How long the process has run: what a job has paid for starting, imports and all, when its recording begins.

Resident memory of this process, cheaply, and how much it may have.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from phasepoint.core.units import PS_PER_NS, PS_PER_S
from phasepoint.recorder.clock.importing import busy_ns

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def resident_bytes() -> int | None:
    """Resident memory in bytes; None where the system has no /proc (20 µs on Linux).

    Source: proc(5), /proc/[pid]/statm, second field, in pages.
    """
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:  # noqa: PTH123 - a third of Path.open's time
            pages = int(statm.read(128).split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes() -> int | None:
    """Memory that this process can have at most: the machine's, or its container's where that is less.

    None where the system does not say.

    Source: sysconf(3); the Linux kernel's cgroup v2 documentation, memory.max, which is `max` where there is no limit.
    """
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        container = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):
        return machine
    return min(machine, container)


NOTE = "process_age_ps"
"""Name of the session's note that holds it."""


def process_age_ps() -> int | None:
    """Since the process's start, to a clock tick (10 ms); None without /proc.

    Source: proc(5), field 22 of /proc/PID/stat: start time in clock ticks since boot, suspension counted.
    """
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        start_ticks = int(stat.rpartition(")")[2].split()[19])
        since_boot_ps = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * PS_PER_NS
        return max(since_boot_ps - start_ticks * PS_PER_S // os.sysconf("SC_CLK_TCK"), 0)
    except (OSError, AttributeError, ValueError, IndexError):  # no Linux, or a sandbox without that file
        return None


class Clock(Struct, frozen=True):
    """Where the recorder's times come from; tests give their own.

    Attributes:
        now_ns: monotonic nanoseconds (`time.perf_counter_ns`); every time in a run is a difference of two of these.
        unix_ns: Unix nanoseconds, read once for the epoch and then to notice that the machine's clock was set.
        cpu_ns: CPU nanoseconds of the calling thread.
        busy_ns: nanoseconds by which the calling thread's share of the recorder's costs is timed (`busy_ns`);
            unlike `now_ns` never made to stand.
        process_age_ps: time since the process began, None where that is not known.
    """

    now_ns: Callable[[], int] = time.perf_counter_ns
    unix_ns: Callable[[], int] = time.time_ns
    cpu_ns: Callable[[], int] = time.thread_time_ns
    busy_ns: Callable[[], int] = busy_ns
    process_age_ps: Callable[[], int | None] = process_age_ps


class Epoch(Struct, frozen=True):
    """Time 0 of a session, on both clocks.

    Attributes:
        now_ns: the monotonic clock at the epoch.
        unix_ns: Unix nanoseconds at the epoch.
        process_age_ps: age of the process then, None where it is not known.
    """

    now_ns: int
    unix_ns: int
    process_age_ps: int | None = None

    def to_ps(self, now_ns: int) -> int:
        """Picoseconds from the epoch to a reading of the monotonic clock."""
        return (now_ns - self.now_ns) * PS_PER_NS


def start_epoch(clock: Clock) -> Epoch:
    """Pair the two clocks now, to within half of the time between two readings (measured: under 1 µs)."""
    before_ns = clock.now_ns()
    unix_ns = clock.unix_ns()
    after_ns = clock.now_ns()
    return Epoch((before_ns + after_ns) // 2, unix_ns, clock.process_age_ps())
