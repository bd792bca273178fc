"""The measuring process seen from outside: what it answers, and how it ended.

One core for each measuring process of a machine, whoever started it.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import IO, Any

from phasepoint.core import errors

_WAIT_S = 0.2


@contextmanager
def claim_core(cores: Sequence[int]) -> Iterator[int | None]:
    """A core of those given that no other measuring process of this machine has; waits until there is one.

    A socket of an abstract name stands for the core: it is gone with the process, however that ends.

    Args:
        cores: to choose from; none: the processes need no core of their own.
    """
    if not cores or not sys.platform.startswith("linux"):
        yield None
        return
    while True:
        for core in cores:
            claim = _claim(core)
            if claim is not None:
                with claim:
                    yield core
                return
        time.sleep(_WAIT_S)


def usable_cores() -> tuple[int, ...]:
    """Cores that this process may use, the last one first: the first serves more interrupts."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0), reverse=True))


def _claim(core: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0phasepoint-core-{core}")
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return claim


LIMIT_S = 300.0
"""Silence after which a process is ended: one program took too long to compile or to run a round."""


STEADY_HEAP = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Lets the C library keep memory between runs. Else large arrays are given back and touched anew by chance: a copy of
2 MB took 29 µs or 6 ms, program by program (measured 2026-11-21)."""


@dataclass
class Child:
    """A measuring process that runs.

    Attributes:
        process: the process.
        log: what it writes to stderr.
        late: whether it was ended for its silence.
    """

    process: subprocess.Popen[str]
    log: IO[bytes]
    late: bool = False

    def answers(self) -> Iterator[dict[str, Any]]:
        """What it says, a line each.

        Raises:
            PhasepointError: as the process reports one.
        """
        assert self.process.stdout is not None
        while True:
            timer = Timer(LIMIT_S, self._end)
            timer.start()
            try:
                line = self.process.stdout.readline()
            finally:
                timer.cancel()
            if not line.endswith("\n"):
                return
            answer = json.loads(line)
            if "error" in answer:
                raise _error_of(answer["exit_code"], answer["error"])
            yield answer

    def how_it_ended(self) -> str | None:
        """In words; None where it ended well."""
        code = self.process.wait()
        if code == 0:
            return None
        if self.late:
            return f"no answer within {LIMIT_S:.0f} s"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process ended with exit code {code}"

    def _end(self) -> None:
        self.late = True
        self.process.kill()


@contextmanager
def child_process(task: Mapping[str, Any]) -> Iterator[Child]:
    """A measuring process for a task; it is ended where it is not done."""
    command = [sys.executable, "-m", "phasepoint.learn.corpus.child"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            env={**os.environ, **STEADY_HEAP},
        )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(task))
            process.stdin.close()
            yield Child(process, log)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _error_of(exit_code: int, text: str) -> errors.PhasepointError:
    """The error that a process reported, of the class with its exit code."""
    kinds = [errors.PhasepointError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next(kind for kind in kinds if kind.exit_code == exit_code)(text)
