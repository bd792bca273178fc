"""How the machine treated the job: what its threads waited for a core, and what others took, from Linux's own counters.

Step times alone cannot tell a job that has more to do from one that a neighbour slows down. The kernel counts both
sides: how long each thread was ready to run and had no core, the time that others got, pressure (time in which some
program waited for a core, memory or a disk), what a hypervisor or a limit took away. A sample reads the running totals;
a row of `machine` is the difference of two. How long the job's cores take for one fixed piece of work (`probe_ps`)
shows a core that is slow by itself: its frequency, the other half of the core.

The flusher's thread reads them. Files of the whole machine are opened once a process: to read one again takes 8 to 13
µs of CPU time in a job that uses the caches, to open it too 32 to 37 µs (2 cores, 2026-11-25). It takes at most
`COST_RATIO` of the time, so that a machine on which they are long (hundreds of cores or threads) is looked at less
often. What a system does not have is null.

Sources: proc_pid_stat(5) and proc_stat(5); Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat: time on
a core and time spent waiting on a run queue, in ns; Documentation/accounting/psi.rst: totals in µs;
Documentation/admin-guide/cgroup-v2.rst, cpu.stat: throttled_usec.
"""

import hashlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache

from phasepoint.core.units import PS_PER_NS, PS_PER_S, PS_PER_US
from phasepoint.recorder.clock.epoch import Epoch

COST_RATIO = 0.001
"""Part of the time that sampling may take: a tenth of the default budget. A sample of a small process takes 0.3 ms of
CPU time (0.1 ms where nothing else has used the caches since: 2 cores, 2026-11-25), so that each round takes one."""

MOST_ROWS = 1 << 14
"""Rows kept between two flushes: two hours of them."""

_PROBE_BYTES = bytes(range(256)) * 64
"""16 KiB: they stay in the core's first caches, and hashing them lets go of the interpreter. In a job that uses the
caches the middle half of 150 probes lies within 2 %, of 48 KiB, which take twice the time, within 5 % (2026-11-25)."""

_TICK_PS = PS_PER_S // os.sysconf("SC_CLK_TCK")

_MOST_STAT_BYTES = 1 << 17
"""Of /proc/stat, whose lines of single cores come first: 80 bytes each."""

_kept: dict[str, int] = {}
"""Descriptors of files that are read again and again."""

Totals = dict[str, int | None]
"""Running totals in ps (`faults`: a count), None where the system does not say."""


class MachineLog:
    """Samples the machine, and gives rows of `machine`. All methods run on the flusher's thread.

    Args:
        now_ns: the clock.
        sync_ps: total of the time in calls that wait (`SyncClock.total_ps`).
    """

    def __init__(
        self,
        now_ns: Callable[[], int] = time.perf_counter_ns,
        *,
        sync_ps: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._now_ns = now_ns
        self._sync_ps = sync_ps
        self._before: tuple[int, Totals] | None = None
        self._due_s = time.monotonic()
        self._rows: list[tuple[int, int, Totals]] = []

    @property
    def waiting(self) -> int:
        """Rows that `take_rows` would give."""
        return len(self._rows)

    def tend(self, *, final: bool = False) -> None:
        """Take a sample, unless the last one was too dear to take another so soon; the last one in any case."""
        if time.monotonic() < self._due_s and not final:
            return
        now_ns, began_s = self._now_ns(), time.thread_time()
        totals = read_totals()
        totals["sync"] = self._sync_ps()
        totals["probe"] = probe_ps()
        cost_s = time.thread_time() - began_s
        self._due_s = time.monotonic() + cost_s / COST_RATIO
        if self._before is not None and len(self._rows) < MOST_ROWS:
            self._rows.append((self._before[0], now_ns, _between(self._before[1], totals)))
        self._before = now_ns, totals

    def take_rows(self, epoch: Epoch) -> Iterator[dict[str, int | None]]:
        """Rows of `machine` since the last call."""
        rows, self._rows = self._rows, []
        for start_ns, end_ns, values in rows:
            yield {
                "start_ps": epoch.to_ps(start_ns),
                "dur_ps": (end_ns - start_ns) * PS_PER_NS,
                **{name if name == "faults" else f"{name}_ps": value for name, value in values.items()},
            }


def _between(before: Totals, after: Totals) -> Totals:
    """What was added to each total; the probe is no total."""
    return {
        name: value
        if name == "probe" or value is None
        else None
        if (earlier := before.get(name)) is None
        else max(value - earlier, 0)
        for name, value in after.items()
    }


def probe_ps() -> int:
    """CPU time of this thread for one fixed piece of work, the better of two: the first warms the core up."""
    times = []
    for _ in range(2):
        began_ns = time.thread_time_ns()
        hashlib.sha256(_PROBE_BYTES)
        times.append(time.thread_time_ns() - began_ns)
    return min(times) * PS_PER_NS


def read_totals() -> Totals:
    """The running totals now."""
    run_ps, wait_ps = _threads()
    busy_ps, steal_ps = _machine()
    ours_ps = _ours_ps()
    pressures: Totals = {}
    for name in ("cpu", "memory", "io"):
        total = (_read_again(f"/proc/pressure/{name}") or b"").split(b"\n", 1)[0].rpartition(b"total=")[2]
        pressures[f"{name}_pressure"] = int(total) * PS_PER_US if total.isdigit() else None
    return {
        "run": run_ps,
        "wait": wait_ps,
        "others": None if busy_ps is None else busy_ps - ours_ps,
        "steal": steal_ps,
        "throttled": _throttled_ps(),
        **pressures,
        "faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
    }


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)  # a file object asks for more
    except OSError:
        return None
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_again(path: str, most_bytes: int = 4096) -> bytes | None:
    """A file that is the same for every process. It is never closed: its number may be the job's own by then."""
    try:
        if path not in _kept:
            _kept[path] = os.open(path, os.O_RDONLY)
        return os.pread(_kept[path], most_bytes, 0)
    except OSError:
        return None


def _threads() -> tuple[int | None, int | None]:
    """CPU time of this process' threads, and the time for which they waited for a core."""
    try:
        threads = os.listdir("/proc/self/task")  # noqa: PTH208 - names are what is wanted
    except OSError:
        return time.process_time_ns() * PS_PER_NS, None
    run_ns = wait_ns = 0
    for thread in threads:
        words = (_read(f"/proc/self/task/{thread}/schedstat") or b"").split()
        if len(words) >= 2 and words[0].isdigit() and words[1].isdigit():  # else it has just ended
            run_ns += int(words[0])
            wait_ns += int(words[1])
    return run_ns * PS_PER_NS, wait_ns * PS_PER_NS if run_ns else None


def _machine() -> tuple[int | None, int | None]:
    """CPU time of all programs on the cores that the job may use, and what the hypervisor gave to other machines."""
    cores, busy, steal = _cores(), 0, 0
    lines = (_read_again("/proc/stat", 4096 if cores == {b"cpu"} else _MOST_STAT_BYTES) or b"").split(b"\n")
    rows = [words for line in lines if (words := line.split())[:1] and words[0] in cores]
    for words in rows:
        if len(words) < 9 or not all(word.isdigit() for word in words[1:9]):
            return None, None
        user, nice, system, _, _, irq, softirq, stolen = map(int, words[1:9])
        busy, steal = busy + user + nice + system + irq + softirq, steal + stolen
    return (busy * _TICK_PS, steal * _TICK_PS) if rows else (None, None)


@cache
def _cores() -> frozenset[bytes]:
    """Names in /proc/stat of the cores that this process may use, as it began; `cpu` stands for all."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    return (
        frozenset(b"cpu%d" % core for core in mine) if 0 < len(mine) < (os.cpu_count() or 1) else frozenset((b"cpu",))
    )


def _ours_ps() -> int:
    """CPU time of this process and of the worker processes that it started by `multiprocessing`."""
    own = time.process_time_ns() * PS_PER_NS
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own += int((ended.ru_utime + ended.ru_stime) * PS_PER_S)
    multiprocessing = sys.modules.get("multiprocessing.process")
    for child in list(getattr(multiprocessing, "_children", ())):
        words = (_read(f"/proc/{child.pid}/stat") or b"").rpartition(b")")[2].split()
        if len(words) > 12 and words[11].isdigit() and words[12].isdigit():
            own += (int(words[11]) + int(words[12])) * _TICK_PS
    return own


def _throttled_ps() -> int | None:
    """Time for which the limit of the process' own control group held threads, over all cores."""
    for line in (_read_again(path) or b"").splitlines() if (path := _limit_file()) else ():
        name, _, value = line.partition(b" ")
        if name in _THROTTLED_PS and value.isdigit():
            return int(value) * _THROTTLED_PS[name]
    return None


_THROTTLED_PS = {b"throttled_usec": PS_PER_US, b"throttled_time": PS_PER_NS}
"""How the control groups of version 2 and 1 count."""


@cache
def _limit_file() -> str | None:
    """Where the limit on CPU time that holds for this process is told of; None where there is no such file."""
    places = []
    for line in os.fsdecode(_read("/proc/self/cgroup") or b"").splitlines():
        controllers, _, group = line.partition(":")[2].partition(":")
        if not controllers or "cpu" in controllers.split(","):
            roots = (f"/sys/fs/cgroup/{controllers}", "/sys/fs/cgroup/cpu") if controllers else ("/sys/fs/cgroup",)
            places += [f"{root}{mine}/cpu.stat" for root in roots for mine in (group.rstrip("/"), "")]
    return next((place for place in places if b"throttled_" in (_read(place) or b"")), None)
