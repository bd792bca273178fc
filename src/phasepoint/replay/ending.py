"""Ends the processes of a replay: first asked to, then killed."""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress

ASKED_S = 10.0
"""How long a process may take to end after SIGTERM."""


def end_processes(process: "subprocess.Popen[bytes]", others: Iterable[int]) -> None:
    """End a command that was started here, and the processes below it that recorded.

    Args:
        process: the command.
        others: numbers of processes; those that are not of our session are left alone.
    """
    mine = [pid for pid in others if pid != process.pid and _is_ours(pid)]
    process.terminate()
    for pid in mine:
        _send(pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(ASKED_S)
    if process.poll() is None:
        process.kill()
    for pid in mine:
        if _is_ours(pid):
            _send(pid, signal.SIGKILL)
    process.wait()


def _is_ours(pid: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == os.getsid(0)
    return False


def _send(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)
