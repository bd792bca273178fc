"""Which process a writer is, so that a dead writer is told from a live one, even if its pid was given out again."""

import os
import socket
from pathlib import Path

import msgspec

from phasepoint.core.errors import StoreError


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A process, identified across reboots, containers and reused pids.

    Attributes:
        pid: process id.
        start_ticks: start time in clock ticks since boot, from /proc; None where there is no /proc.
        machine: boot id and pid namespace, within which the pid means something.
        hostname: name of the machine, for messages.
    """

    pid: int
    start_ticks: int | None = None
    machine: str
    hostname: str


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    pid = os.getpid()
    return ProcessIdentity(pid=pid, start_ticks=_start_ticks(pid), machine=_machine_id(), hostname=socket.gethostname())


def is_alive(process: ProcessIdentity) -> bool | None:
    """Whether the process runs; None if it belongs to another machine (or container), from which one cannot tell."""
    if process.machine != _machine_id():
        return None
    if Path("/proc/self/stat").exists():
        ticks = _start_ticks(process.pid)
        return ticks is not None and (process.start_ticks is None or ticks == process.start_ticks)
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (proc(5)); None if there is no such process or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        raise StoreError(f"/proc/{pid}/stat cannot be read: {error}; needed to tell whether a writer lives") from error
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _machine_id() -> str:
    parts = []
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append(socket.gethostname())  # no Linux: the name is all there is
    return " ".join(parts)
