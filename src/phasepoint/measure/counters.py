"""Counters of the processor and the system over one run, from Linux's perf_event_open; all threads of the process.

Source: perf_event_open(2), Linux manual pages 6.9: the structure's first fields, the events' numbers, the flags.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasepoint.core.errors import RecordError


class CounterEvent(NamedTuple):
    """One event of the kernel's interface: its type (0 hardware, 1 software) and number."""

    name: str
    type: int
    config: int


EVENTS = (
    CounterEvent("cycles", 0, 0),
    CounterEvent("instructions", 0, 1),
    CounterEvent("cache_references", 0, 2),
    CounterEvent("cache_misses", 0, 3),
    CounterEvent("branches", 0, 4),
    CounterEvent("branch_misses", 0, 5),
    CounterEvent("page_faults", 1, 2),
    CounterEvent("context_switches", 1, 3),
    CounterEvent("cpu_migrations", 1, 4),
)
"""`PERF_TYPE_HARDWARE` and `PERF_TYPE_SOFTWARE` of linux/perf_event.h."""

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 112  # PERF_ATTR_SIZE_VER5 of linux/perf_event.h
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1, 1 << 1, 1 << 5, 1 << 6
_ENABLE, _DISABLE = 0x2400, 0x2401
_TASKS = Path("/proc/self/task")


@cache
def available_counters() -> tuple[tuple[CounterEvent, ...], str | None]:
    """The events that can be counted here, and why others cannot; None where all can."""
    number = _SYSCALL.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return (), f"perf_event_open is Linux's, on x86-64 and ARM64; this is {sys.platform} on {platform.machine()}"
    found: list[CounterEvent] = []
    reasons: dict[str, list[str]] = {}
    for event in EVENTS:
        try:
            os.close(_open(event, 0))
            found.append(event)
        except OSError as error:
            reasons.setdefault(_reason(error), []).append(event.name)
    missing = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return tuple(found), missing or None


@contextmanager
def counting(wanted: bool) -> Iterator[Callable[[], dict[str, int]]]:
    """Count in the body; what it gives says the counts so far. Counts nothing unless wanted.

    Raises:
        RecordError: counters are wanted and none can be had.
    """
    if not wanted:
        yield dict
        return
    events, reason = available_counters()
    if not events:
        raise RecordError(f"no counters: {reason}")
    opened: list[tuple[str, int]] = []
    try:
        for task in _TASKS.iterdir():
            opened += [(event.name, _open(event, int(task.name))) for event in events]
        for _, file in opened:
            _ioctl(file, _ENABLE)
        yield lambda: _read(opened)
    except OSError as error:
        raise RecordError(f"perf_event_open: {error.strerror}; give C up with --levels M,L,K") from error
    finally:
        for _, file in opened:
            os.close(file)


def _read(opened: list[tuple[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, file in opened:
        _ioctl(file, _DISABLE)
    for name, file in opened:
        counts[name] = counts.get(name, 0) + int(struct.unpack("Q", os.read(file, 8))[0])
    return counts


def _open(event: CounterEvent, thread: int) -> int:
    """A file that counts the event on a thread of ours (0: this one) and on those it starts later."""
    # Work in the kernel is left out where the system's setting forbids counting it; page faults are counted there.
    for flags in (_DISABLED | _INHERIT, _DISABLED | _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR):
        attribute = bytearray(_ATTRIBUTE_BYTES)
        struct.pack_into("IIQ", attribute, 0, event.type, _ATTRIBUTE_BYTES, event.config)
        struct.pack_into("Q", attribute, 40, flags)
        buffer = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attribute)
        file = int(_libc().syscall(_SYSCALL[platform.machine()], buffer, thread, -1, -1, 0))
        if file >= 0:
            return file
        number = ctypes.get_errno()
        if number not in (errno.EACCES, errno.EPERM):
            break
    raise OSError(number, os.strerror(number))


def _ioctl(file: int, request: int) -> None:
    import fcntl

    fcntl.ioctl(file, request, 0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this machine shows its processes no such counter (a virtual machine mostly)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "not allowed: /proc/sys/kernel/perf_event_paranoid, or the container's rules"
    return str(error.strerror)
