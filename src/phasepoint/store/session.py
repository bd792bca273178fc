"""session.json of a shard: whose it is, on which clock, and how it ended; heartbeat.json: that its writer lives.

Which process a writer is, so that a dead writer is told from a live one, even if its pid was given out again.
"""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from phasepoint.core.errors import StoreError
from phasepoint.store.filesystem import Location, read_file, write_file


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


SESSION_NAME = "session.json"
HEARTBEAT_NAME = "heartbeat.json"

HEARTBEAT_INTERVAL_NS = 10_000_000_000
"""How often a writer renews its heartbeat, if it flushes that often."""
HEARTBEAT_LIMIT_NS = 60_000_000_000
"""A writer on another machine whose heartbeat is older is taken for dead."""

ShardState = Literal["live", "closed", "killed"]

_SHARD_NAME = re.compile(r"host=(\d{5,18})(?:\.([1-9]\d{0,5}))?")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One process's share of a run.

    Attributes:
        host: rank of the process within the job.
        attempt: 0 for the first start of the job into this run.
        restart_of: name of the shard of the attempt before, None for the first.
        owner: the process that writes the shard.
        epoch_unix_ns: Unix nanoseconds of the session's time 0; all times of the shard count from it.
        profiler_clock: how the profiler's clock relates to the epoch, in words; None where no profiler ran.
        framework: `jax`, `torch` or None.
        devices: devices of this process.
        notes: anything else that the recorder wants to be known.
        status: how it ended: `ok`, `failed`, …; None while it has not.
        closed_unix_ns: when it ended.
        tally: what the recording came to when it ended, so that its last words need no table: `steps`, `windows`,
            `wall_ps`, `cost_ps`, `outside_ps` (time outside steps), `losses`. Empty where it has not ended.
    """

    host: int
    attempt: int
    restart_of: str | None = None
    owner: ProcessIdentity
    epoch_unix_ns: int
    profiler_clock: str | None = None
    framework: str | None = None
    devices: tuple[str, ...] = ()
    notes: dict[str, str] = {}
    status: str | None = None
    closed_unix_ns: int | None = None
    tally: dict[str, int] = {}


@dataclass(frozen=True)
class BrokenSession:
    """A session that is missing or cannot be decoded, and why, with the file's name."""

    reason: str


class _Heartbeat(msgspec.Struct, frozen=True):
    unix_ns: int


def shard_name(host: int, attempt: int) -> str:
    """Directory of a shard: `host=00003`, or `host=00003.1` for the first restart."""
    return f"host={host:05d}" + (f".{attempt}" if attempt else "")


def parse_shard_name(name: str) -> tuple[int, int] | None:
    """Host and attempt of a shard's directory, None if the name is no shard's."""
    match = _SHARD_NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def encode_session(session: Session) -> bytes:
    """The content of session.json."""
    return msgspec.json.format(msgspec.json.encode(session), indent=2)


def read_session(location: Location, shard: str) -> Session | BrokenSession:
    """The session of a shard, or what is wrong with it: its rows may be whole all the same.

    Raises:
        StoreError: the file system fails.
    """
    relative = f"{shard}/{SESSION_NAME}"
    try:
        return msgspec.json.decode(read_file(location, relative), type=Session)
    except FileNotFoundError:
        return BrokenSession(f"{location.show(relative)}: missing")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return BrokenSession(f"{location.show(relative)}: broken: {error}")


def write_heartbeat(location: Location, shard: str, unix_ns: int) -> None:
    """Say that the shard's writer lives now.

    Raises:
        StoreError: it cannot be written.
    """
    write_file(location, f"{shard}/{HEARTBEAT_NAME}", msgspec.json.encode(_Heartbeat(unix_ns)), durable=False)


def shard_state(location: Location, shard: str, session: Session, *, now_unix_ns: int) -> ShardState:
    """Whether a shard is being written, was closed, or lost its writer.

    On the writer's own machine its process decides; from elsewhere the age of its heartbeat.

    Raises:
        StoreError: the file system fails.
    """
    if session.closed_unix_ns is not None:
        return "closed"
    alive = is_alive(session.owner)
    if alive is None:
        alive = now_unix_ns - last_sign_of_life_unix_ns(location, shard, session) <= HEARTBEAT_LIMIT_NS
    return "live" if alive else "killed"


def last_sign_of_life_unix_ns(location: Location, shard: str, session: Session) -> int:
    """The heartbeat, or the session's start where there is none yet or a power cut has emptied it."""
    try:
        return msgspec.json.decode(read_file(location, f"{shard}/{HEARTBEAT_NAME}"), type=_Heartbeat).unix_ns
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return session.epoch_unix_ns
