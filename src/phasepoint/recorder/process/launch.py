"""Starts a command so that the Python processes in it record themselves, and waits for it.

The command keeps its standard streams, its working directory and its terminal. Its environment gains two things: a
folder at the head of PYTHONPATH, whose `sitecustomize` looks for steps, and the options of the recording.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from uuid import uuid4

from phasepoint.core.errors import RecordError, UsageError
from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.process.identity import LAUNCH_VARIABLE
from phasepoint.recorder.seam.options import VARIABLE, AutoOptions

INJECT_FOLDER = Path(__file__).parent / "inject"

_FROM_TERMINAL = ("SIGINT", "SIGQUIT")
ENDING = ("SIGTERM", "SIGHUP", *_FROM_TERMINAL)
"""Signals with which somebody wants a program to end."""
_FORWARDED = (*ENDING, "SIGUSR1", "SIGUSR2")

_SIGNAL_BASE = 128
"""Added to the signal's number, as shells do. Source: POSIX, Shell Command Language 2.8.2 asks for more than 128."""


@dataclass(frozen=True)
class Launched:
    """How a command ended.

    Attributes:
        exit_code: the command's own, or 128 plus the number of the signal that ended it, as shells have it.
        dur_ps: how long it ran.
    """

    exit_code: int
    dur_ps: int


def launch(command: Sequence[str], options: AutoOptions, *, environ: Mapping[str, str] = os.environ) -> Launched:
    """Run a command under the recorder.

    Args:
        command: the program and its arguments.
        options: where and how to record.
        environ: environment of the command, less what recording adds.

    Raises:
        UsageError: the command is empty.
        RecordError: the command cannot be started.
    """
    if not command:
        raise UsageError(
            "there is no command to record; write it after two dashes: phasepoint record -- python train.py"
        )
    began_ns = time.monotonic_ns()
    process = start_command(command, injected_environ(environ, {VARIABLE: options.to_environ()}))
    with signals_go_to(process):
        code = process.wait()
    return Launched(exit_code_of(code), (time.monotonic_ns() - began_ns) * PS_PER_NS)


def start_command(command: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command with this environment and our standard streams.

    Raises:
        RecordError: it cannot be started.
    """
    try:
        return subprocess.Popen(list(command), env=dict(environ))
    except FileNotFoundError as error:
        raise RecordError(f"{command[0]}: command not found; is it installed, and on the PATH?") from error
    except OSError as error:
        raise RecordError(f"{command[0]}: cannot be started: {error.strerror or error}") from error


def exit_code_of(code: int) -> int:
    """A process's exit code; 128 plus the number of the signal that ended it, as shells have it."""
    return code if code >= 0 else _SIGNAL_BASE - code


def injected_environ(environ: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """An environment in which every Python begins by looking for steps, with more variables in it."""
    folders = [str(INJECT_FOLDER), *([environ["PYTHONPATH"]] if environ.get("PYTHONPATH") else [])]
    return {**environ, "PYTHONPATH": os.pathsep.join(folders), LAUNCH_VARIABLE: uuid4().hex, **more}


@contextmanager
def signals_go_to(process: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    """Pass signals on to the command while it runs; what a terminal sends to both of us it gets by itself.

    Yields:
        The numbers of those that came, in their order.
    """
    by_itself = _FROM_TERMINAL if _is_foreground() else ()
    came: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if signal.Signals(number).name not in by_itself:
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_foreground() -> bool:
    """Whether a terminal sends its Ctrl-C to our process group, and so to the command."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
