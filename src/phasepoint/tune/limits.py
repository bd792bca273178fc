"""What the job may use: cores, and memory of its whole process tree, from Linux's own counters."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from phasepoint.core.workers import usable_cores
from phasepoint.recorder.clock.epoch import memory_limit_bytes

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
"""Of an amount of memory: `8GB` is 8·10⁹ bytes, `8GiB` 8·2³⁰."""

USABLE_RATIO = 0.9
"""A choice: part of the machine's memory that a tuner may fill where no limit is given."""


def parse_bytes(amount: str | int | float) -> int:
    """Bytes of an amount such as `8GB`.

    Raises:
        ValueError: it is no amount, or not above 0.

    Example:
        >>> parse_bytes("8GB"), parse_bytes("1.5 GiB"), parse_bytes(1024)
        (8000000000, 1610612736, 1024)
    """
    if isinstance(amount, str):
        found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?I?)B?\s*", amount, re.IGNORECASE)
        try:
            number = float(found[1]) * UNITS[found[2].upper()] if found else None
        except (ValueError, KeyError):
            number = None
        if number is None:
            raise ValueError(f"memory is {amount!r}; expected an amount such as '8GB' or '512MiB'")
    else:
        number = amount
    if not number >= 1:
        raise ValueError(f"memory is {amount!r}; expected more than 0 bytes")
    return int(number)


def usable_cpus() -> float:
    """Cores that this process may use: its affinity, or less where its control group has a quota."""
    cores = float(usable_cores())
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
        return min(cores, int(quota[0]) / int(quota[1]))
    return cores


def usable_memory_bytes() -> int:
    """Bytes that the process tree may fill where nobody says how many."""
    return int(USABLE_RATIO * (memory_limit_bytes() or sys.maxsize))


def tree_bytes(pid: int | None = None) -> int:
    """Memory of a process and all that it started, each page counted once (proportional set size).

    Where the system does not say (no Linux), what is resident is counted, and shared pages more than once.
    """
    return sum(process_bytes(process) for process in process_tree(os.getpid() if pid is None else pid))


def process_bytes(pid: int) -> int:
    """Proportional set size of one process; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - a few times a second
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    fields = _first_line(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def run_delay_ns() -> int:
    """How long this thread was ready to run and had no core, since it began; 0 where the system does not say.

    Source: Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat. It takes some 15 µs.
    """
    fields = _first_line("/proc/thread-self/schedstat").split()
    return int(fields[1]) if len(fields) > 1 else 0


def limit_data(more_bytes: int) -> None:
    """Let this process take so much more memory of its own and no more: an allocation beyond it fails.

    Source: getrlimit(2), RLIMIT_DATA: since Linux 4.7 private writable mappings count as well.
    """
    fields = _first_line("/proc/self/statm").split()
    if len(fields) > 5 and sys.platform == "linux":
        import resource

        now_bytes = int(fields[5]) * os.sysconf("SC_PAGE_SIZE")
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [value for value in (soft, hard) if value != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([now_bytes + more_bytes, *limits]), hard))


def process_tree(pid: int) -> Iterator[int]:
    """A process and its descendants; one may end while it is looked at."""
    yield pid
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a few times a second
    except OSError:
        return
    for thread in threads:
        for child in _first_line(f"/proc/{pid}/task/{thread}/children").split():
            yield from process_tree(int(child))


def _first_line(path: str | Path) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - a few times a second
            return file.readline().strip()
    except OSError:
        return ""
